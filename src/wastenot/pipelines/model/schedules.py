"""Schedules by name: which instructions each rank of a pipeline runs, in which order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.pipelines.model.schedule import OVERLAPPED, Instruction, PipelineSchedule

MOST_INSTRUCTIONS: Final = 1_000_000  # of a schedule: more than any pipeline has, and few enough to hold

_Step = tuple[str, int, int]


def gpipe(ranks: int, micro_batches: int) -> PipelineSchedule:
    """GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards."""
    return _schedule("gpipe", ranks, micro_batches, lambda rank: _alternating(rank, micro_batches, micro_batches))


def one_forward_one_backward(ranks: int, micro_batches: int) -> PipelineSchedule:
    """1F1B (PipeDream-Flush; Narayanan et al., SC 2021, §2.2): as few micro-batches in flight as stages are left."""
    return _schedule("1f1b", ranks, micro_batches, lambda rank: _alternating(rank, micro_batches, ranks - 1 - rank))


def early_recomputation(ranks: int, micro_batches: int) -> PipelineSchedule:
    """1F1B whose activations are computed again before the gradient arrives (Merak: Lai et al., TPDS 2023).

    The last stage has none: its backward follows its forward at once, so that its activations are still there.
    """

    def steps(rank: int) -> list[_Step]:
        order = _alternating(rank, micro_batches, ranks - 1 - rank)
        if rank == ranks - 1:
            return order
        return [
            each for step in order for each in ([("recomputation", *step[1:]), step] if step[0] == "backward" else [step])
        ]

    return _schedule("early-recomputation", ranks, micro_batches, steps)


def interleaved(ranks: int, micro_batches: int, chunks: int = 2) -> PipelineSchedule:
    """Interleaved 1F1B in Megatron-LM's order (Narayanan et al., SC 2021, §2.2): a rank has several stages.

    Stage ``chunk * ranks + rank`` is on ``rank``. Micro-batches go through the chunks in groups, of ``ranks`` micro-batches
    where that divides their number; otherwise groups are a little larger, and equal or nearly so.
    """
    rounds = max(1, micro_batches // ranks)
    size, larger = divmod(micro_batches, rounds)
    groups: list[range] = []
    for index in range(rounds):
        first = groups[-1].stop if groups else 0
        groups.append(range(first, first + size + (index < larger)))

    def steps(rank: int) -> list[_Step]:
        def through(name: str, order: Sequence[int]) -> list[_Step]:
            return [(name, chunk * ranks + rank, each) for group in groups for chunk in order for each in group]

        warm_up = (chunks - 1) * len(groups[0]) + 2 * (ranks - 1 - rank)
        return _merged(through("forward", range(chunks)), through("backward", range(chunks)[::-1]), warm_up)

    return _schedule("interleaved", ranks, micro_batches, steps, chunks)


def zero_bubble(ranks: int, micro_batches: int) -> PipelineSchedule:
    """ZB-H1 (Qi et al., ICLR 2024, §2): gradients of weights wait until they fill the bubbles, in the memory of 1F1B.

    On stage ``s`` they are ``s`` micro-batches behind the gradients of the input, so that each rank holds what rank 0 does.
    """

    def steps(rank: int) -> list[_Step]:
        order, inputs = [], 0
        for name, stage, micro_batch in _alternating(rank, micro_batches, ranks - 1 - rank):
            if name == "forward":
                order.append((name, stage, micro_batch))
                continue
            order.append(("backward_input", stage, micro_batch))
            inputs += 1
            if inputs > rank:
                order.append(("backward_weight", stage, inputs - 1 - rank))
        behind = min(rank, micro_batches)
        return order + [("backward_weight", rank, each) for each in range(micro_batches - behind, micro_batches)]

    return _schedule("zb-h1", ranks, micro_batches, steps)


def dualpipe(ranks: int, micro_batches: int) -> PipelineSchedule:
    """DualPipe (DeepSeek-V3 technical report, 2024, §3.2.1): forwards from one end beside backwards from the other.

    Micro-batches enter at both ends. Each rank has two stages: ``rank``, for the first half of the micro-batches, and
    ``ranks - 1 - rank`` for the second half, which goes the other way. So ranks at the same distance from their end run the
    same, with the halves exchanged. The order is that of the report's figure 5 and of the public implementation
    (github.com/deepseek-ai/DualPipe), in eight steps:

        1  forwards from the nearer end, until the first from the other end is there
        2  forwards from both ends
        3  gradients of inputs, then of weights (the backward is split), a forward: all from the other end
        4  pairs: a forward from each end beside a backward from the other
        5  a backward, then a pair
        6  backwards from both ends, of which the later half leave gradients of weights for
        7  beside gradients of inputs from the nearer end, and
        8  at last

    Raises:
        BadInputError: the ranks or micro-batches are odd, or there are fewer than two micro-batches for each rank.
    """
    if ranks % 2:
        raise BadInputError(f"`ranks` {ranks}: schedule dualpipe needs an even number, as micro-batches enter at both ends")
    if micro_batches % 2 or micro_batches < 2 * ranks:
        raise BadInputError(
            f"`micro_batches` {micro_batches}: schedule dualpipe needs an even number, at least 2 for each rank: "
            f"{2 * ranks} or more"
        )
    order = tuple(_BothWays(rank, ranks, micro_batches).order() for rank in range(ranks))
    return PipelineSchedule("dualpipe", ranks, micro_batches, order)


class _BothWays:
    """What a rank of DualPipe runs; way 0 comes from the nearer end of the pipeline, way 1 from the other."""

    def __init__(self, rank: int, ranks: int, micro_batches: int) -> None:
        near, half = min(rank, ranks - 1 - rank), micro_batches // 2
        self._near, self._ranks, self._half = near, ranks, half
        self._stage = near, ranks - 1 - near
        firsts = (0, half) if rank < ranks // 2 else (half, 0)
        self._forwards, self._backwards = ([count(first) for first in firsts] for _ in range(2))
        self._weights: deque[Instruction] = deque()
        self._order: list[Instruction] = []

    def order(self) -> tuple[Instruction, ...]:
        """The instructions in order of execution."""
        near, far = self._near, self._ranks // 2 - 1 - self._near  # ranks to the end, and to the middle
        for _ in range(2 * far):
            self._forward(0)
        for _ in range(near + 1):
            self._forward(0)
            self._forward(1)
        for _ in range(far):
            self._backward(1, split=True)
            self._weight()
            self._forward(1)
        for each in range(self._half - self._ranks + near + 1):
            if each == 0 and far == 0:  # in the middle the backward waits for the forward's micro-batch to come back
                self._forward(0)
                self._backward(1)
            else:
                self._pair(0)
            self._pair(1)
        for _ in range(far):
            self._backward(1)
            self._pair(1)
        for each in range(2 * (near + 1)):
            self._backward(1 - each % 2, split=each > near)
        for _ in range(far):
            self._weight()
            self._backward(0, split=True)
        for _ in range(near + 1):
            self._weight()
        return tuple(self._order)

    def _forward(self, way: int) -> None:
        self._order.append(Instruction("forward", self._stage[way], next(self._forwards[way])))

    def _backward(self, way: int, *, split: bool = False) -> None:
        stage, micro_batch = self._stage[way], next(self._backwards[way])
        self._order.append(Instruction("backward_input" if split else "backward", stage, micro_batch))
        if split:
            self._weights.append(Instruction("backward_weight", stage, micro_batch))

    def _weight(self) -> None:
        self._order.append(self._weights.popleft())

    def _pair(self, way: int) -> None:
        """A forward of a way beside a backward of the other."""
        backward = Instruction("backward", self._stage[1 - way], next(self._backwards[1 - way]))
        self._order.append(Instruction(OVERLAPPED, self._stage[way], next(self._forwards[way]), backward))


_BUILDERS: Final[dict[str, Callable[[int, int], PipelineSchedule]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "early-recomputation": early_recomputation,
    "interleaved": interleaved,
    "zb-h1": zero_bubble,
    "dualpipe": dualpipe,
}
SCHEDULES: Final[Sequence[str]] = tuple(_BUILDERS)


def build_schedule(name: str, *, ranks: int, micro_batches: int, chunks: int | None = None) -> PipelineSchedule:
    """A schedule by its name.

    Args:
        name: one of :data:`SCHEDULES`.
        ranks: of the pipeline.
        micro_batches: of an iteration.
        chunks: stages on each rank, for ``interleaved`` alone; 2 by default.

    Raises:
        BadInputError: the name is unknown, or a number is out of range.
    """
    if name not in _BUILDERS:
        raise BadInputError(f"`schedule` '{name}': unknown; {suggestion(name, SCHEDULES)}")
    for argument, number in (
        ("ranks", ranks),
        ("micro_batches", micro_batches),
        ("chunks", 1 if chunks is None else chunks),
    ):
        if number < 1:
            raise BadInputError(f"`{argument}` {number}: must be at least 1")
    if name != "interleaved" and chunks not in (None, 1):
        raise BadInputError(f"`chunks` {chunks}: schedule {name} has one stage per rank; 'interleaved' has several")
    each = 3 * (2 if chunks is None else chunks)
    if ranks * micro_batches * each > MOST_INSTRUCTIONS:
        raise BadInputError(
            f"`micro_batches` {micro_batches}: on {ranks} ranks these are more than {MOST_INSTRUCTIONS:,} instructions"
        )
    if name == "interleaved":
        return interleaved(ranks, micro_batches, 2 if chunks is None else chunks)
    return _BUILDERS[name](ranks, micro_batches)


def _alternating(stage: int, micro_batches: int, warm_up: int) -> list[_Step]:
    """Forwards and backwards of one stage, one by one after ``warm_up`` forwards."""
    forwards, backwards = ([(name, stage, each) for each in range(micro_batches)] for name in ("forward", "backward"))
    return _merged(forwards, backwards, warm_up)


def _merged(forwards: list[_Step], backwards: list[_Step], warm_up: int) -> list[_Step]:
    warm_up = min(warm_up, len(forwards))
    pairs = zip(forwards[warm_up:], backwards, strict=False)
    steady = [step for pair in pairs for step in pair]
    return [*forwards[:warm_up], *steady, *backwards[len(forwards) - warm_up :]]


def _schedule(
    name: str, ranks: int, micro_batches: int, steps: Callable[[int], list[_Step]], chunks: int = 1
) -> PipelineSchedule:
    order = tuple(tuple(Instruction(*step) for step in steps(rank)) for rank in range(ranks))
    return PipelineSchedule(name, ranks * chunks, micro_batches, order)
