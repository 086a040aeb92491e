"""The version of wastenot, recorded in every file it writes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The installed version, or ``from source``."""
    try:
        return version("wastenot")
    except PackageNotFoundError:
        return "from source"
