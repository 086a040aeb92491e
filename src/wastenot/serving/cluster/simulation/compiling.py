"""How the simulator is compiled: its functions stand in several files, and what is kept of them is watched by all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from wastenot.serving.model.compiled import compiled as by_numba, compiled_inside
from wastenot.serving.model.step_costs import USES

Function = TypeVar("Function", bound=Callable[..., Any])

_PARTS = (
    "records", "trees", "costs", "counting", "requests", "admission", "completing", "instances",
    "choosing", "router", "core", "ways",
)  # fmt: skip
_USES = (*USES, __file__, *(str(Path(__file__).with_name(f"{name}.py")) for name in _PARTS))


def compiled(function: Function) -> Function:
    """The function, by Numba where it is installed, for those who are not compiled."""
    return cast("Function", by_numba(function, uses=_USES, nogil=True, error_model="numpy"))


def inside(function: Function) -> Function:
    """Likewise, for those that are compiled, too."""
    return cast("Function", compiled_inside(function, nogil=True, error_model="numpy"))
