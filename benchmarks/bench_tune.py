"""Tuning running jobs on simulated GPUs, beside the rule by which Zeus's power limit optimiser chooses.

Whether the setting that is held keeps the slowdown, its energy against the best of the same settings, both by the exact
physics, and how many iterations it takes. Zeus's rule: power limits from the highest down in steps of 25 W, each for 10
iterations to warm up and 40 that are measured by the energy counter; then the lowest limit that was not slower than allowed
against the highest one.

What shaped the search: GPT-3 XL and small training, Llama 8B serving, noise by seeds below 100. The workloads and seeds here
were looked at only afterwards.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.verdict import Verdict, run_alone
from wastenot.control.driver import Subject
from wastenot.control.guard import TOLERANCE
from wastenot.control.marker import Marker
from wastenot.control.one_setting import one_setting
from wastenot.control.simulated_job import Programme, programme_of, run_job
from wastenot.control.status import Summary
from wastenot.control.tuner import Tuner
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.devices.simulated.course import Course
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.meters.tasks import tasks_of
from wastenot.planning.schedule import Schedule
from wastenot.planning.switching import switch_time
from wastenot.workloads.build import build_workload

PRESETS = ("rtx-3080-ti", "rtx-a4000", "v100", "h200", "mi300x")
WORKLOADS: dict[str, dict[str, object]] = {
    "gpt3-medium, batch 8": {"name": "gpt3-medium", "batch": 8},
    "llama-1b, AdamW": {"name": "llama-1b", "batch": 8, "optimizer": "adamw", "attention": "flash"},
    "llama-3b, decoding": {"name": "llama-3b", "phase": "decode", "batch": 32},
}
SLOWDOWNS = (0.0, 0.01, 0.05)
SEEDS = 6
FIRST_SEED = 100
BUDGET_S = 1200.0
STEP_W, WARM_UP, MEASURED = 25.0, 10, 40

Truth = dict[Setting, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Search:
    """What became of one search: changes of what was held, and what the search itself took and cost."""

    slowdown: float
    saved: float
    behind: float
    kept: bool
    iterations: int
    seconds: float
    meanwhile: float

    @classmethod
    def of(cls, held: tuple[float, float], truth: Truth, allowed: float, *took: float) -> Search:
        """By the changes of time and energy at what was held, and the best there was."""
        best = min(energy for time, energy in truth.values() if time <= allowed + TOLERANCE)
        return cls(held[0], -held[1], held[1] - best, held[0] <= allowed + TOLERANCE, *took)


def text(found: Sequence[Search]) -> str:
    """All of them in one line."""
    kept, saved, behind, iterations, seconds, meanwhile = (
        np.array([getattr(each, name) for each in found])
        for name in ("kept", "saved", "behind", "iterations", "seconds", "meanwhile")
    )
    return (
        f"kept {kept.mean():6.1%} of {len(found):3}, saved {saved.mean():6.2%}, behind the best by "
        f"{100 * behind.mean():5.2f} points (90 %: {100 * np.quantile(behind, 0.9):5.2f}), {np.median(iterations):6.0f} "
        f"iterations in {np.median(seconds) / 60:4.1f} min, {meanwhile.mean():+6.2%} time meanwhile"
    )


def main(verdict: Verdict, seeds: int = SEEDS) -> None:
    tune, zeus = ({allowed: list[Search]() for allowed in SLOWDOWNS} for _ in range(2))
    programmes = {label: programme(**options) for label, options in WORKLOADS.items()}
    for preset in PRESETS:
        for label in WORKLOADS:
            here = list[Search](), list[Search]()
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                job = Job(preset, programmes[label], seed)
                rule = job.zeus()
                for allowed in SLOWDOWNS:
                    for found, place, by in ((job.tuned(allowed), 0, tune), (rule.found(allowed), 1, zeus)):
                        here[place].append(found)
                        by[allowed].append(found)
            print(f"sim:{preset}, {label}\n  tune        {text(here[0])}\n  Zeus's rule {text(here[1])}", flush=True)
    print(f"all cards and workloads, {seeds} seeds each")
    for name, by in (("tune", tune), ("Zeus's rule", zeus)):
        for allowed, searches in by.items():
            print(f"  {name}, {allowed:.0%}: {text(searches)}")
        print(f"  {name}, all: {text([each for searches in by.values() for each in searches])}")
    kept = [each.kept for searches in tune.values() for each in searches]
    verdict.at_least("tune: slowdown kept, fraction of seeds", float(np.mean(kept)), 0.95)
    for allowed, searches in tune.items():
        behind = 100 * float(np.mean([each.behind for each in searches]))
        verdict.at_most(f"tune, {allowed:.0%}: energy behind the best of its settings, mean, points", behind, 0.5)


def programme(**options: object) -> Programme:
    """An iteration of a workload, by the options of :func:`build_workload`."""
    tasks = tasks_of(build_workload(str(options.pop("name")), **options))  # type: ignore[arg-type]
    return programme_of(tasks.kernels, tasks.tasks)


class Job:
    """One card with one job on it, tuned in different ways from the same beginning."""

    def __init__(self, preset: str, programme: Programme, seed: int) -> None:
        self._preset, self._programme, self._seed = preset, programme, seed

    def _device(self) -> SimulatedDevice:
        device = open_device(f"sim:{self._preset}", seed=self._seed)
        assert isinstance(device, SimulatedDevice)
        return device

    def truth(self, settings: Sequence[Setting], temperature_c: float) -> Truth:
        """Changes of time and energy of an iteration at settings, by the exact physics."""
        course = Course(self._device().engine.physics, self._programme.tasks, self._programme.order, [0])

        def used(setting: Setting) -> tuple[float, float]:
            until_s, until_j = course.until(setting, temperature_c)
            return until_s[-1], until_j[-1]

        auto_s, auto_j = used(AUTO)
        costs = {setting: used(setting) for setting in settings}
        return {AUTO: (0.0, 0.0)} | {each: (s / auto_s - 1.0, j / auto_j - 1.0) for each, (s, j) in costs.items()}

    def tuned(
        self, allowed: float, tuner_of: Callable[..., Tuner] = Tuner, course_of: Callable[..., Course] = Course
    ) -> Search:
        """What a tuner holds in the end."""
        device = self._device()
        subject = Subject("tune", "", "job", "simulated")
        tuner = tuner_of([device], subject, allowed, seed=self._seed, budget_s=BUDGET_S)
        _, (course,) = run_job(
            tuner, self._programme, 10**9, seed=self._seed, watch=lambda tuner: tuner.done, course=course_of
        )
        winner = tuner.search.winner
        settings = [setting for ladder in tuner.search.ladders for setting in ladder.settings]
        truth = self.truth(settings, device.engine.temperature_c)
        held = truth[AUTO if winner is None else winner.setting]
        return Search.of(held, truth, allowed, tuner.iterations, device.engine.now_s, _meanwhile(course))

    def zeus(self) -> _Chosen:
        """What Zeus's rule measures."""
        device = self._device()
        rule = PowerLimitRule(device)
        _, (course,) = run_job(rule, self._programme, 10**9, seed=self._seed, watch=lambda rule: rule.done)
        truth = self.truth([Setting(power_limit_w=watts) for watts in rule.limits], device.engine.temperature_c)
        return _Chosen(rule, truth, device.engine.now_s, _meanwhile(course))


