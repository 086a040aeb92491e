"""The order in which the kernels of a workload run, layer by layer where they share a loop, and what runs before what.

This is the one definition of that order: switches, stays between them, what runs before a kernel, loops and whole iterations
follow from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import NamedTuple, Protocol


class Ordered(Protocol):
    """A kernel, as far as the order of execution goes: how often it runs, the loop it belongs to and its pass."""

    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def block(self) -> str | None: ...  # noqa: D102
    @property
    def pass_name(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Step:
    """What the order goes by, where there is no kernel to go by."""

    count: int
    block: str | None = None
    pass_name: str | None = None


class StepLoop(NamedTuple):
    """Steps that run one after another, ``times`` times; a step without a block is a loop by itself."""

    members: tuple[int, ...]
    times: int


def loops(steps: Sequence[Ordered]) -> tuple[StepLoop, ...]:
    """The loops of a workload, in the order they run.

    Neighbouring steps of one block and pass that run equally often, such as those of a transformer layer's forward pass,
    alternate as they do in the model; others run all their calls back to back.
    """

    def loop_of(index: int) -> tuple[object, ...]:
        step = steps[index]
        return (index,) if step.block is None else (step.block, step.pass_name, step.count)

    grouped = (tuple(members) for _, members in groupby(range(len(steps)), loop_of))
    return tuple(StepLoop(members, steps[members[0]].count) for members in grouped)


def order_of_steps(steps: Sequence[Ordered]) -> tuple[int, ...]:
    """Indices of the steps in the order they run, each as often as it runs."""
    return tuple(chain.from_iterable(loop.members * loop.times for loop in loops(steps)))


def changes(steps: Sequence[Ordered]) -> Counter[tuple[int, int]]:
    """How often each step follows each other one; after the last comes the first, as iterations follow each other."""
    follows: Counter[tuple[int, int]] = Counter()
    every = loops(steps)
    for loop, earlier in zip(every, [*every[-1:], *every[:-1]], strict=True):
        for pair in pairwise(loop.members):
            follows[pair] += loop.times
        if loop.times > 1:
            follows[loop.members[-1], loop.members[0]] += loop.times - 1
        follows[earlier.members[-1], loop.members[0]] += 1
    return follows


def switches(steps: Sequence[Ordered], values: Sequence[Hashable]) -> int:
    """How often a value of each step, such as its setting, changes from one to the next, iterations following each other."""
    return sum(times for (before, after), times in changes(steps).items() if values[before] != values[after])


class Stay(NamedTuple):
    """A stretch of steps that share a value, such as a setting: the step that it begins with, and how long it lasts."""

    first: int
    seconds: float


def shortest_stay(steps: Sequence[Ordered], values: Sequence[Hashable], seconds: Sequence[float]) -> Stay | None:
    """The shortest stay at one value between two changes, iterations following each other; ``None`` if none changes.

    Args:
        steps: in order of execution.
        values: of each step, such as its setting.
        seconds: that one call of each step lasts.
    """
    stays: list[Stay] = []
    before: Hashable = None

    def run(step: int, lasting: float) -> None:
        nonlocal before
        if stays and values[step] == before:
            stays[-1] = Stay(stays[-1].first, stays[-1].seconds + lasting)
        else:
            stays.append(Stay(step, lasting))
        before = values[step]

    for loop in loops(steps):
        if len({values[step] for step in loop.members}) == 1:
            run(loop.members[0], loop.times * math.fsum(seconds[step] for step in loop.members))
            continue
        for _ in range(min(loop.times, 2)):  # the first and the last round; those between add no other stays
            for step in loop.members:
                run(step, seconds[step])
    if len(stays) > 1 and values[stays[0].first] == before:
        last = stays.pop()
        stays[0] = Stay(last.first, last.seconds + stays[0].seconds)
    return min(stays, key=lambda stay: stay.seconds) if len(stays) > 1 else None


def predecessors(steps: Sequence[Ordered]) -> tuple[int, ...]:
    """For each step the one that most often runs right before it, the first of those where several do.

    The first kernel of a layer comes after the layer's last one, which comes before it more often than what the loop is
    entered from. A step that runs many times by itself comes after itself.
    """
    most: dict[int, tuple[int, int]] = {}
    for (earlier, later), times in changes(steps).items():
        most[later] = max(most.get(later, (0, 0)), (times, -earlier))
    return tuple(-most[index][1] for index in range(len(steps)))


def stretches(order: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Each change from one step to another: (before, after, how often the latter then runs in a row, how many such changes).

    After the last step comes the first, as calls follow each other; a single step never changes.
    """
    runs = [(step, len(list(same))) for step, same in groupby(order)]
    if len(runs) > 1 and runs[0][0] == runs[-1][0]:
        runs = [(runs[0][0], runs[-1][1] + runs[0][1]), *runs[1:-1]]
    if len(runs) < 2:
        return []
    counts = Counter((before, *run) for (before, _), run in zip([runs[-1], *runs[:-1]], runs, strict=True))
    return [(before, after, lasting, times) for (before, after, lasting), times in counts.items()]
