"""Instructions of a pipeline, and which wait for which.

A forward waits for the previous stage's, a backward for the next stage's and its own forward (and its recomputation, where
that is an instruction of its own), the gradients of weights for those of the input. A rank runs its instructions in order.
A forward and a backward that a rank runs at once are one instruction, which waits for what each of them waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.core.wording import counted

OVERLAPPED: Final = "forward_backward"
NAMES: Final = ("forward", "recomputation", "backward", "backward_input", "backward_weight", OVERLAPPED)
_MOST_NAMED = 3  # ranks in the message about a deadlock


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a rank.

    Attributes:
        name: ``forward``, ``backward``, ``recomputation``, or ``backward_input`` and ``backward_weight`` where the backward
            is split; ``forward_backward`` for a forward and a backward at once; parts of fixed time that
            :func:`~wastenot.pipelines.model.iteration_graph.pipeline_parts` adds have other names.
        stage: of the model, from 0 at its beginning; with virtual stages there are more stages than ranks.
        micro_batch: from 0.
        beside: of ``forward_backward`` the backward; stage and micro-batch are those of the forward.
    """

    name: str
    stage: int
    micro_batch: int
    beside: Instruction | None = None

    @property
    def passes(self) -> tuple[Instruction, ...]:
        """The instruction itself, or the forward and the backward that it runs at once."""
        return (self,) if self.beside is None else (Instruction("forward", self.stage, self.micro_batch), self.beside)

    def __str__(self) -> str:
        if self.beside is not None:
            forward, backward = self.passes
            return f"{forward} beside {backward}"
        return f"{self.name} of micro-batch {self.micro_batch} on stage {self.stage}"


