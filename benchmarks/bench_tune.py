"""Tuning running jobs on simulated GPUs, beside the rule by which Zeus's power limit optimiser chooses.

Whether the setting that is held keeps the slowdown, its energy against the best of the same settings, both by the exact
physics, and how many iterations it takes. Zeus's rule: power limits from the highest down in steps of 25 W, each for 10
iterations to warm up and 40 that are measured by the energy counter; then the lowest limit that was not slower than allowed
against the highest one, or the one of least cost η·energy + (1 − η)·highest limit·time.

What shaped the search: GPT-3 XL and small training, Llama 8B serving, noise by seeds below 100. The workloads and seeds here
were looked at only afterwards.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.control.candidates import Ladder
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
STEP_W, WARM_UP, MEASURED, ETA = 25.0, 10, 40, 0.5

Truth = dict[Setting, tuple[float, float]]


@dataclass
class Found:
    """What became of searches: changes of what was held, the best there was, and what the search itself took and cost."""

    slowdown: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    saved: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    meanwhile: list[float] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)

    def add(
        self, held: tuple[float, float], best: float, allowed: float, iterations: int, seconds: float, meanwhile: float
    ) -> None:
        """Add one search: changes of time and energy at what was held, the best there was, and what it took."""
        self.slowdown.append(held[0])
        self.saved.append(-held[1])
        self.behind.append(held[1] - best)
        self.iterations.append(iterations)
        self.seconds.append(seconds)
        self.meanwhile.append(meanwhile)
        self.kept.append(held[0] <= allowed + TOLERANCE)

    def merge(self, other: Found) -> None:
        """Add those of another."""
        for name in ("slowdown", "behind", "saved", "iterations", "seconds", "meanwhile", "kept"):
            getattr(self, name).extend(getattr(other, name))

    def text(self) -> str:
        """All of it in one line."""
        return (
            f"kept {np.mean(self.kept):6.1%} of {len(self.kept):3}, saved {np.mean(self.saved):6.2%}, behind the best by "
            f"{100 * np.mean(self.behind):5.2f} points (90 %: {100 * np.quantile(self.behind, 0.9):5.2f}), "
            f"{np.median(self.iterations):6.0f} iterations in {np.median(self.seconds) / 60:4.1f} min, "
            f"{np.mean(self.meanwhile):+6.2%} time meanwhile"
        )


def main(verdict: Verdict, seeds: int = SEEDS) -> None:
    both, limits, zeus, eta = Found(), Found(), Found(), Found()
    by_slowdown = {allowed: Found() for allowed in SLOWDOWNS}
    zeus_by = {allowed: Found() for allowed in SLOWDOWNS}
    for preset in PRESETS:
        for label in WORKLOADS:
            here = {name: Found() for name in ("tune", "tune, these limits", "Zeus's rule", "Zeus's rule, η 0.5")}
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                job = _Job(preset, _programme(label), seed)
                rule = job.zeus()
                for allowed in SLOWDOWNS:
                    tuned, few = job.tuned(allowed, None), job.tuned(allowed, rule.limits)
                    chosen = rule.found(allowed)
                    for found, everywhere, whole in (
                        (tuned, both, "tune"),
                        (few, limits, "tune, these limits"),
                        (chosen, zeus, "Zeus's rule"),
                    ):
                        here[whole].merge(found)
                        everywhere.merge(found)
                    by_slowdown[allowed].merge(tuned)
                    zeus_by[allowed].merge(chosen)
                here["Zeus's rule, η 0.5"].merge(rule.found(None))
                eta.merge(rule.found(None))
            print(f"sim:{preset}, {label}")
            for name, found in here.items():
                print(f"  {name:20} {found.text()}", flush=True)
    print(f"all cards and workloads, slowdowns of {', '.join(f'{one:.0%}' for one in SLOWDOWNS)}, {seeds} seeds each")
    for name, found in (
        ("tune", both), ("tune, Zeus's limits", limits), ("Zeus's rule", zeus), ("Zeus's rule, η 0.5", eta),
    ):  # fmt: skip
        print(f"  {name:20} {found.text()}")
    for allowed in SLOWDOWNS:
        print(f"  tune, {allowed:.0%}             {by_slowdown[allowed].text()}")
        print(f"  Zeus's rule, {allowed:.0%}      {zeus_by[allowed].text()}")
    verdict.at_least("tune: slowdown kept, fraction of seeds", float(np.mean(both.kept)), 0.95)
    verdict.at_least("tune, Zeus's limits: slowdown kept", float(np.mean(limits.kept)), 0.95)
    for allowed in SLOWDOWNS:
        verdict.at_most(
            f"tune, {allowed:.0%}: energy behind the best of its settings, mean, points",
            100 * float(np.mean(by_slowdown[allowed].behind)),
            0.5,
        )


@cache
def _programme(label: str) -> Programme:
    options = dict(WORKLOADS[label])
    tasks = tasks_of(build_workload(str(options.pop("name")), **options))  # type: ignore[arg-type]
    return programme_of(tasks.kernels, tasks.tasks)


class _Job:
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

    def tuned(self, allowed: float, limits: Sequence[float] | None) -> Found:
        device = self._device()
        ladders = None if limits is None else [Ladder("limit", tuple(Setting(power_limit_w=watts) for watts in limits))]
        subject = Subject("tune", "", "job", "simulated")
        tuner = Tuner([device], subject, allowed, ladders=ladders, seed=self._seed, budget_s=BUDGET_S)
        _, (course,) = run_job(tuner, self._programme, 10**9, seed=self._seed, watch=lambda tuner: tuner.done)
        winner = tuner.search.winner
        settings = [setting for ladder in tuner.search.ladders for setting in ladder.settings]
        truth = self.truth(settings, device.engine.temperature_c)
        found = Found()
        held = truth[AUTO if winner is None else winner.setting]
        found.add(held, _best(truth, allowed), allowed, tuner.iterations, device.engine.now_s, _meanwhile(course))
        return found

    def zeus(self) -> _Chosen:
        device = self._device()
        rule = PowerLimitRule(device)
        _, (course,) = run_job(rule, self._programme, 10**9, seed=self._seed, watch=lambda rule: rule.done)
        truth = self.truth([Setting(power_limit_w=watts) for watts in rule.limits], device.engine.temperature_c)
        return _Chosen(rule, truth, device.engine.now_s, _meanwhile(course))


def _best(truth: Truth, allowed: float) -> float:
    return min(energy for time, energy in truth.values() if time <= allowed + TOLERANCE)


def _meanwhile(course: Course) -> float:
    return math.fsum(one.time_s for one in course.ran) / math.fsum(one.auto_time_s for one in course.ran) - 1.0


class _Chosen:
    """What Zeus's rule chooses from what it measured."""

    def __init__(self, rule: PowerLimitRule, truth: Truth, seconds: float, meanwhile: float) -> None:
        self.limits = rule.limits
        self._rule, self._truth, self._seconds, self._meanwhile = rule, truth, seconds, meanwhile

    def found(self, allowed: float | None) -> Found:
        """The lowest limit that is not slower than allowed, or that of least cost."""
        measured = self._rule.measured
        highest_w = max(measured)
        if allowed is None:
            chosen = min(measured, key=lambda watts: ETA * measured[watts][1] + (1 - ETA) * highest_w * measured[watts][0])
        else:
            longest_s = (1 + allowed) * measured[highest_w][0]
            chosen = min(watts for watts, (time_s, _) in measured.items() if time_s <= longest_s)
        found = Found()
        within = 1.0 if allowed is None else allowed
        held = self._truth[Setting(power_limit_w=chosen)]
        iterations = len(self._rule.limits) * (WARM_UP + MEASURED)
        found.add(held, _best(self._truth, within), within, iterations, self._seconds, self._meanwhile)
        return found


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
    outcome = Verdict()
    main(outcome, int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)
    outcome.end()
