"""Pages of serving: an engine's profile, recommendations, and policies that steer its clock."""
