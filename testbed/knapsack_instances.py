"""Random instances of the multiple-choice knapsack: kernel-like ones, and ones designed to be hard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from testbed.synthetic_gpu import CORE_MHZ, MEMORY_MHZ, costs
from wastenot.frontiers.pareto import Groups

Generator = Callable[[np.random.Generator, int, int], Groups]


def _rows(time: np.ndarray, energy: np.ndarray) -> Groups:
    groups, options = time.shape
    return Groups(time.ravel(), energy.ravel(), np.arange(groups + 1) * options)


def physical(rng: np.random.Generator, groups: int, options: int) -> Groups:
    """Kernels of the synthetic GPU, run 1 to 48 times, with 0.5 % of noise."""
    scale = 10.0 ** rng.uniform(-5, -1.5, (groups, 1))
    core, memory = scale * rng.uniform(0.05, 1, (groups, 1)), scale * rng.uniform(0.05, 1, (groups, 1))
    core_mhz = rng.choice(np.arange(CORE_MHZ[0], CORE_MHZ[-1] + 1, 15), options)
    memory_mhz = rng.choice(np.array(MEMORY_MHZ), options)
    swept = costs(core, memory, rng.uniform(0.3, 1, (groups, 1)), core_mhz, memory_mhz)
    count = rng.choice([1, 2, 12, 24, 48], (groups, 1))
    time = count * swept.time_s * (1 + 0.005 * rng.standard_normal(swept.time_s.shape))
    return _rows(time, time * swept.power_w * (1 + 0.005 * rng.standard_normal(time.shape)))


def uniform(rng: np.random.Generator, groups: int, options: int) -> Groups:
    """Independent, uniform times and energies."""
    return _rows(rng.uniform(1, 100, (groups, options)), rng.uniform(1, 100, (groups, options)))


def correlated(rng: np.random.Generator, groups: int, options: int) -> Groups:
    """Energy falls almost exactly as time rises: many plans are nearly equally good."""
    time = rng.uniform(1, 100, (groups, options))
    return _rows(time, 120 - time + rng.uniform(0, 2, time.shape))


def heavy_tailed(rng: np.random.Generator, groups: int, options: int) -> Groups:
    """Physical kernels whose counts follow a power law, so that a few of them dominate."""
    plain = physical(rng, groups, options)
    count = np.repeat(np.ceil(rng.pareto(0.7, groups) + 1e-9), np.diff(plain.start))
    return Groups(count * plain.time_s, count * plain.energy_j, plain.start)


def tied(rng: np.random.Generator, groups: int, options: int) -> Groups:
    """Small integers: many equal times, energies and sums."""
    return _rows(
        rng.integers(1, 7, (groups, options)).astype(float),
        rng.integers(1, 7, (groups, options)).astype(float),
    )


GENERATORS: dict[str, Generator] = {
    "physical": physical,
    "uniform": uniform,
    "correlated": correlated,
    "heavy_tailed": heavy_tailed,
    "tied": tied,
}


def budget_s(groups: Groups, looseness: float) -> float:
    """A budget between the fastest plan (0) and the slowest of all options (1)."""
    fastest = np.minimum.reduceat(groups.time_s, groups.start[:-1]).sum()
    slowest = np.maximum.reduceat(groups.time_s, groups.start[:-1]).sum()
    # Rounded up: a rounded sum may lie below the exact one, and then no plan would be feasible.
    return float(np.nextafter((fastest + looseness * (slowest - fastest)) * (1 + 1e-15), np.inf))
