"""``wastenotd``: sets the clocks of GPUs for users who are not root, within a policy, and always gives them back."""
