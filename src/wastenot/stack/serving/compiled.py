"""Functions over arrays and numbers that run as machine code where Numba is there, and as they are where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

try:
    from numba import njit

    COMPILED = True
except ImportError:
    COMPILED = False

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """The function, compiled at its first call; what was compiled is kept for the next process.

    Args:
        function: of arrays and numbers.
        options: of Numba's ``njit``, beside its cache.
    """
    if not COMPILED:
        return function
    try:
        return cast("Callable[P, R]", njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep it in can be written to
        return cast("Callable[P, R]", njit(**options)(function))
