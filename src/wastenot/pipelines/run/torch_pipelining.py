"""Marks the instructions of torch.distributed.pipelining's schedules, with no change to the program.

Every schedule of that library runs a stage's work through the same three methods of the stage, which know micro-batch and
stage; they are wrapped. Loaded into other people's programs, so it imports nothing but the standard library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Tell = Callable[[str, int, int, int], None]
"""Takes an instruction's name, its micro-batch and stage, and the rank within the pipeline, before it is run."""

_METHODS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")


def watch_stages(tell: Tell) -> Callable[[], None]:
    """Tell of every instruction that a stage runs from now on.

    Args:
        tell: is called right before an instruction is run, and must not raise.

    Returns:
        What undoes it.

    Raises:
        ImportError: this PyTorch has no pipelining.
        AttributeError: its stages are unlike those known (PyTorch 2.5 to 2.13).
    """
    from torch.distributed.pipelining import stage

    base = stage._PipelineStageBase
    before = {name: getattr(base, name) for name in _METHODS}
    for name, method in before.items():
        setattr(base, name, _told(method, name, tell))

    def undo() -> None:
        for name, method in before.items():
            setattr(base, name, method)

    return undo


def _told(method: Any, method_name: str, tell: Tell) -> Any:
    @functools.wraps(method)
    def run(stage: Any, chunk: int, *arguments: Any, **named: Any) -> Any:
        if getattr(stage, "has_backward", True):  # evaluation runs forwards alone, which are not the plan's
            tell(_instruction(method_name, arguments, named), chunk, stage.stage_index, stage.group_rank)
        return method(stage, chunk, *arguments, **named)

    return run


def _instruction(method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    if method == "forward_one_chunk":
        return "forward"
    if method == "backward_weight_one_chunk":
        return "backward_weight"
    full = named["full_backward"] if "full_backward" in named else arguments[1] if len(arguments) > 1 else True
    return "backward" if full else "backward_input"
