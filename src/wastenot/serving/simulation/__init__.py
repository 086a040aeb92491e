"""An engine under a load, step by step, with a policy that steers its clock."""
