"""Forecasts of caps within the clocks seen, from whole natural sweeps of simulated cards, compared with the truth.

Each card is drawn anew (``drawn_cards``), with kernels of its own: a random group of those of GPT-3 XL training or Llama
8B prefill. It is swept at natural clocks with nothing set, through its regulator and its power sensor, and the forecast is
made from that study alone. The truth is the best plan of caps by the card's own model, over the caps that the forecast may
choose from. Seeds from ``JUDGES`` on judge, and tuned nothing. Savings of a card at several slowdowns hold or miss together.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.drawn_cards import JUDGES, natural_card
from benchmarks.verdict import Verdict, run_alone
from testbed.known_truth import contains
from testbed.natural_studies import read_curves
from wastenot.devices.open import open_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.preset import find_preset
from wastenot.devices.timeline import Phase, Subject
from wastenot.kernels.forecast.forecast import best_options, forecast
from wastenot.kernels.forecast.natural import CAP_STEP_MHZ
from wastenot.kernels.forecast.result import Quantiles
from wastenot.kernels.natural.measure import natural_sweep
from wastenot.meters.tasks import WorkloadTasks, find_tasks
from wastenot.study.store import Study, open_study
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.shape import Shape

CARDS, DRAWS, KERNELS = 44, 120, 14
ALONE_S = 25.0  # that a kernel runs by itself for the truth
WIDEST, GOAL = 0.03, 0.93
_SAME_MHZ = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """A forecast within the range seen, beside the truth."""

    card: int
    bound: float
    truth: float
    forecast: Quantiles
    before: Quantiles

    @property
    def holds(self) -> bool:
        """Whether the 95 % interval contains the truth."""
        return contains(self.forecast.central_95, self.truth)

    @property
    def width(self) -> float:
        """Of the 95 % interval."""
        return self.forecast.central_95[1] - self.forecast.central_95[0]


def main(verdict: Verdict, cards: int = CARDS, first: int = JUDGES) -> None:
    found: list[Case] = []
    began = time.perf_counter()
    for seed in range(first, first + cards):
        with tempfile.TemporaryDirectory() as folder:
            found += card_cases(seed, Path(folder))
        latest = [case for case in found if case.card == seed]
        print(f"  card {seed}: " + "; ".join(
            f"{case.bound:.0%}: true {case.truth:+.2%}, {case.forecast.central_95[0]:+.2%} to "
            f"{case.forecast.central_95[1]:+.2%}{'' if case.holds else ' MISSED'}" for case in latest
        ) + f" ({time.perf_counter() - began:.0f} s)", flush=True)  # fmt: skip
    by_bound: dict[float, list[Case]] = defaultdict(list)
    for case in found:
        by_bound[case.bound].append(case)
    for bound, cases in by_bound.items():
        widths = np.array([case.width for case in cases])
        before = np.array([np.ptp(case.before.central_95) for case in cases])
        error = np.array([case.forecast.median - case.truth for case in cases])
        print(
            f"  slowdown {bound:.0%}: {sum(case.holds for case in cases)} of {len(cases)} hold; width median "
            f"{np.median(widths):.2%}, 95 % {np.quantile(widths, 0.95):.2%}; before {np.median(before):.2%}; median minus "
            f"truth {error.mean():+.2%} ± {error.std():.2%}; truth {np.mean([case.truth for case in cases]):+.2%}"
        )
        verdict.at_least(
            f"slowdown {bound:.0%}: truth within the 95 % interval", np.mean([case.holds for case in cases]), GOAL
        )
        verdict.at_most(
            f"slowdown {bound:.0%}: width of the 95 % interval, 95 % of cards", np.quantile(widths, 0.95), WIDEST
        )


def card_cases(seed: int, folder: Path) -> list[Case]:
    """Sweep a drawn card at natural clocks and forecast from that."""
    rng = np.random.default_rng((11, seed))
    workload, shape = [("gpt3-xl", None), ("llama-8b", Shape("prefill", 4))][seed % 2]
    tasks = some_of(find_tasks(workload, "sim:h200", shape), rng)
    name = natural_card(seed, [task.steps[0][0] for task in tasks.tasks], folder)
    device = open_device(name, seed=seed)
    assert isinstance(device, SimulatedDevice)
    study = open_study(folder / "study.db", create=True)
    natural_sweep(device, tasks, study)
    made = forecast(study, gpu=find_preset("h200"), max_slowdown=0.02, core_only=True, draws=DRAWS, seed=seed)
    assert made.natural is not None
    other = open_device(name, seed=seed + 1)
    assert isinstance(other, SimulatedDevice)
    truth = best_true(other, tasks, study, [row.max_slowdown for row in made.natural.within_range])
    return [
        Case(seed, row.max_slowdown, change, row.energy_change, made.natural.without)
        for row, change in zip(made.natural.within_range, truth, strict=True)
    ]


def some_of(tasks: WorkloadTasks, rng: np.random.Generator) -> WorkloadTasks:
    """A random group of a workload's kernels."""
    chosen = np.sort(rng.choice(len(tasks.tasks), min(KERNELS, len(tasks.tasks)), replace=False))
    return replace(
        tasks, name=f"{tasks.name}-part", run=None,
        kernels=tuple(tasks.kernels[index] for index in chosen), tasks=tuple(tasks.tasks[index] for index in chosen),
    )  # fmt: skip


