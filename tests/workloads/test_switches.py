"""Switches and stays of small schedules, counted by hand and by playing them."""

from itertools import groupby

import numpy as np

from wastenot.core.setting import AUTO, Setting
from wastenot.study.sweep import Kernel
from wastenot.workloads.order import shortest_stay, switches

LOW = Setting(900.0)


def counted(kernels, settings):
    return switches(kernels, settings)


def test_by_hand():
    def layer(name, count=3):
        return Kernel(name, count, "forward", "layer")

    assert counted([Kernel("a", 9)], [LOW]) == 0
    assert counted([Kernel("a", 9), Kernel("b", 2)], [LOW, AUTO]) == 2
    # a b | a b | a b, and back to the first of the next iteration
    assert counted([layer("a"), layer("b")], [LOW, AUTO]) == 6
    # Another pass's layers are another loop: a a a b b b
    other = Kernel("b", 3, "backward", "layer")
    assert counted([layer("a"), other], [LOW, AUTO]) == 2


def test_stays_by_hand():
    def layer(name, count=3):
        return Kernel(name, count, "forward", "layer")

    assert shortest_stay([Kernel("a", 9)], [LOW], [1.0]) is None
    # All calls of a kernel that is in no loop run back to back; the last stay goes on in the next iteration.
    three = [Kernel("a", 9), Kernel("b", 2), Kernel("c", 1)]
    assert shortest_stay(three, [LOW, AUTO, LOW], [1.0, 4.0, 0.25]) == (1, 8.0)
    assert shortest_stay(three, [LOW, AUTO, AUTO], [1.0, 4.0, 0.5]) == (1, 8.5)
    # a b c | a b c | a b c: c and a share a setting across the rounds, but b stands alone
    assert shortest_stay([layer("a"), layer("b"), layer("c")], [LOW, AUTO, LOW], [1.0, 2.5, 0.5]) == (2, 1.5)
    # The head's setting joins the first call of the loop only: in later rounds a stands alone.
    head = Kernel("head", 1)
    assert shortest_stay([head, layer("a"), layer("b")], [LOW, LOW, AUTO], [7.0, 1.0, 3.0]) == (1, 1.0)
    assert shortest_stay([head, layer("a", 1), layer("b", 1)], [LOW, LOW, AUTO], [7.0, 1.0, 3.0]) == (2, 3.0)


def played_in_order(kernels):
    order, place = [], 0
    while place < len(kernels):
        end = place + 1
        while kernels[place].block and end < len(kernels) and kernels[end].block == kernels[place].block:
            end += 1
        order += list(range(place, end)) * kernels[place].count
        place = end
    return order


def test_by_playing_the_iteration_twice():
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(1, 7))
        rounds = int(rng.integers(1, 4))
        block = [f"layer{i}" if rng.random() < 0.7 else None for i in rng.integers(0, 2, size)]
        kernels = [Kernel(f"k{i}", rounds if block[i] else int(rng.integers(1, 4)), None, block[i]) for i in range(size)]
        settings = [Setting(float(rng.integers(1, 3))) for _ in range(size)]
        seconds = rng.integers(1, 64, size).astype(float).tolist()  # exact in any order of addition
        order = played_in_order(kernels)
        twice = [settings[index] for index in order] * 2
        changes = [at for at in range(len(order)) if twice[at] != twice[at + len(order) - 1]]
        assert counted(kernels, settings) == len(changes)
        found = shortest_stay(kernels, settings, seconds)
        if not changes:
            assert found is None
            continue
        around = order[changes[0] :] + order[: changes[0]]  # so that the first stay begins where a setting does
        stays = [list(stay) for _, stay in groupby(around, settings.__getitem__)]
        lasting = [sum(seconds[index] for index in stay) for stay in stays]
        assert found.seconds == min(lasting)
        assert any(stay[0] == found.first for stay, each in zip(stays, lasting, strict=True) if each == found.seconds)
