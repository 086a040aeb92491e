"""GPUs of one DDP or FSDP node that wait for the slowest: what lower clocks of those that wait save, and the time they cost.

Simulated: eight H200s train GPT-3 small by a plan of one setting. At a clock each takes up to 5 % more or less time than the
plan says, its leakage and its power without work differ by 30 % and 5 %, and all wait for each other at each all-reduce
(FSDP: at each layer, of which one may be gathered ahead). Every job runs twice, with the same noise: as `apply` runs it, and
with the plan's clocks on all GPUs. What is compared is the same iterations at the plan's clocks of both, learning included.

Seeds below 100 shaped the method; those here were drawn before it was judged.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verdict import Verdict, run_alone
from testbed.changed_jobs import Change, ChangedCourse
from testbed.scheduled_jobs import SUBJECT, programme
from wastenot.control import one_setting
from wastenot.control.controller import Controller
from wastenot.control.estimate import log_mean
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.simulated_job import Programme, run_job
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.course import Course, Spread
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.preset import find_preset
from wastenot.planning.schedule import Schedule
from wastenot.planning.switching import switch_time

SEEDS = range(200, 220)
FEWER = range(220, 232)  # of the other jobs
GPUS, ITERATIONS = 8, 160
SPREAD, LEAKAGE, BASE = 0.05, 0.3, 0.05
NOISE, NOISY = 0.003, 0.02
HOTTER, HEATS_AT = 1.04, 80
SETTINGS = tuple(Setting(core_mhz=clock) for clock in (1500.0, 1605.0, 1755.0))
ALLOWED = 0.005  # slowdown beyond the plan's
WORKERS = 4
JOBS = ("DDP", "a GPU heats up midway", "a GPU of 2 % noise", "FSDP")


@dataclass(frozen=True, slots=True)
class Compared:
    """A job with lowered clocks against the plan's on all GPUs: logarithms of the ratios of energy and time."""

    energy: float
    time: float


def main(verdict: Verdict, seeds: int = len(SEEDS)) -> None:
    for job in JOBS:
        drawn = SEEDS[:seeds] if job == "DDP" else FEWER[:seeds]
        with ProcessPoolExecutor(WORKERS) as pool:
            found = []
            for seed, each in zip(drawn, pool.map(partial(compared, job), drawn), strict=True):
                found.append(each)
                print(f"  draw {seed}: energy {math.expm1(each.energy):+.2%}, time {math.expm1(each.time):+.3%}", flush=True)
        energy, time = log_mean([each.energy for each in found]), log_mean([each.time for each in found])
        assert energy is not None and time is not None
        worst = max(each.time for each in found)
        print(
            f"{job}, {len(found)} draws: energy {math.expm1(energy.mean):+.2%} ± {energy.half:.2%}, time "
            f"{math.expm1(time.mean):+.3%} ± {time.half:.3%}"
        )
        verdict.at_least(f"{job}: energy saved, lower end of the interval, in %", -100.0 * (energy.mean + energy.half), 0.5)
        verdict.at_most(f"{job}: time, upper end of the interval, in %", 100.0 * (time.mean + time.half), 0.1)
        verdict.at_most(f"{job}: time of the worst draw, in %", 100.0 * worst, 0.3)


def compared(job: str, seed: int) -> Compared:
    """A job with and without lowered clocks."""
    cards, iteration = _Cards(job, seed), programme()
    lowered, plain = (cards.run(iteration, lowers=lowers) for lowers in (True, False))
    both = lowered.keys() & plain.keys()
    energy, time = (math.log(sum(lowered[k][n] for k in both) / sum(plain[k][n] for k in both)) for n in (0, 1))
    return Compared(energy, time)


class _Cards:
    """Eight cards and what they run."""

    def __init__(self, job: str, seed: int) -> None:
        rng = np.random.default_rng((914, seed))
        self._seed, self._fsdp = seed, job == "FSDP"
        self._slower = rng.uniform(1.0 - SPREAD, 1.0 + SPREAD, GPUS).tolist()
        self._leakage = np.exp(LEAKAGE * rng.standard_normal(GPUS)).tolist()
        self._base = np.exp(BASE * rng.standard_normal(GPUS)).tolist()
        odd = int(rng.integers(GPUS))
        self._noise = [NOISY if gpu == odd and job == JOBS[2] else NOISE for gpu in range(GPUS)]
        self._hot = odd if job == JOBS[1] else None

    def run(self, iteration: Programme, *, lowers: bool) -> dict[int, tuple[float, float]]:
        """Energy of all GPUs and time, of each iteration at the plan's clocks."""
        gpus = [self._device(gpu) for gpu in range(GPUS)]
        driven = _Followed(_plan(iteration), gpus, SUBJECT, seed=self._seed)
        if not lowers:
            driven.lower_none()
        layers = {name: 1 for name, _ in iteration.markers if ":" in name}
        meets = layers | {ITERATION: 0} if self._fsdp else None
        _, jobs = run_job(driven, iteration, ITERATIONS, seed=self._seed, course=self._course, meets=meets)
        ran = list(zip(*(job.ran[:ITERATIONS] for job in jobs), strict=False))
        return {
            each: (sum(gpu.energy_j for gpu in ran[each]), ran[each][0].time_s) for each in driven.at_plan if each < len(ran)
        }

    def _device(self, gpu: int) -> SimulatedDevice:
        card = find_preset("h200")
        stated = card.parameters
        drawn = replace(
            stated,
            leakage_w=stated.leakage_w * self._leakage[gpu],
            base_w=tuple(each * self._base[gpu] for each in stated.base_w),
        )
        return simulated_device(card.model_copy(update={"parameters": drawn}), "sim:h200", seed=GPUS * self._seed + gpu)

    def _course(self, *arguments: Any, seed: tuple[int, int], spread: Spread, **named: Any) -> Course:
        gpu = seed[1]
        changes = [Change(work=self._slower[gpu])]
        if gpu == self._hot:
            changes.append(Change(HEATS_AT, work=HOTTER * self._slower[gpu]))
        noise = Spread(self._noise[gpu], self._noise[gpu])
        return ChangedCourse(*arguments, seed=seed, spread=noise, changes=changes, **named)


class _Followed(Controller):
    """Notes which iterations run at the plan's clocks; sensors are read for its status only, and slow to simulate."""

    sensors_each_s = 5.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.at_plan: list[int] = []

    def lower_none(self) -> None:
        """Keep the plan's clocks on all GPUs."""
        self._slack = None

    def mark(self, marker: Marker) -> None:
        """Take note, as the controller does."""
        super().mark(marker)
        if marker.gpu == 0 and marker.name == ITERATION and self._state == "running" and self._at_plan:
            self.at_plan.append(marker.iteration)


def _plan(iteration: Programme) -> Schedule:
    """A plan of one setting and two faster ones, for a card as its preset says."""
    physics = simulated_device(find_preset("h200"), "sim:h200").engine.physics
    course = Course(physics, iteration.tasks, iteration.order, [0])
    warm_c = find_preset("h200").thermal.reference_c

    def used(setting: Setting) -> tuple[float, float]:
        until_s, until_j = course.until(setting, warm_c)
        return until_s[-1], until_j[-1]

    auto_s, auto_j = used(AUTO)
    changes = [
        one_setting.Change(each, math.log(used(each)[0] / auto_s), math.log(used(each)[1] / auto_j)) for each in SETTINGS
    ]
    allowed = math.expm1(changes[0].time) + ALLOWED
    return one_setting.one_setting(switch_time("sim:h200"), allowed, changes, auto_s, auto_j)


if __name__ == "__main__":
    run_alone(main)
