"""Which instructions each rank of a pipeline runs, in which order, and which wait for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import IndexArray


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a rank.

    Attributes:
        name: ``forward``, ``backward``, ``recomputation``, ``backward_input``, ``backward_weight``, ...
        stage: of the model, from 0 at its beginning; with virtual stages there are more stages than ranks.
        micro_batch: from 0.
    """

    name: str
    stage: int
    micro_batch: int

    def __str__(self) -> str:
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
        """Pairs (earlier, later) of indices into :attr:`instructions`: order on a rank, and data between stages."""
        every = self.instructions
        index = {instruction: place for place, instruction in enumerate(every)}
        rank = self.rank
        pairs = [(place, place + 1) for place in range(len(every) - 1) if rank[place] == rank[place + 1]]
        for place, each in enumerate(every):
            if each.name == "forward" and each.stage:
                pairs.append((index[Instruction("forward", each.stage - 1, each.micro_batch)], place))
            if each.name == "backward" and each.stage < self.stages - 1:
                pairs.append((index[Instruction("backward", each.stage + 1, each.micro_batch)], place))
        return np.array(pairs, dtype=np.intp)


def one_forward_one_backward(stages: int, micro_batches: int) -> PipelineSchedule:
    """1F1B (PipeDream-Flush; Narayanan et al., SC 2021, §2.2): as few micro-batches in flight as stages are left."""

    def rank(stage: int) -> tuple[Instruction, ...]:
        warm_up = min(stages - 1 - stage, micro_batches)
        order: list[tuple[str, int]] = [("forward", each) for each in range(warm_up)]
        for each in range(micro_batches - warm_up):
            order += [("forward", warm_up + each), ("backward", each)]
        order += [("backward", each) for each in range(micro_batches - warm_up, micro_batches)]
        return tuple(Instruction(name, stage, micro_batch) for name, micro_batch in order)

    return PipelineSchedule("1f1b", stages, micro_batches, tuple(map(rank, range(stages))))


SCHEDULES: Sequence[str] = ("1f1b",)
