"""What opens pages of profiles."""

from testbed.browser import browse

__all__ = ["browse"]
