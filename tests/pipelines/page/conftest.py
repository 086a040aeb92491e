"""A browser to open the page of a pipeline in."""

from testbed.browser import browse, too_wide

__all__ = ["browse", "too_wide"]
