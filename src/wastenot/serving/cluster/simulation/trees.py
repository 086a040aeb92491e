"""Trees whose root is the least of their leaves, and heaps: what happens next, who has least to do, who is done first."""

from __future__ import annotations

from wastenot.serving.cluster.simulation.compiling import compiled
from wastenot.serving.model.step_costs import Column, inlined


@inlined
def put_leaf(tree: Column, at: int, leaves: int, leaf: int, key: float) -> None:
    """A leaf has another key, and so may all nodes above it."""
    node, least = leaves + leaf, key
    tree[at + node] = key
    while node > 1:
        other = tree[at + (node ^ 1)]
        if other < least:  # noqa: PLR1730 - faster than min, which thinks of NaN
            least = other
        node >>= 1
        if tree[at + node] == least:
            return
        tree[at + node] = least


@inlined
def least_leaf(tree: Column, at: int, leaves: int) -> int:
    """The leaf with the least key; the first of several."""
    node, key = 1, tree[at + 1]
    while node < leaves:
        node *= 2
        if tree[at + node] != key:
            node += 1
    return node - leaves


@compiled
def grow_tree(tree: Column, at: int, leaves: int) -> None:
    """All nodes from the leaves."""
    for node in range(leaves - 1, 0, -1):
        tree[at + node] = min(tree[at + 2 * node], tree[at + 2 * node + 1])


@inlined
def _made_room_above(ends: Column, at: int, place: int, key: int) -> int:
    """Where a key belongs at or above a place of a heap; what was there, and greater, is one further down now."""
    while place > 0:
        up = (place - 1) >> 1
        if ends[at + up] <= key:
            break
        ends[at + place] = ends[at + up]
        place = up
    return place


@inlined
def into_heap(ends: Column, at: int, count: int, key: int) -> None:
    """One more key in a heap of that size."""
    ends[at + _made_room_above(ends, at, count, key)] = key


@inlined
def out_of_heap(ends: Column, at: int, count: int, place: int) -> None:
    """Without what lies at a place of a heap that had that size."""
    key, count = ends[at + count - 1], count - 1
    if place == count:
        return
    place = _made_room_above(ends, at, place, key)
    while True:
        down = 2 * place + 1
        if down >= count:
            break
        if down + 1 < count and ends[at + down + 1] < ends[at + down]:
            down += 1
        if ends[at + down] >= key:
            break
        ends[at + place] = ends[at + down]
        place = down
    ends[at + place] = key
