"""Pairs of kernels with complementary power, and what running them at once could save at most (FinGraV, recommendation 2).

A kernel that computes leaves the memory idle, one that moves data leaves the arithmetic idle; run at once, they would share
the power that the GPU draws whatever it does. Two kernels of times t₁, t₂ and energies E₁, E₂, one after another, take
t₁ + t₂. At once they take no less than

    T = max(t₁, t₂, (E₁ + E₂ - S (t₁ + t₂)) / (L - S), (F₁ + F₂) / peak FLOP/s, (B₁ + B₂) / peak bytes/s)

and the energy saved at the clocks they have is no more than S (t₁ + t₂ - T). L is the power limit, S the shared power: what
is drawn once however much runs. Any kernel draws at least S, so the least power of any kernel at auto is an upper bound for
it, and the saving grows with S. It is a bound, not a forecast: real kernels get in each other's way in caches and
schedulers, and may only run at once where data dependencies allow it, which a workload does not record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.planning.costs import combine_repeats
from wastenot.study.sweep import Sweep
from wastenot.workloads.bound import Roofline
from wastenot.workloads.kernel import KernelSpec

Stress = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True)
class PowerOf:
    """One call of a kernel at auto, how often it runs in an iteration, and what limits it."""

    kernel: str
    count: int
    time_s: float
    energy_j: float
    stress: Stress

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.time_s


@dataclass(frozen=True, slots=True)
class Pair:
    """Two kernels that stress different parts.

    Attributes:
        headroom_w: limit less what both at once would draw at full speed; below 0 the limit slows them.
        together_s: least time of both at once.
        saved_j: most energy that one pair can save; ``saved_s`` is the most time.
        times: pairs in an iteration, as often as the rarer of the two runs.
    """

    compute: str
    memory: str
    headroom_w: float
    together_s: float
    saved_j: float
    saved_s: float
    times: int

    @property
    def iteration_j(self) -> float:
        """Most energy that all these pairs of an iteration can save."""
        return self.times * self.saved_j


@dataclass(frozen=True, slots=True)
class Pairs:
    """Complementary pairs of a workload, by falling saving in an iteration.

    Attributes:
        limit_w: power limit.
        shared_w: upper bound of what is drawn once, however much runs.
        told_by: how compute- and memory-bound kernels were distinguished.
    """

    limit_w: float
    shared_w: float
    told_by: str
    kernels: tuple[PowerOf, ...]
    pairs: tuple[Pair, ...]


def complementary_pairs(
    sweep: Sweep,
    limit_w: float,
    *,
    specs: Mapping[str, KernelSpec] | None = None,
    roofline: Roofline | None = None,
    memory_power_w: Mapping[str, float] | None = None,
) -> Pairs:
    """Rank pairs of one compute-heavy and one memory-heavy kernel.

    Args:
        sweep: what the kernels cost; auto counts.
        limit_w: the card's power limit.
        specs: what kernels compute, by name.
        roofline: of the card; with ``specs`` it separates compute-heavy from memory-heavy kernels, and bounds
            how fast a pair can be.
        memory_power_w: measured power of the memory at auto by kernel, where there is no roofline: a kernel with a greater
            fraction of it than the median is memory-heavy.

    Raises:
        BadInputError: neither says what kernels stress.
    """
    costs = combine_repeats(sweep)
    base = costs.start[:-1]
    power_w = costs.energy_j[base] / costs.time_s[base]
    specs = specs or {}
    stress, told_by = _stress(sweep, power_w.tolist(), specs, roofline, memory_power_w or {})
    kernels = tuple(
        PowerOf(kernel.name, kernel.count, float(costs.time_s[row]), float(costs.energy_j[row]), stress[kernel.name])
        for kernel, row in zip(sweep.kernels, base, strict=True)
    )
    shared_w = float(power_w.min())
    heavy = [[one for one in kernels if one.stress == what] for what in ("compute", "memory")]
    pairs = [_pair(compute, memory, limit_w, shared_w, specs, roofline) for compute, memory in product(*heavy)]
    pairs.sort(key=lambda pair: -pair.iteration_j)
    return Pairs(limit_w, shared_w, told_by, kernels, tuple(pairs))


def together_s(first: PowerOf, second: PowerOf, limit_w: float, shared_w: float) -> float:
    """Least time of two kernels at once under a power limit: the longer one's, or what their energies need."""
    each_s = first.time_s + second.time_s
    own_j = first.energy_j + second.energy_j - shared_w * each_s
    held_s = own_j / (limit_w - shared_w) if limit_w > shared_w else each_s
    return max(first.time_s, second.time_s, held_s)


def _pair(
    compute: PowerOf,
    memory: PowerOf,
    limit_w: float,
    shared_w: float,
    specs: Mapping[str, KernelSpec],
    roofline: Roofline | None,
) -> Pair:
    least_s = together_s(compute, memory, limit_w, shared_w)
    if roofline is not None and compute.kernel in specs and memory.kernel in specs:
        two = specs[compute.kernel], specs[memory.kernel]
        least_s = max(
            least_s,
            sum(spec.flops for spec in two) / roofline.peak_flops,
            sum(spec.bytes_moved for spec in two) / roofline.peak_bytes_per_s,
        )
    saved_s = max(0.0, compute.time_s + memory.time_s - least_s)
    return Pair(
        compute=compute.kernel,
        memory=memory.kernel,
        headroom_w=limit_w - (compute.power_w + memory.power_w - shared_w),
        together_s=least_s,
        saved_j=shared_w * saved_s,
        saved_s=saved_s,
        times=min(compute.count, memory.count),
    )


def _stress(
    sweep: Sweep,
    power_w: Sequence[float],
    specs: Mapping[str, KernelSpec],
    roofline: Roofline | None,
    memory_power_w: Mapping[str, float],
) -> tuple[dict[str, Stress], str]:
    names = [kernel.name for kernel in sweep.kernels]
    if roofline is not None and all(name in specs and specs[name].bytes_moved > 0 for name in names):
        peak = f"{roofline.device} has {roofline.flops_per_byte:.0f} in {roofline.dtype}"
        return {name: roofline.bound(specs[name]) for name in names}, f"FLOPs for a byte: {peak}"
    if all(name in memory_power_w for name in names):
        share = {name: memory_power_w[name] / watts for name, watts in zip(names, power_w, strict=True)}
        middle = float(np.median(list(share.values())))
        told_by = f"measured memory power: more than {middle:.0%} of all is memory-heavy"
        return {name: "memory" if share[name] > middle else "compute" for name in names}, told_by
    raise BadInputError(
        f"workload '{sweep.workload}': neither FLOPs and bytes of its kernels nor their memory power are known; "
        "give a card with known peaks, such as `device` sim:h200"
    )
