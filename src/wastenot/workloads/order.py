"""The order in which the kernels of a workload run, layer by layer where they share a loop, and what runs before what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Step:
    """What the order goes by.

    Attributes:
        times: that the kernel runs.
        block: the loop it belongs to; ``None`` for none.
        pass_name: forward, loss, backward, ...
    """

    times: int
    block: str | None = None
    pass_name: str | None = None


def order_of_steps(steps: Sequence[Step]) -> tuple[int, ...]:
    """Indices of the steps in the order they run.

    Steps of one block that run equally often one after another, such as those of a transformer layer's forward pass, run
    in turn, as they do in the model; others as often as they run, one by one.
    """

    def loop_of(index: int) -> tuple[object, ...]:
        step = steps[index]
        return (index,) if step.block is None else (step.block, step.pass_name, step.times)

    order: list[int] = []
    for _, group in groupby(range(len(steps)), loop_of):
        members = list(group)
        order += members * steps[members[0]].times
    return tuple(order)


def changes(order: Sequence[int]) -> Counter[tuple[int, int]]:
    """How often each step follows each other one; after the last comes the first, as iterations follow each other."""
    return Counter(zip([order[-1], *order[:-1]], order, strict=True)) if order else Counter()


def predecessors(steps: Sequence[Step]) -> tuple[int, ...]:
    """For each step the one that most often runs right before it, the first of those where several do.

    The first kernel of a layer comes after the layer's last one, which comes before it more often than what the loop is
    entered from. A step that runs many times by itself comes after itself.
    """
    follows = changes(order_of_steps(steps))
    found: list[int] = []
    for index in range(len(steps)):
        before = [(times, earlier) for (earlier, later), times in follows.items() if later == index]
        found.append(max(before, key=lambda entry: (entry[0], -entry[1]))[1] if before else index)
    return tuple(found)


def stretches(order: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Each change from one step to another: (before, after, how often the latter then runs in a row, how many such changes).

    After the last step comes the first, as calls follow each other; a single step never changes.
    """
    runs = [(step, len(list(same))) for step, same in groupby(order)]
    if len(runs) > 1 and runs[0][0] == runs[-1][0]:
        runs = [(runs[0][0], runs[-1][1] + runs[0][1]), *runs[1:-1]]
    if len(runs) < 2:
        return []
    found = Counter((before, *run) for (before, _), run in zip([runs[-1], *runs[:-1]], runs, strict=True))
    return [(before, after, lasting, times) for (before, after, lasting), times in found.items()]
