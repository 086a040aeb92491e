"""Noisy sweeps of made-up GPUs whose truth is known, to check statements about noise against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed import synthetic_gpu as synthetic
from wastenot.planning.costs import Costs
from wastenot.study.sweep import Kernel, Sweep

NAN = float("nan")
ROWS = [(pass_name, count, *row) for pass_name, rows, count in synthetic.PASSES for row in rows]


@dataclass(frozen=True)
class Truth:
    """True time and energy of one call, shape (kernels, settings), auto first.

    The model of :mod:`testbed.synthetic_gpu` with random ratios and activities of the kernels, times and powers that
    deviate from it smoothly by 1 %, and default clocks slower by as much than the same clocks locked: the driver is not
    always right.
    """

    kernels: tuple[Kernel, ...]
    core_mhz: np.ndarray
    memory_mhz: np.ndarray
    effective_core_mhz: np.ndarray
    time_s: np.ndarray
    energy_j: np.ndarray

    @classmethod
    def drawn(cls, rng: np.random.Generator, departure: float = 0.01, kernels: int | None = None) -> Truth:
        """A random GPU, whose kernels are those of the synthetic sweep or some of them."""
        rows = ROWS[:: 1 if kernels is None else len(ROWS) // kernels]
        core, memory = (np.array([[row[column]] for row in rows]) * 1e-3 for column in (3, 4))
        core, memory = (part * np.exp(0.5 * rng.standard_normal(part.shape)) for part in (core, memory))
        activity = rng.uniform(0.3, 1.0, core.shape)
        pairs = np.array([(c, m) for m in synthetic.MEMORY_MHZ for c in synthetic.CORE_MHZ])
        ceiling = synthetic.auto_core_mhz(core, memory, activity)
        highest = np.array([[synthetic.CORE_MHZ[-1], synthetic.MEMORY_MHZ[-1]]])
        clocks = np.concatenate([highest, pairs])
        effective = np.minimum(clocks[:, 0], ceiling)
        truth = synthetic.costs(core, memory, activity, effective, np.broadcast_to(clocks[:, 1], effective.shape))
        logs = np.log(clocks) / (0.5, 1.0)
        apart = ((logs[:, None] - logs[None]) ** 2).sum(axis=2)
        root = departure * np.linalg.cholesky(np.exp(-0.5 * apart) + 1e-9 * np.eye(len(clocks)))
        time = truth.time_s * np.exp(rng.standard_normal(effective.shape) @ root.T)
        time[:, 0] *= np.exp(departure * np.abs(rng.standard_normal(len(rows))))
        power = truth.power_w * np.exp(rng.standard_normal(effective.shape) @ root.T)
        requested = np.concatenate([[[NAN, NAN]], pairs])
        return cls(
            tuple(Kernel(row[2], row[1], row[0]) for row in rows),
            requested[:, 0], requested[:, 1], effective, time, time * power,
        )  # fmt: skip

    def sweep(
        self,
        rng: np.random.Generator,
        time_noise: float,
        power_noise: float,
        repeats: int = 1,
        effective: bool = True,
        stated: bool = False,
    ) -> Sweep:
        """Readings with relative noise in time and power, and their standard errors if they are to be stated."""
        kernels, settings = self.time_s.shape
        place = np.repeat(np.arange(settings), repeats)
        time = self.time_s[:, place] * (1 + time_noise * rng.standard_normal((kernels, len(place))))
        power = (self.energy_j / self.time_s)[:, place] * (1 + power_noise * rng.standard_normal((kernels, len(place))))
        absent = np.full(time.size, NAN)
        errors = [absent, absent]
        if stated:
            errors = [(time_noise * time).ravel(), (np.hypot(time_noise, power_noise) * time * power).ravel()]
        return Sweep(
            self.kernels, np.repeat(np.arange(kernels), len(place)),
            np.tile(self.core_mhz[place], kernels), np.tile(self.memory_mhz[place], kernels), absent,
            time.ravel(), (time * power).ravel(), *errors,
            self.effective_core_mhz[:, place].ravel() if effective else absent, absent, absent, absent,
            workload="noisy", device="made up", origin="synthetic",
        )  # fmt: skip

    def changes(self, costs: Costs, rows: np.ndarray) -> tuple[float, float]:
        """True change in time and energy under a plan, given the chosen row of each kernel."""
        clocks = np.nan_to_num(np.column_stack([self.core_mhz, self.memory_mhz])).tolist()
        chosen = np.nan_to_num(np.column_stack([costs.core_mhz, costs.memory_mhz])[rows]).tolist()
        column = [clocks.index(pair) for pair in chosen]
        kernel = np.arange(len(self.kernels))
        return tuple(
            float(costs.count @ true[kernel, column] / (costs.count @ true[:, 0]) - 1)
            for true in (self.time_s, self.energy_j)
        )
