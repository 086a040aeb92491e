"""Which wastenot this is; every file it writes says so."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The version installed, or ``from source``."""
    try:
        return version("wastenot")
    except PackageNotFoundError:
        return "from source"
