"""A program that knows nothing of wastenot, instrumented by the hook at the start of its Python."""

from __future__ import annotations

import os
from typing import Any

from wastenot.control.rank import Rank
from wastenot.control.wire import PIPELINE, VARIABLE

_at_work: list[Rank] = []


def watch_from_outside(torch: Any) -> None:
    """Instrument a program that knows nothing of it; called by the start-up hook once PyTorch is imported."""
    path = os.environ.get(VARIABLE)
    if path and not _at_work:
        rank = Rank(path, torch)
        _at_work.append(rank)
        if os.environ.get(PIPELINE):
            from wastenot.pipelines.run.torch_pipelining import watch_stages

            watch_stages(rank.instruct_stage)
        else:
            rank.watch_everything()


def rank_of_this_process() -> Rank | None:
    """The one that the start-up hook made."""
    return _at_work[0] if _at_work else None