def true_auto(device: SimulatedDevice, kernel: KernelSpec) -> tuple[float, float, float]:
    """Clock, time and power of a kernel by itself: by the card's own model at the clocks that its regulator settles at.

    A regulator does not hold a kernel at the power limit to the watt, so the model's point at the limit is not the card's.
    """
    with device.timelines().prepare((Subject(kernel),)) as prepared:
        timeline = prepared.run((Phase(0, ALONE_S),))
    settled = timeline.begin_s - timeline.begin_s[0] > 0.2 * ALONE_S
    clocks = timeline.core_mhz[settled]
    grid = np.linspace(clocks.min(), clocks.max(), 40)
    points = [device.truth_at(kernel, float(mhz)) for mhz in grid]
    call_s = np.interp(clocks, grid, [point.time_s for point in points])
    power_w = np.interp(clocks, grid, [point.power_w for point in points])
    seconds = timeline.calls[settled] * call_s
    mean_s = float(seconds.sum() / timeline.calls[settled].sum())
    return float(np.average(clocks, weights=seconds)), mean_s, float(np.average(power_w, weights=seconds))


def best_true(device: SimulatedDevice, tasks: WorkloadTasks, study: Study, bounds: Sequence[float]) -> list[float]:
    """Energy changes of the best plans of caps by the card's own model, within the clocks that kernels were seen at."""
    curves = read_curves(study)
    low, high = min(each.core_mhz[0] for each in curves), max(each.auto.core_mhz for each in curves)
    caps = CAP_STEP_MHZ * np.arange(np.ceil(low / CAP_STEP_MHZ), np.floor(high / CAP_STEP_MHZ) + 1)
    time, energy = (np.empty((len(tasks.tasks), 1 + len(caps))) for _ in range(2))
    for index, task in enumerate(tasks.tasks):
        kernel = task.steps[0][0]
        auto_mhz, auto_s, auto_w = true_auto(device, kernel)
        time[index], energy[index] = auto_s, auto_s * auto_w
        for option, cap in enumerate(caps.tolist(), 1):
            if curves[task.name].core_mhz[0] - _SAME_MHZ <= cap < auto_mhz - _SAME_MHZ:
                point = device.truth_at(kernel, cap)
                time[index, option], energy[index, option] = point.time_s, point.time_s * point.power_w
    counts = [kernel.count for kernel in tasks.kernels]
    changes = []
    for bound in bounds:
        option = best_options(time, energy, counts, bound)
        rows = np.arange(len(option))
        changes.append(float(np.array(counts) @ energy[rows, option] / (np.array(counts) @ energy[:, 0]) - 1.0))
    return changes


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:]))
