"""A schedule with times of its instructions: when each runs, how much of the time ranks wait, what they hold meanwhile.

    rank 0  F0F1    B0--  B1--
    rank 1    F0B0--F1B1--

Forwards of one unit and backwards of two are the pictures of the papers that schedules come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.schedule_file import LETTERS

UNITS: Final = {
    "forward": 1.0, "recomputation": 1.0, "backward": 2.0, "backward_input": 1.0, "backward_weight": 1.0,
    "forward_backward": 3.0,
}  # fmt: skip
_MOST_COLUMNS: Final = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """When instructions run, each as early as it can.

    Attributes:
        schedule: whose instructions they are.
        start: of each of the schedule's instructions; shape (instructions,).
        end: likewise.
    """

    schedule: PipelineSchedule
    start: FloatArray
    end: FloatArray

    @property
    def length(self) -> float:
        """From the first start to the last end."""
        return float(self.end.max())

    @property
    def waiting(self) -> FloatArray:
        """Time that each rank waits, as a fraction of the time that it works (the bubble); shape (ranks,)."""
        busy = np.bincount(self.schedule.rank, self.end - self.start)
        return np.asarray(self.length / busy - 1.0, dtype=np.float64)

    @property
    def held(self) -> list[int]:
        """The most micro-batches, of all its stages together, whose activations each rank holds at a time.

        They are held from the forward to the end of the backward, or of the gradients of weights where it is split.
        """
        most, at = [], 0
        for rank in self.schedule.ranks:
            last = {}
            passes = [(index, each) for index, instruction in enumerate(rank, at) for each in instruction.passes]
            for index, each in passes:
                last[each.stage, each.micro_batch] = index
            events = []
            for index, each in passes:
                if each.name == "forward":
                    events += [(self.start[index], 1), (self.end[last[each.stage, each.micro_batch]], -1)]
            events.sort()
            most.append(int(np.cumsum([change for _, change in events]).max(initial=0)))
            at += len(rank)
        return most


def timeline(schedule: PipelineSchedule, times: Mapping[str, float] = UNITS) -> Timeline:
    """Run a schedule whose stages are all alike.

    Args:
        schedule: to be run.
        times: of each instruction by its name; a forward of one unit and a backward of two by default.

    Raises:
        BadInputError: the schedule cannot run.
    """
    instructions = schedule.instructions
    edges = schedule.edges()
    after: list[list[int]] = [[] for _ in instructions]
    waits = [0] * len(instructions)
    for earlier, later in edges.tolist():
        after[earlier].append(later)
        waits[later] += 1
    start = [0.0] * len(instructions)
    ready = [index for index, count in enumerate(waits) if not count]
    for index in ready:  # it grows meanwhile
        end = start[index] + times[instructions[index].name]
        for later in after[index]:
            start[later] = max(start[later], end)
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    begin = np.array(start)
    return Timeline(schedule, begin, begin + np.array([times[each.name] for each in instructions]))


def drawn(line: Timeline, columns_per_unit: int | None = None) -> str:
    """A picture in text: a line for each rank, a letter and the micro-batch where an instruction begins.

    ``F`` forward, ``B`` backward, ``R`` recomputation, ``I`` backward for the input, ``W`` for the weights; a forward and a
    backward at once have the letters of both; with several
    stages on a rank, those of the second one are in lower case, and so on in turn.

    Args:
        line: to be drawn.
        columns_per_unit: of time; by default so many that the shortest instruction has room for its micro-batch.

    Raises:
        BadInputError: the picture would be wider than anybody reads.
    """
    schedule = line.schedule
    if columns_per_unit is None:
        columns_per_unit = math.ceil((1 + len(str(schedule.micro_batches - 1))) / float((line.end - line.start).min()))
    width = round(line.length * columns_per_unit)
    if width > _MOST_COLUMNS:
        raise BadInputError(f"schedule {schedule.name}: a picture of {width:,} columns; draw fewer micro-batches")
    rows, at = [], 0
    digits = len(str(len(schedule.ranks) - 1))
    for rank, instructions in enumerate(schedule.ranks):
        cells = [" "] * width
        stages = sorted({one.stage for each in instructions for one in each.passes})
        for index, each in enumerate(instructions, at):
            first, stop = (round(time * columns_per_unit) for time in (line.start[index], line.end[index]))
            text = ""
            for one in each.passes:
                letter = LETTERS[one.name]
                text += f"{letter.lower() if stages.index(one.stage) % 2 else letter}{one.micro_batch}"
            cells[first:stop] = f"{text[: stop - first]:{'-' if each.name != 'forward' else ' '}<{stop - first}}"
        rows.append(f"rank {rank:{digits}}  {''.join(cells).rstrip()}")
        at += len(instructions)
    return "\n".join(rows)
