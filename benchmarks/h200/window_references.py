"""Windows compared with the energy counter read directly over the same time, and with Zeus."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.h200.window_loads import Load
from wastenot.meters.counter import CounterReader, CounterStep, StepFollower
from wastenot.meters.window import Meter

NORMAL_95 = 1.96


def next_step(follower: StepFollower) -> CounterStep:
    """Poll the counter until it steps."""
    reader = CounterReader(follower.device, time.perf_counter)
    while True:
        with follower.lock:
            readable, step = reader.read()
        assert readable
        if step is not None:
            return step


class Zeus:
    """Zeus' windows, if it is installed."""

    def __init__(self) -> None:
        try:
            from zeus.monitor import ZeusMonitor

            self.monitor: Any = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
        except Exception as error:
            print(f"zeus left out: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
            self.monitor = None

    def begin(self, *, sync: bool) -> None:
        """Begin a window."""
        if self.monitor is not None:
            self.monitor.begin_window("w", sync_execution=sync)

    def end(self, *, sync: bool) -> tuple[float, float] | None:
        """End the window; returns joules and seconds."""
        if self.monitor is None:
            return None
        window = self.monitor.end_window("w", sync_execution=sync)
        return float(next(iter(window.gpu_energy.values()))), float(window.time)


@dataclass(frozen=True, slots=True)
class Compared:
    """One window and its reference."""

    energy_j: float
    error_j: float
    reference_j: float
    reference_error_j: float
    zeus_relative: float | None
    lag_s: float | None
    flags: tuple[str, ...]

    @property
    def relative(self) -> float:
        """Error of the window against the reference."""
        return self.energy_j / self.reference_j - 1.0

    @property
    def held(self) -> bool:
        """Whether the two agree within their stated errors at 95 %."""
        return abs(self.energy_j - self.reference_j) <= NORMAL_95 * (self.error_j**2 + self.reference_error_j**2) ** 0.5


def idle_power_w(follower: StepFollower) -> float:
    first = next_step(follower)
    time.sleep(0.25)
    last = next_step(follower)
    return (last.energy_j - first.energy_j) / (last.moment_s - first.moment_s)


def steady(meter: Meter, zeus: Zeus, length_s: float, rng: random.Random) -> Compared:
    """A window at a random moment of a steady load: mean power between steps outside of it, times its duration."""
    follower = meter.followers[0]
    first = next_step(follower)
    time.sleep(rng.uniform(0.0, 0.15))
    zeus.begin(sync=False)
    with meter as window:
        time.sleep(length_s)
    reading = zeus.end(sync=False)
    time.sleep(rng.uniform(0.0, 0.05))
    last = next_step(follower)
    result = window.result()
    between_s = last.moment_s - first.moment_s
    power = (last.energy_j - first.energy_j) / between_s
    # Between steps and window the power is this one, apart from the load's own variation, taken as 5 %.
    apart_s = between_s - result.time_s
    error = power * ((first.width_s**2 + last.width_s**2) / 12.0 + (0.05 * apart_s) ** 2) ** 0.5
    return _compared(
        result, power * result.time_s, error, None if reading is None else reading[0] / (power * reading[1]) - 1.0
    )


def aligned(meter: Meter, zeus: Zeus, length_s: float, _: random.Random) -> Compared:
    """A window that begins and ends with counter steps, whatever the load does inside."""
    follower = meter.followers[0]
    first = next_step(follower)
    zeus.begin(sync=False)
    window = meter.begin()
    ends = first.moment_s + length_s - 0.05
    time.sleep(max(ends - time.perf_counter(), 0.0))
    last = next_step(follower)
    window.end()
    reading = zeus.end(sync=False)
    assert window.end_s is not None
    result = window.result()
    reference = last.energy_j - first.energy_j
    # From the step to the window's edge, a few milliseconds, at the gauge's power ± 50 %.
    gauge = follower.log.samples(window.begin_s, window.end_s)
    at = [float(gauge.power_w[np.argmin(np.abs(gauge.moment_s - moment))]) for moment in (first.moment_s, last.moment_s)]
    before, after = window.begin_s - first.moment_s, window.end_s - last.moment_s
    reference += at[1] * after - at[0] * before
    peak = float(np.nanmax(gauge.power_w))
    error = 0.5 * peak * ((before**2 + after**2 + first.width_s**2 / 3.0 + last.width_s**2 / 3.0) ** 0.5)
    return _compared(result, reference, error, None if reading is None else reading[0] / reference - 1.0)


def with_load(load: Load, gpu_meter: Meter | None = None) -> Callable[[Meter, Zeus, float, random.Random], Compared]:
    """A window around a load that begins and ends inside it; before and after, the GPU idles at a measured power."""

    def run(meter: Meter, zeus: Zeus, length_s: float, rng: random.Random) -> Compared:
        follower = meter.followers[0]
        time.sleep(1.0 + rng.uniform(0.0, 0.1))
        before_w = idle_power_w(follower)
        first = next_step(follower)
        time.sleep(rng.uniform(0.0, 0.1))
        zeus.begin(sync=False)
        with gpu_meter or meter as window:
            load.on()
            time.sleep(length_s)
            load.off()
        reading = zeus.end(sync=False)
        last = next_step(follower)
        last = next_step(follower)  # a whole step at rest absorbs what the counter reports late
        after_w = idle_power_w(follower)
        result = window.result()
        assert window.end_s is not None
        outside = before_w * (window.begin_s - first.moment_s) + after_w * (last.moment_s - window.end_s)
        reference = last.energy_j - first.energy_j - outside
        error = ((before_w * first.width_s) ** 2 / 12 + (after_w * last.width_s) ** 2 / 12 + (0.1 * outside) ** 2) ** 0.5
        zeus_relative = None if reading is None else reading[0] / reference - 1.0
        return _compared(result, reference, error, zeus_relative, _lag(follower, window.begin_s, before_w))

    return run


def _compared(result: Any, reference: float, error: float, zeus: float | None, lag: float | None = None) -> Compared:
    return Compared(result.energy_j, result.energy_se_j, reference, error, zeus, lag, result.flags)


def _lag(follower: StepFollower, begin_s: float, idle_w: float) -> float | None:
    """Time from the window's begin until the counter shows the load: the counter's delay plus the launch."""
    steps = follower.log.steps(begin_s - 0.5, begin_s + 0.5)
    powers = np.diff(steps.energy_j) / np.diff(steps.moment_s)
    cut = int(np.searchsorted(steps.moment_s, begin_s)) - 1
    above = [step for step in range(max(cut - 1, 0), len(powers) - 1) if powers[step] > 1.3 * idle_w]
    if not above:
        return None
    step = above[0]
    busy = (idle_w - powers[step]) / (idle_w - powers[step + 1])
    return float(steps.moment_s[step + 1] - busy * (steps.moment_s[step + 1] - steps.moment_s[step]) - begin_s)
