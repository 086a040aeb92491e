"""The only place that imports what the ``report`` extra installs, so that the base install runs without it."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from wastenot.core.errors import MissingExtraError
from wastenot.core.install import install_line

_NEEDED_FOR_PAGES = ("altair", "jinja2", "vl_convert")


def check_report() -> None:
    """Find out before the work whether its page can be written; imports nothing, so it costs nothing.

    Raises:
        MissingExtraError: the ``report`` extra is not installed; says how to install it.
    """
    for module in _NEEDED_FOR_PAGES:
        if find_spec(module) is None:
            raise MissingExtraError(f"reports need {module}, which is not installed: {install_line('report')}")


def load(module: str) -> Any:
    """Import a module of the ``report`` extra.

    Args:
        module: its name, such as ``altair``.

    Raises:
        MissingExtraError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"reports need {module}, which cannot be imported ({error}): {install_line('report')}"
        ) from error
