"""The only place that imports what the ``report`` extra installs, so that the base install runs without it."""

from __future__ import annotations

import importlib
from typing import Any

from wastenot.errors import MissingExtraError


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
            f"reports need {module}, which cannot be imported ({error}); pip install 'wastenot[report]'"
        ) from error
