"""Schedules written as the files that wastenot reads."""

from __future__ import annotations

from pathlib import Path

from wastenot.pipelines.model.schedule import Instruction, PipelineSchedule, backwards_beside
from wastenot.pipelines.model.schedule_file import LETTERS, ScheduleDocument


def write_schedule(schedule: PipelineSchedule, path: Path) -> None:
    """As JSON where the file's name ends so, otherwise as text."""
    lines = "".join(",".join(map(_action, rank)) + "\n" for rank in schedule.ranks)
    path.write_text(_document(schedule) if path.suffix == ".json" else lines)


def _document(schedule: PipelineSchedule) -> str:
    ranks = tuple(tuple((each.name, each.stage, each.micro_batch) for each in rank) for rank in schedule.ranks)
    beside = tuple(backwards_beside(rank) for rank in schedule.ranks)
    document = ScheduleDocument(
        name=schedule.name, stages=schedule.stages, micro_batches=schedule.micro_batches, ranks=ranks, beside=beside
    )
    return document.model_dump_json(by_alias=True, exclude=None if any(beside) else {"beside"}) + "\n"


def _action(each: Instruction) -> str:
    written = [f"{one.stage}{LETTERS[one.name]}{one.micro_batch}" for one in each.passes]
    return written[0] if each.beside is None else f"({';'.join(written)})OVERLAP_F_B"
