"""How often a plan would change clocks, were each kernel to run at its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

from wastenot.setting import Setting
from wastenot.study.sweep import Kernel


def switches_per_iteration(kernels: Sequence[Kernel], settings: Sequence[Setting]) -> int:
    """Changes of setting in one iteration, the one from its end to the next one's begin included.

    Kernels next to each other with the same block and pass are a loop: it runs as often as the greatest common divisor
    of their counts, each kernel in turn. A kernel without a block runs all its calls back to back.

    Args:
        kernels: in order of execution.
        settings: the setting of each.
    """
    loops = [
        list(members) for _, members in groupby(range(len(kernels)), key=lambda index: _loop_key(kernels[index], index))
    ]
    within = 0
    for loop in loops:
        rounds = math.gcd(*(kernels[index].count for index in loop))
        inside = sum(settings[a] != settings[b] for a, b in pairwise(loop))
        around = settings[loop[-1]] != settings[loop[0]]
        within += rounds * inside + (rounds - 1) * around
    ends = [(settings[loop[0]], settings[loop[-1]]) for loop in loops]
    between = sum(ends[index - 1][1] != ends[index][0] for index in range(len(ends)))
    return within + between


def _loop_key(kernel: Kernel, index: int) -> tuple[object, ...]:
    return (index,) if kernel.block is None else (kernel.pass_name, kernel.block)
