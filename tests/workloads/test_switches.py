"""Switch counts of small schedules, counted by hand and by simulation."""

import numpy as np

from wastenot.setting import AUTO, Setting
from wastenot.study.sweep import Kernel
from wastenot.workloads.order import switches

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


def test_by_playing_the_iteration_twice():
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = int(rng.integers(1, 7))
        rounds = int(rng.integers(1, 4))
        block = [f"layer{i}" if rng.random() < 0.7 else None for i in rng.integers(0, 2, size)]
        kernels = [Kernel(f"k{i}", rounds if block[i] else int(rng.integers(1, 4)), None, block[i]) for i in range(size)]
        settings = [Setting(float(rng.integers(1, 3))) for _ in range(size)]
        played, place = [], 0
        while place < size:
            end = place + 1
            while block[place] and end < size and block[end] == block[place]:
                end += 1
            loop = list(range(place, end))
            for _ in range(kernels[place].count):
                played += [settings[index] for index in loop]
            place = end
        twice = played * 2
        steady = sum(twice[i] != twice[i + 1] for i in range(len(played)))
        assert counted(kernels, settings) == steady
