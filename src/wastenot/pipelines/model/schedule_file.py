"""Schedules in files: any order of instructions, as JSON or as a text that a person can write.

Text is as ``torch.distributed.pipelining`` keeps its schedules: a line for each rank, and on it stage, letter, micro-batch:

    0F0,0F1,,,0B0,0B1
    1F0,1B0,1F1,1B1

``F`` is the forward, ``B`` the backward, ``I`` and ``W`` the backward split into that for the input and that for the
weights; ``R``, recomputation, is ours. ``(0F3;3B1)OVERLAP_F_B`` is a forward and a backward at once. Spaces do as well as
commas, ``#`` begins a comment, and torch's communication is passed over.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from wastenot.core.documents import Count, Name, Part, parse_document
from wastenot.core.errors import BadInputError
from wastenot.pipelines.model.schedule import OVERLAPPED, Instruction, PipelineSchedule, checked_edges, joined
from wastenot.pipelines.model.schedules import MOST_INSTRUCTIONS
from wastenot.study.sweep import quoted

SCHEMA: Final = "wastenot.pipeline-schedule/1"
LETTERS: Final = {"forward": "F", "recomputation": "R", "backward": "B", "backward_input": "I", "backward_weight": "W"}
_REMEDY: Final = "see 'A schedule of your own' in docs/pipelines-schedules.md"
_ACTION: Final = re.compile(r"(\d{1,9})([A-Z_]+)(\d{0,9})")
_PAIR: Final = re.compile(r"\(([^();]+);([^();]+)\)OVERLAP_F_B")
# What torch adds to a schedule follows from the order of the instructions: communication, and parameters of FSDP.
_DERIVED: Final = ("UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B")
_NAMES: Final = {letter: name for name, letter in LETTERS.items()}
_MOST_BYTES: Final = 200_000_000


class ScheduleDocument(Part):
    """A schedule as JSON: each rank's instructions in order, as (name, stage, micro-batch).

    Of each rank's ``forward_backward``, in order, ``beside`` has the backward: (stage, micro-batch).
    """

    schema_: Annotated[Literal["wastenot.pipeline-schedule/1"], Field(alias="schema")] = SCHEMA
    name: Name
    stages: Annotated[int, Field(ge=1)]
    micro_batches: Annotated[int, Field(ge=1)]
    ranks: Annotated[
        tuple[Annotated[tuple[Annotated[tuple[Name, Count, Count], Field(strict=False)], ...], Field(strict=False)], ...],
        Field(strict=False, min_length=1),
    ]
    beside: Annotated[
        tuple[Annotated[tuple[Annotated[tuple[Count, Count], Field(strict=False)], ...], Field(strict=False)], ...],
        Field(strict=False),
    ] = ()


def read_schedule(path: str | os.PathLike[str]) -> PipelineSchedule:
    """A schedule from a file, JSON or text; a text's name is that of the file.

    Raises:
        BadInputError: the file cannot be read, or the schedule cannot run; says which line, or which instructions wait for
            which.
    """
    where = os.fspath(path)
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise BadInputError(f"{where}: is larger than {_MOST_BYTES // 1_000_000} MB; {_REMEDY}")
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{where}: byte {error.start}: is not UTF-8; {_REMEDY}") from error
    except OSError as error:
        raise BadInputError(f"{where}: cannot be read: {error.strerror or error}") from error
    schedule = _of_document(text, where) if text.lstrip()[:1] == "{" else _of_text(text, where)
    checked_edges(schedule, where)
    return schedule


def _of_document(text: str, where: str) -> PipelineSchedule:
    content = parse_document(text, ScheduleDocument, _REMEDY, where).content
    beside = content.beside or ((),) * len(content.ranks)
    if len(beside) != len(content.ranks):
        raise BadInputError(f"{where}: beside: {len(beside)} lists, but there are {len(content.ranks)} ranks")
    ranks = tuple(
        joined(rank, of_rank, f"{where}: rank {number}")
        for number, (rank, of_rank) in enumerate(zip(content.ranks, beside, strict=True))
    )
    return PipelineSchedule(content.name, content.stages, content.micro_batches, ranks)


def _of_text(text: str, where: str) -> PipelineSchedule:
    ranks = []
    for line, content in enumerate(text.splitlines(), 1):
        actions = content.split("#")[0].replace(",", " ").split()
        if actions:
            found = (_instruction(action, f"{where}:{line}") for action in actions)
            ranks.append(tuple(each for each in found if each is not None))
    every = [each for rank in ranks for each in rank]
    if not every:
        raise BadInputError(f"{where}:1: there are no instructions; {_REMEDY}")
    if len(every) > MOST_INSTRUCTIONS:
        raise BadInputError(f"{where}: has more than {MOST_INSTRUCTIONS:,} instructions")
    passes = [each for instruction in every for each in instruction.passes]
    stages, micro_batches = (1 + max(getattr(each, name) for each in passes) for name in ("stage", "micro_batch"))
    return PipelineSchedule(Path(where).stem, stages, micro_batches, tuple(ranks))


def _instruction(action: str, where: str) -> Instruction | None:
    if pair := _PAIR.fullmatch(action.strip('"')):
        forward, backward = (_instruction(each, where) for each in pair.groups())
        if forward is None or backward is None or (forward.name, backward.name) != ("forward", "backward"):
            raise BadInputError(
                f"{where}: {quoted(action)}: must be a forward and a whole backward, such as (0F3;3B1)OVERLAP_F_B"
            )
        return Instruction(OVERLAPPED, forward.stage, forward.micro_batch, backward)
    match = _ACTION.fullmatch(action.strip('"'))
    if match and match[2] in _DERIVED:
        return None
    if match and match[2] in _NAMES and match[3]:
        return Instruction(_NAMES[match[2]], int(match[1]), int(match[3]))
    known = ", ".join(f"{letter} {name}" for letter, name in _NAMES.items())
    if match and match[2] not in _NAMES:
        raise BadInputError(f"{where}: {quoted(action)}: unknown instruction {match[2]}; there are {known}")
    raise BadInputError(f"{where}: {quoted(action)}: is not stage, letter, micro-batch, such as 0F3; there are {known}")
