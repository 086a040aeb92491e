"""Large studies, on which ``bench_commands`` times plans, and whether a sample of their kernels is enough to learn from.

    python -m benchmarks.bench_plan make FOLDER [CASE]     # keep the studies, to time or profile commands on them

Above ``LARGEST_FIT`` kernels (256) hyperparameters are learnt from a random sample. On 600 kernels, where both work, the
energy expected from the sample was within 0.07 percentage points (1.1 standard errors) of that from all kernels in each of
four studies with unknown clocks, and 0.02 points (0.4) with recorded ones; intervals were 3 % narrower to 7 % wider.

Kernels follow the synthetic model, each with its own ratios and activities, at 100 clock pairs and the default clocks, with
one reading per setting and standard errors. Clocks in effect are not recorded, or are those that a power limit allows, or
are sampled, so that no two kernels have the same.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Literal
from unittest import mock

import numpy as np

from benchmarks.verdict import Verdict
from testbed import synthetic_gpu as synthetic
from wastenot.planning.noise import designs
from wastenot.planning.noise.expectation import LEVEL, expect
from wastenot.planning.noise.shrinkage import fit_costs
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study
from wastenot.study.sweep import Kernel, Sweep

CORE_MHZ = np.linspace(300.0, 2100.0, 25)
TIME_NOISE, POWER_NOISE, DEPARTURE = 0.003, 0.005, 0.01  # relative
NAN = float("nan")
SEEDS = (1, 2, 3, 4)

Effective = Literal["unknown", "held", "sampled"]


@dataclass(frozen=True)
class Case:
    """A study, and the CPU seconds that a whole command on it may take."""

    name: str
    kernels: int
    effective: Effective
    cpu_s: float


CASES = (
    Case("1,000 kernels", 1_000, "unknown", 2.5),
    Case("1,000 kernels, clocks held by a power limit", 1_000, "held", 2.5),
    Case("10,000 kernels", 10_000, "unknown", 20.0),
    Case("10,000 kernels, clocks held by a power limit", 10_000, "held", 20.0),
    Case("10,000 kernels, clocks as sampled", 10_000, "sampled", 20.0),
)


def made_up_sweep(kernels: int, effective: Effective, seed: int = 2026) -> Sweep:
    """One reading with standard errors of each kernel at the default clocks and at 100 clock pairs."""
    rng = np.random.default_rng((seed, kernels))
    scale = 10.0 ** rng.uniform(-4.5, -2.0, (kernels, 1))
    core, memory = (scale * rng.uniform(0.1, 1.0, (kernels, 1)) for _ in range(2))
    activity = rng.uniform(0.3, 1.0, core.shape)
    pairs = np.array([(c, m) for m in synthetic.MEMORY_MHZ for c in CORE_MHZ])
    clocks = np.concatenate([[[CORE_MHZ[-1], synthetic.MEMORY_MHZ[-1]]], pairs])
    in_effect = np.minimum(clocks[:, 0], synthetic.auto_core_mhz(core, memory, activity))
    true = synthetic.costs(core, memory, activity, in_effect, np.broadcast_to(clocks[:, 1], in_effect.shape))
    logs = np.log(clocks) / (0.5, 1.0)
    apart = ((logs[:, None] - logs[None]) ** 2).sum(axis=2)
    root = DEPARTURE * np.linalg.cholesky(np.exp(-0.5 * apart) + 1e-9 * np.eye(len(clocks)))

    def measured(value: np.ndarray, noise: float) -> np.ndarray:
        smooth = value * np.exp(rng.standard_normal(value.shape) @ root.T)
        return smooth * (1 + noise * rng.standard_normal(value.shape))

    time_s, power_w = measured(true.time_s, TIME_NOISE), measured(true.power_w, POWER_NOISE)
    if effective == "sampled":
        in_effect = in_effect + rng.uniform(-1.0, 1.0, in_effect.shape)
    rows = time_s.size
    absent, requested = np.full(rows, NAN), np.concatenate([[[NAN, NAN]], pairs])
    counts = rng.choice([1, 2, 12, 24, 48], kernels).tolist()
    return Sweep(
        tuple(Kernel(f"kernel_{index}", count, "forward") for index, count in enumerate(counts)),
        np.repeat(np.arange(kernels), len(clocks)),
        *(np.tile(column, kernels) for column in requested.T), absent,
        time_s.ravel(), (time_s * power_w).ravel(),
        TIME_NOISE * time_s.ravel(), float(np.hypot(TIME_NOISE, POWER_NOISE)) * (time_s * power_w).ravel(),
        absent if effective == "unknown" else in_effect.ravel(), absent, absent, absent,
        workload="large", device="made up", origin="synthetic",
    )  # fmt: skip


def store(case: Case, folder: Path) -> Path:
    """The study of a case, made if it does not exist yet."""
    path = folder / f"{case.kernels}-{case.effective}.db"
    if not path.exists():
        open_study(path, create=True).add(made_up_sweep(case.kernels, case.effective), source="benchmarks/bench_plan.py")
    return path


def sampling_error(effective: Effective, seed: int, kernels: int = 600) -> tuple[float, float]:
    """Shift of the energy expected when a sample is learnt from, in standard errors, and the ratio of interval widths."""
    planner = Planner(made_up_sweep(kernels, effective, seed))
    rows = planner.measured.rows(planner.choose(Objective("waste", 0.0, as_measured=True)).options)
    change, width = [], []
    for largest in (designs.LARGEST_FIT, kernels):
        with mock.patch.object(designs, "LARGEST_FIT", largest):
            model = fit_costs(planner.sweep, planner.costs)
        assert model is not None
        expected = expect(planner.costs, model.posteriors(rows), rows, 0.0)
        change.append(expected.energy_change)
        width.append(float(np.ptp(expected.energy_change_interval)))
    error = width[1] / (2.0 * NormalDist().inv_cdf(0.5 + 0.5 * LEVEL))
    return (change[0] - change[1]) / error, width[0] / width[1]


def main(verdict: Verdict) -> None:
    kinds: tuple[Effective, ...] = ("unknown", "held")
    for effective in kinds:
        errors, widths = np.array([sampling_error(effective, seed) for seed in SEEDS]).T
        label = f"hyperparameters from a sample, clocks {effective}"
        verdict.at_most(f"{label}: standard errors that the energy expected moves", float(np.abs(errors).max()), 2.0)
        verdict.at_most(f"{label}: change of its interval's width", float(np.abs(widths - 1.0).max()), 0.2)


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    for each in CASES:
        if each.name in sys.argv[3:] or not sys.argv[3:]:
            print(store(each, Path(sys.argv[2])))