def _meanwhile(course: Course) -> float:
    return math.fsum(one.time_s for one in course.ran) / math.fsum(one.auto_time_s for one in course.ran) - 1.0


class _Chosen:
    """What Zeus's rule chooses from what it measured."""

    def __init__(self, rule: PowerLimitRule, truth: Truth, seconds: float, meanwhile: float) -> None:
        self.limits = rule.limits
        self._rule, self._truth, self._seconds, self._meanwhile = rule, truth, seconds, meanwhile

    def found(self, allowed: float) -> Search:
        """The lowest limit that is not slower than allowed."""
        measured = self._rule.measured
        longest_s = (1 + allowed) * measured[max(measured)][0]
        chosen = min(watts for watts, (time_s, _) in measured.items() if time_s <= longest_s)
        held, iterations = self._truth[Setting(power_limit_w=chosen)], len(self._rule.limits) * (WARM_UP + MEASURED)
        return Search.of(held, self._truth, allowed, iterations, self._seconds, self._meanwhile)


class PowerLimitRule:
    """The profiling of Zeus's ``GlobalPowerLimitOptimizer``, on a job that says when its iterations begin."""

    def __init__(self, device: Device) -> None:
        self.gpus: tuple[Device, ...] = (device,)
        self.schedule: Schedule = one_setting(switch_time(device.identity.name), 0.0, (), 1.0, 1.0)
        bounds = device.clocks.power_limits_w()
        assert bounds is not None
        low, high = bounds
        self.limits = [high - STEP_W * step for step in range(int((high - low) / STEP_W) + 1)]
        self.measured: dict[float, tuple[float, float]] = {}
        self.done = False
        self._place, self._steps = 0, 0
        self._begin: tuple[float, float] | None = None
        self._wanted: Callable[[], None] | None = self._set

    def _set(self) -> None:
        self.gpus[0].clocks.request(Setting(power_limit_w=self.limits[self._place]))

    def mark(self, marker: Marker) -> None:
        """An iteration begins."""
        if self.done:
            return
        device, now_s = self.gpus[0], marker.reached_s
        if self._steps == WARM_UP:
            self._begin = now_s, device.sensors.energy_j() or 0.0
        if self._steps == WARM_UP + MEASURED:
            assert self._begin is not None
            begin_s, begin_j = self._begin
            used_j = (device.sensors.energy_j() or 0.0) - begin_j
            self.measured[self.limits[self._place]] = (now_s - begin_s) / MEASURED, used_j / MEASURED
            self._place, self._steps = self._place + 1, 0
            self.done = self._place == len(self.limits)
            self._wanted = None if self.done else self._set
        self._steps += 1

    def due_s(self) -> float | None:
        """At once, where a limit is to be set."""
        return None if self._wanted is None else 0.0

    def act(self, now_s: float) -> None:
        """Set it."""
        if self._wanted is not None:
            self._wanted()
            self._wanted = None

    def end(
        self,
        now_s: float | None = None,
        *,
        ended: Literal["job ended", "stopped", "refused", "failed"] = "job ended",
        exit_code: int | None = None,
    ) -> Summary:
        """Give the limit back; there is no summary to make."""
        self.gpus[0].clocks.release()
        return Summary.model_construct()


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:]))
