r"""Iterations under a power regulator that takes time: the clock moment by moment, over kernels in the order they run.

    kernels  ▮▮▮▯▯▮▮▮▯▮▮▮▮▮▮▮▮▮▯▯▮▮▮▯▯       ▮ products, ▯ light kernels
    clock    ────────\______/‾‾‾‾‾‾‾‾       long stretches of products still bring it down

:func:`wastenot.planning.power_limit.run_iteration` takes one clock for all of an iteration, as if the regulator saw nothing
but mean power. How well that holds shows here: a regulator acts again and again on the power of what has just run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.planning.power_limit import ClockCosts

_GRID_MHZ = 1.0  # that the clock is rounded to


@dataclass(frozen=True, slots=True, eq=False)
class RegulatedIterations:
    """Iterations one after another; arrays of shape (iterations,).

    Attributes:
        time_s: of each.
        energy_j: of each.
        core_mhz: mean clock of the regulator over each.
    """

    time_s: FloatArray
    energy_j: FloatArray
    core_mhz: FloatArray

    @property
    def mean_s(self) -> float:
        """Mean time."""
        return float(self.time_s.mean())

    @property
    def mean_j(self) -> float:
        """Mean energy."""
        return float(self.energy_j.mean())


class Clock(Protocol):
    """A core clock that a regulator sets, such as :class:`wastenot.devices.simulated.regulator.RegulatedClock`."""

    core_mhz: float

    def step(self, power_w: float, limit_w: float, ceiling_mhz: float) -> None:
        """Act on the mean power since the last step."""


def run_regulated(
    costs: ClockCosts,
    order: Sequence[int],
    clock: Clock,
    step_s: float,
    limit_w: float,
    ceiling: IndexArray | None = None,
    *,
    iterations: int = 20,
    settle: int = 5,
) -> RegulatedIterations:
    """Run iterations with the clock as a regulator sets it.

    Args:
        costs: of the kernels.
        order: of execution, as indices into the kernels of the costs.
        clock: as it is at the beginning; it is changed.
        step_s: interval at which the regulator acts.
        limit_w: the power limit.
        ceiling: highest clock of each kernel, as an index into the clocks; the highest of all by default.
        iterations: how many to return.
        settle: how many to run before, so that where the regulator began does not matter.
    """
    lowest, highest = float(costs.core_mhz[0]), float(costs.core_mhz[-1])
    grid = np.arange(lowest, highest + 0.5 * _GRID_MHZ, _GRID_MHZ)
    held = np.full(len(costs.kernels), highest) if ceiling is None else costs.core_mhz[ceiling]
    time_s = [_at(row, costs.core_mhz, np.minimum(grid, top)) for row, top in zip(costs.time_s, held, strict=True)]
    power_w = [_at(row, costs.core_mhz, np.minimum(grid, top)) for row, top in zip(costs.power_w, held, strict=True)]

    def column() -> int:
        return round((min(max(clock.core_mhz, lowest), highest) - lowest) / _GRID_MHZ)

    times, energies, clocks = [], [], []
    now_s = used_j = cycles = 0.0
    marks = (0.0, 0.0, 0.0)
    left_s, stepped_j, at = step_s, 0.0, column()
    for _ in range(settle + iterations):
        for kernel in order:
            calls = 1.0
            while calls > 0.0:
                call_s, watts = time_s[kernel][at], power_w[kernel][at]
                spent_s = min(calls * call_s, left_s)
                calls = 0.0 if spent_s < left_s else calls - spent_s / call_s
                now_s += spent_s
                used_j += spent_s * watts
                stepped_j += spent_s * watts
                cycles += spent_s * clock.core_mhz
                left_s -= spent_s
                if left_s <= 0.0:
                    clock.step(stepped_j / step_s, limit_w, highest)
                    left_s, stepped_j, at = step_s, 0.0, column()
        times.append(now_s - marks[0])
        energies.append(used_j - marks[1])
        clocks.append((cycles - marks[2]) / times[-1])
        marks = (now_s, used_j, cycles)
    return RegulatedIterations(np.array(times[settle:]), np.array(energies[settle:]), np.array(clocks[settle:]))


def _at(values: FloatArray, core_mhz: FloatArray, grid_mhz: FloatArray) -> list[float]:
    """Values at clocks of a finer grid, straight between the given ones in logarithms."""
    interpolated: list[float] = np.exp(np.interp(np.log(grid_mhz), np.log(core_mhz), np.log(values))).tolist()
    return interpolated
