"""Tables that others measured, taken as the truth that noise is added to."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from wastenot.planning.costs import Costs, combine_repeats
from wastenot.study.sweep import Kernel, Sweep

_SPREAD = 0.7  # spread of the logarithm of the kernels' shares of time


@dataclass(frozen=True)
class Noise:
    """Relative noise of times and energies, readings per point, and the error stated over the true one (0: none stated)."""

    time: float
    energy: float
    readings: int
    stated: float


@dataclass(frozen=True)
class Table:
    """True costs of one call; arrays of shape (rows,), NaN for auto."""

    name: str
    kernel: np.ndarray
    core_mhz: np.ndarray
    memory_mhz: np.ndarray
    power_limit_w: np.ndarray
    time_s: np.ndarray
    energy_j: np.ndarray

    def some(self, rng: np.random.Generator, fraction: float) -> Table:
        """A random part of the kernels, in random order."""
        kernels = int(self.kernel.max()) + 1
        kept = rng.permutation(kernels)[: max(2, round(fraction * kernels))]
        place = {int(kernel): index for index, kernel in enumerate(kept)}
        rows = np.flatnonzero(np.isin(self.kernel, kept))
        columns = (getattr(self, name)[rows] for name in ("core_mhz", "memory_mhz", "power_limit_w", "time_s", "energy_j"))
        return Table(self.name, np.array([place[k] for k in self.kernel[rows].tolist()]), *columns)

    def thinned(self, clocks: int) -> Table:
        """Only so many core clocks, evenly picked, the lowest and the highest among them."""
        there = np.unique(self.core_mhz[~np.isnan(self.core_mhz)])
        picked = there[np.linspace(0, len(there) - 1, clocks).round().astype(int)]
        kept = np.isnan(self.core_mhz) | np.isin(self.core_mhz, picked)
        return Table(self.name, *(getattr(self, each.name)[kept] for each in fields(self) if each.name != "name"))

    def sweep(self, rng: np.random.Generator, noise: Noise) -> Sweep:
        """Noisy readings; counts such that the kernels' shares of the time are about alike."""
        row = np.repeat(np.arange(len(self.time_s)), noise.readings)
        time, energy = (
            value[row] * (1.0 + error * rng.standard_normal(len(row)))
            for value, error in ((self.time_s, noise.time), (self.energy_j, noise.energy))
        )
        base = self.baseline_time_s
        counts = np.maximum(1, np.round(1e3 * base.max() / base * np.exp(_SPREAD * rng.standard_normal(len(base)))))
        absent = np.full(len(row), np.nan)
        stated = [noise.stated * noise.time * time, noise.stated * noise.energy * energy] if noise.stated else [absent] * 2
        kernels = tuple(Kernel(f"kernel_{index}", int(count)) for index, count in enumerate(counts))
        settings = (self.core_mhz[row], self.memory_mhz[row], self.power_limit_w[row])
        return Sweep(
            kernels=kernels, kernel_index=self.kernel[row], core_mhz=settings[0], memory_mhz=settings[1],
            power_limit_w=settings[2], time_s=time, energy_j=energy, time_se_s=stated[0], energy_se_j=stated[1],
            effective_core_mhz=absent, effective_memory_mhz=absent, calls=absent, temperature_c=absent,
            workload=self.name, device="table", origin="synthetic",
        )  # fmt: skip

    @property
    def baseline_time_s(self) -> np.ndarray:
        """True time of each kernel at auto."""
        return self.time_s[self._rows_at_auto]

    @property
    def _rows_at_auto(self) -> np.ndarray:
        auto = np.flatnonzero(np.isnan(self.core_mhz) & np.isnan(self.memory_mhz) & np.isnan(self.power_limit_w))
        return auto[np.argsort(self.kernel[auto])]

    def changes(self, costs: Costs, rows: np.ndarray) -> tuple[float, float]:
        """True change in time and energy under a plan, given the chosen row of each kernel."""
        time, energy = (
            float(costs.count @ value[rows] / (costs.count @ value[costs.start[:-1]]) - 1) for value in self.of(costs)
        )
        return time, energy

    def of(self, costs: Costs) -> tuple[np.ndarray, np.ndarray]:
        """True time and energy of one call at each row of the costs."""
        columns = ("kernel", "core_mhz", "memory_mhz", "power_limit_w")
        there, asked = (
            np.nan_to_num(np.column_stack([getattr(each, name) for name in columns])).tolist() for each in (self, costs)
        )
        place = {tuple(setting): index for index, setting in enumerate(there)}
        true = [place[tuple(setting)] for setting in asked]
        return self.time_s[true], self.energy_j[true]


def table_of(name: str, sweep: Sweep) -> Table:
    """A sweep, its repeats averaged, as a table."""
    costs = combine_repeats(sweep)
    settings = costs.core_mhz, costs.memory_mhz, costs.power_limit_w
    return Table(name, costs.kernel, *settings, costs.time_s, costs.energy_j)
