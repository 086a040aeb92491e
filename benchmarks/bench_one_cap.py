"""What `kernel natural` promises of one cap on the clock, and what such a cap does to whole simulated iterations.

    python -m benchmarks.bench_one_cap [SEED]...

A study at natural clocks of a simulated H200 plans the cap; iteration after iteration is then simulated with the power
regulator step by step, with that cap and without. Nothing of the iterations goes into the plan. The judging seeds below were
fixed before anything ran with them; 0 shaped the plans.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bench_iteration import Card
from benchmarks.verdict import Verdict, run_alone
from wastenot.devices.open import open_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.kernels.natural.iteration import iteration_of_study
from wastenot.kernels.natural.measure import natural_sweep
from wastenot.kernels.natural.whole import best_cap
from wastenot.meters.tasks import find_tasks
from wastenot.study.store import open_study
from wastenot.workloads.shape import Shape

DEVICE, SEEDS, LIMITS = "sim:h200", (101, 102, 103), (0.02, 0.05)
WORKLOADS = (
    ("gpt3-xl", None),
    ("llama-8b", Shape("training", 4, attention="flash")),
    ("llama-8b", Shape("prefill", 4)),
    ("llama-8b", Shape("decode", 64)),
)
HELD = 0.83
"""Of the cases: of 24 with true intervals, 20 or more are within in 99 of 100 judgements."""


def main(verdict: Verdict, *seeds: int) -> None:
    """Each workload and limit for each seed."""
    held: list[np.ndarray] = []
    late: list[float] = []
    for seed in seeds or SEEDS:
        for name, shape in WORKLOADS:
            with tempfile.TemporaryDirectory() as folder:
                of_seed = _cases(seed, name, shape, Path(folder))
            held += [each for each, _ in of_seed]
            late += [each for _, each in of_seed]
    time, energy = np.mean(held, axis=0)
    verdict.at_least("energy within its 95 % interval", float(energy), HELD)
    verdict.at_least("time within its 95 % interval", float(time), HELD)
    verdict.at_most("slowdown beyond the limit", max(late), 0.0)


def _cases(seed: int, name: str, shape: Shape | None, folder: Path) -> list[tuple[np.ndarray, float]]:
    """For each limit, whether time and energy are within their intervals, and the slowdown beyond the limit."""
    tasks = find_tasks(name, DEVICE, shape)
    device = open_device(DEVICE, seed=seed)
    assert isinstance(device, SimulatedDevice)
    study = open_study(folder / "study.db", create=True)
    natural_sweep(device, tasks, study)
    sweep, predicted = iteration_of_study(study)
    kernels = tuple(task.steps[0][0] for task in tasks.tasks)
    card = Card(DEVICE, kernels, seed, float(np.nanmean(sweep.temperature_c)))
    before, found = card.run(), []
    for limit in LIMITS:
        cap = best_cap(predicted.whole, limit)
        if cap is None:
            print(f"  {seed} {tasks.name}, {limit:.0%}: no cap")
            continue
        ceiling = np.full(len(kernels), int(np.abs(card.costs.core_mhz - cap.core_mhz).argmin()))
        after = card.run(ceiling)
        true = np.array([after.mean_s / before.mean_s - 1.0, after.mean_j / before.mean_j - 1.0])
        low, high = np.percentile(cap.drawn, (2.5, 97.5), axis=0)
        print(
            f"  {seed} {tasks.name}, {limit:.0%}: {predicted.core_mhz.value:.0f} (simulated {before.core_mhz.mean():.0f}) "
            f"MHz, cap {cap.core_mhz:.0f}: energy {low[1]:+.2%} to {high[1]:+.2%}, simulated {true[1]:+.2%}; "
            f"time {low[0]:+.2%} to {high[0]:+.2%}, simulated {true[0]:+.2%}",
            flush=True,
        )
        found.append(((low <= true) & (true <= high), float(true[0]) - limit))
    return found


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:]))
