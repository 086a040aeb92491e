"""Ways in which the run of one instance can continue: copies of all that its steps read and change."""

from __future__ import annotations

from copy import copy

import numpy as np

from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.records import LOW, State
from wastenot.serving.cluster.simulation.trees import put_leaf
from wastenot.serving.model.compiled import COMPILED
from wastenot.serving.model.step_costs import Column, inlined

_COPIED = ("numbers", "instances", "slots", "ends", "due", "kinds")


def room_for_ways(run: State, ways: int) -> State:
    """That many copies of a run of one instance, one after the other in each column; other columns are shared with it."""
    columns = {name: getattr(run, name) for name in _COPIED}
    return run._replace(
        **{name: np.tile(of, ways) if COMPILED else [copy(each) for each in of * ways] for name, of in columns.items()}
    )


if COMPILED:

    @inlined
    def _put(column: Column, at: int, value: object) -> None:
        column[at] = value

else:

    def _put(column: Column, at: int, value: object) -> None:
        column[at] = copy(value)


@inside
def keep_way(source: State, way: int, target: State, to: int) -> None:
    """A way of one state becomes a way of another, but for the list of its free slots."""
    ways, instance = len(source.numbers), source.instances[way]
    slots, ends, due = len(source.slots) // ways, len(source.ends) // ways, len(source.due) // ways
    _put(target.numbers, to, source.numbers[way])
    _put(target.instances, to, instance)
    for place in range(instance.running):
        key = source.ends[way * ends + place]
        target.ends[to * ends + place] = key
        _put(target.slots, to * slots + (key & LOW), source.slots[way * slots + (key & LOW)])
    for first in (instance.first_prefilling, instance.head):
        slot = first
        while slot >= 0:
            _put(target.slots, to * slots + slot, source.slots[way * slots + slot])
            slot = source.slots[way * slots + slot].after
    for residue in range(due):
        target.due[to * due + residue] = source.due[way * due + residue]
    for kind in range(COUNT):
        _put(target.kinds, to * COUNT + kind, source.kinds[way * COUNT + kind])


@inside
def resume_way(ways: State, way: int, run: State) -> None:
    """A run continues as a way that was kept."""
    for slot in range(len(run.slots)):
        run.slots[slot].number = -1
    keep_way(ways, way, run, 0)
    numbers = run.numbers[0]
    numbers.spare = -1
    for slot in range(len(run.slots) - 1, -1, -1):
        if run.slots[slot].number < 0:
            run.slots[slot].after = numbers.spare
            numbers.spare = slot
    put_leaf(run.events, 0, numbers.leaves, 0, run.instances[0].end_s)