@dataclass(frozen=True, slots=True)
class PipelineSchedule:
    """The order of instructions on each rank.

    Attributes:
        name: such as ``1f1b``.
        stages: of the model.
        micro_batches: of an iteration.
        ranks: for each rank its instructions in order of execution.
    """

    name: str
    stages: int
    micro_batches: int
    ranks: tuple[tuple[Instruction, ...], ...]

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions, rank after rank: the parts of the graph."""
        return tuple(instruction for rank in self.ranks for instruction in rank)

    @property
    def rank(self) -> IndexArray:
        """The rank of each of :attr:`instructions`."""
        return np.repeat(np.arange(len(self.ranks)), [len(rank) for rank in self.ranks])

    def edges(self) -> IndexArray:
        """Pairs (earlier, later) of indices into :attr:`instructions`: order on a rank, and data between ranks.

        Raises:
            BadInputError: an instruction is unknown, missing or there twice, or the schedule deadlocks.
        """
        return checked_edges(self, f"schedule {self.name}")


def checked_edges(schedule: PipelineSchedule, where: str) -> IndexArray:
    """As :meth:`PipelineSchedule.edges`; ``where`` begins each error message."""
    place = _places(schedule, where)
    waits = [
        list(dict.fromkeys(at for each in instruction.passes for at in _waited_for(place, each, schedule.stages)))
        for instruction in schedule.instructions
    ]
    ends = list(accumulate(map(len, schedule.ranks)))
    starts = [0, *ends[:-1]]
    rank = schedule.rank.tolist()
    pairs = [(at, at + 1) for start, end in zip(starts, ends, strict=True) for at in range(start, end - 1)]
    every = schedule.instructions
    for later, earlier in enumerate(waits):
        for each in earlier:
            if rank[each] != rank[later]:
                pairs.append((each, later))
            elif each == later:
                raise BadInputError(
                    f"{where}: rank {rank[later]} runs {every[later]} at once, though one waits for the other"
                )
            elif each > later:
                raise BadInputError(
                    f"{where}: rank {rank[later]} runs {every[later]} before {every[each]}, which it waits for"
                )
    _refuse_deadlock(every, rank, waits, starts, ends, where)
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _places(schedule: PipelineSchedule, where: str) -> dict[tuple[str, int, int], int]:
    """Where each instruction stands, after a look at whether they are the ones that an iteration needs."""
    if schedule.stages < 1 or schedule.micro_batches < 1 or not schedule.ranks:
        raise BadInputError(f"{where}: needs at least a rank, a stage and a micro-batch")
    place: dict[tuple[str, int, int], int] = {}
    home: dict[tuple[int, int], int] = {}
    partner: dict[int, int] = {}
    at = 0
    for rank, instructions in enumerate(schedule.ranks):
        if not instructions:
            raise BadInputError(f"{where}: rank {rank} has no instructions; leave it out")
        for instruction in instructions:
            _check_pair(instruction, f"{where}: rank {rank}", partner)
            for each in instruction.passes:
                _check(each, schedule, f"{where}: rank {rank}")
                key = (each.name, each.stage, each.micro_batch)
                if key in place:
                    raise BadInputError(f"{where}: rank {rank}: {each} appears twice")
                if home.setdefault(key[1:], rank) != rank:
                    raise BadInputError(f"{where}: {each} is on rank {rank}, its other instructions on rank {home[key[1:]]}")
                place[key] = at
            at += 1
    for stage in range(schedule.stages):
        for micro_batch in range(schedule.micro_batches):
            if missing := _missing(place, stage, micro_batch, where):
                raise BadInputError(
                    f"{where}: lacks {Instruction(missing, stage, micro_batch)} "
                    f"({counted(schedule.stages, 'stage')}, {counted(schedule.micro_batches, 'micro-batch')})"
                )
    return place


def backwards_beside(rank: Sequence[Instruction]) -> tuple[tuple[int, int], ...]:
    """Stage and micro-batch of the backward of each ``forward_backward`` of a rank, as files have them."""
    return tuple((each.beside.stage, each.beside.micro_batch) for each in rank if each.beside is not None)


def joined(rank: Iterable[tuple[str, int, int]], beside: Sequence[tuple[int, int]], where: str) -> tuple[Instruction, ...]:
    """A rank's instructions from what files have: (name, stage, micro-batch) of each, and :func:`backwards_beside`.

    Raises:
        BadInputError: there are not as many backwards as instructions that need one; ``where`` begins the message.
    """
    named = list(rank)
    pairs = sum(name == OVERLAPPED for name, _, _ in named)
    if pairs != len(beside):
        raise BadInputError(
            f"{where}: {pairs} instructions {OVERLAPPED}, but {counted(len(beside), 'backward')} beside them"
        )
    backwards = iter(beside)
    return tuple(
        Instruction(name, stage, batch, Instruction("backward", *next(backwards)) if name == OVERLAPPED else None)
        for name, stage, batch in named
    )


def _check(each: Instruction, schedule: PipelineSchedule, where: str) -> None:
    if each.name not in NAMES:
        raise BadInputError(f"{where}: unknown instruction '{each.name}'; {suggestion(each.name, NAMES)}")
    if not 0 <= each.stage < schedule.stages:
        raise BadInputError(f"{where}: {each}: stages are 0 to {schedule.stages - 1}")
    if not 0 <= each.micro_batch < schedule.micro_batches:
        raise BadInputError(f"{where}: {each}: micro-batches are 0 to {schedule.micro_batches - 1}")


def _check_pair(each: Instruction, where: str, partner: dict[int, int]) -> None:
    """Refuse what is no forward beside a backward; ``partner`` collects the backward's stage by the forward's."""
    if (each.name == OVERLAPPED) != (each.beside is not None):
        raise BadInputError(f"{where}: {each}: {OVERLAPPED} needs the backward that it runs beside, and only that does")
    if each.beside is None:
        return
    if each.beside.name != "backward" or each.beside.beside is not None:
        raise BadInputError(f"{where}: {each}: a forward can run beside a whole backward only")
    if partner.setdefault(each.stage, each.beside.stage) != each.beside.stage:
        raise BadInputError(
            f"{where}: {each}: elsewhere forwards of its stage run beside backwards of stage {partner[each.stage]}; "
            "a profile has times of one pair of stages"
        )


def _missing(place: dict[tuple[str, int, int], int], stage: int, micro_batch: int, where: str) -> str | None:
    there = {name for name in NAMES if (name, stage, micro_batch) in place}
    missing = {"forward"} - there
    if "backward" in there and there & {"backward_input", "backward_weight"}:
        raise BadInputError(
            f"{where}: {Instruction('backward', stage, micro_batch)} is given both whole and split; give one of the two"
        )
    if not there & {"backward", "backward_input", "backward_weight"}:
        missing.add("backward")
    elif "backward" not in there:
        missing |= {"backward_input", "backward_weight"} - there
    return min(missing, key=NAMES.index, default=None)


def _waited_for(place: dict[tuple[str, int, int], int], each: Instruction, stages: int) -> list[int]:
    """Indices of the instructions whose data one needs."""
    name, stage, micro_batch = each.name, each.stage, each.micro_batch
    if name == "forward":
        return [place[name, stage - 1, micro_batch]] if stage else []
    if name == "backward_weight":
        return [place["backward_input", stage, micro_batch]]
    found = [place["forward", stage, micro_batch]]
    if name == "recomputation":
        return found
    if ("recomputation", stage, micro_batch) in place:
        found.append(place["recomputation", stage, micro_batch])
    if stage < stages - 1:
        whole = place.get(("backward", stage + 1, micro_batch))
        found.append(place["backward_input", stage + 1, micro_batch] if whole is None else whole)
    return found


def _refuse_deadlock(
    every: Sequence[Instruction], rank: list[int], waits: list[list[int]], starts: list[int], ends: list[int], where: str
) -> None:
    """Run the ranks until none can continue."""
    done, at = bytearray(len(every)), list(starts)
    held_up: dict[int, list[int]] = {}  # ranks by the instruction that they wait for
    ready = list(range(len(starts)))
    while ready:
        one = ready.pop()
        while at[one] < ends[one]:
            missing = next((each for each in waits[at[one]] if not done[each]), None)
            if missing is not None:
                held_up.setdefault(missing, []).append(one)
                break
            done[at[one]] = 1
            ready += held_up.pop(at[one], ())
            at[one] += 1
    if not held_up:
        return
    needs = {one: missing for missing, ranks in held_up.items() for one in ranks}
    chain = [min(needs)]
    while (following := rank[needs[chain[-1]]]) not in chain:
        chain.append(following)
    cycle = chain[chain.index(following) :]
    told = [f"rank {one} cannot run {every[at[one]]} before {every[needs[one]]}" for one in cycle]
    more = f", and so on through {len(cycle)} ranks" if len(cycle) > _MOST_NAMED else ""
    raise BadInputError(f"{where}: deadlocks: {', '.join(told[:_MOST_NAMED])}{more}")
