"""Time and energy of one call of a task at one setting, as the kernel-level DVFS paper measures them (§4, Workflow)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from wastenot.core.errors import DeviceError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import ClockReading, Device, Lap, Task, TaskRun
from wastenot.meters.mean_power import error_of_mean, pass_time, power_meter
from wastenot.study.recorder import Measurement
from wastenot.sweeping.defaults import WARM_UP_S, WINDOW_S

_LAPS = 30  # in a whole window
_LEAST_LAPS = 5
_CLOCK_MISSED_MHZ = 20.0  # a core clock so far below what was asked for has not arrived
_CLOCK_DROPPED = 0.02  # a launch whose mean core clock is so far below that of the window, relatively, was throttled
_DRIFT_C = 3.0
_LEAST_S = 1.0  # to measure before a small error may end it
_LONGEST_CALL_S = 600.0  # how long to wait for a call that outlasts the window


@dataclass(frozen=True, slots=True)
class PointOptions:
    """How to measure one kernel at one setting.

    Attributes:
        warm_up_s: how long the kernel runs at the setting before it is measured.
        window_s: longest time to measure, but at least one whole call.
        relative_error: stop earlier once the energy's relative standard error is this small; 0 for never.
    """

    warm_up_s: float = WARM_UP_S
    window_s: float = WINDOW_S
    relative_error: float = 0.0

    def reason_to_stop(self, seconds: float, relative_error: Callable[[], float]) -> str | None:
        """Why to stop measuring, or ``None`` to continue; the error is asked for only where it matters."""
        if self.relative_error > 0 and seconds >= _LEAST_S and relative_error() <= self.relative_error:
            return f"relative error of {self.relative_error:.2%} reached"
        return f"time limit of {self.window_s:g} s" if seconds >= self.window_s else None


def measure_point(device: Device, task: Task, setting: Setting, options: PointOptions | None = None) -> Measurement:
    """Measure one call of a task.

    The setting is requested, the task warmed up at it, then run back to back over a window that begins and ends on
    steps of the energy counter. The clocks stay requested afterwards; giving them back is the caller's.

    Args:
        device: to measure on.
        task: to run.
        setting: to run it at.
        options: how.

    Raises:
        ClocksRefusedError: the device does not have the setting.
        CannotRunError: the device cannot run the task at it.
        DeviceError: a sensor that is needed cannot be read.
    """
    options = options or PointOptions()
    device.clocks.request(setting)
    with device.launcher.start(task) as run:
        pass_time(device, options.warm_up_s, run.feed)
        observed = _observe(device, run, options)
    if not run.laps:
        raise DeviceError(f"{task.name}: not one complete call in {_LONGEST_CALL_S:g} s; use a smaller kernel")
    return _conclude(task, setting, run, observed)


@dataclass(frozen=True, slots=True)
class _Observed:
    power_w: float
    power_se_w: float
    window_s: float
    stopped: str
    in_effect: ClockReading
    temperatures_c: tuple[float | None, float | None]
    throttled_s: float | None
    memory_power_w: float | None
    shared: bool


def _observe(device: Device, run: TaskRun, options: PointOptions) -> _Observed:
    sensors = device.sensors
    meter = power_meter(device, run.feed)
    meter.begin()
    began_s = device.time.now_s()
    run.mark()
    temperature, throttled = sensors.temperature_c(), sensors.throttled_s()
    lap_s = max(options.window_s / _LAPS, 1e-3)
    clocks: list[ClockReading] = []
    memory_w: list[float | None] = []
    laps, reason = 0, None
    while reason is None:
        meter.lap(lap_s)
        run.mark()
        laps += 1
        clocks.append(sensors.clocks())
        memory_w.append(sensors.memory_power_w())
        seconds = device.time.now_s() - began_s
        if laps >= _LEAST_LAPS and (run.completed > 0 or seconds > _LONGEST_CALL_S):
            reason = options.reason_to_stop(seconds, lambda: meter.mean().relative_error)
    mean = meter.mean()
    now_throttled = sensors.throttled_s()
    return _Observed(
        mean.power_w,
        mean.error_w,
        mean.seconds,
        reason,
        ClockReading(
            *(average_of_known(median, [getattr(seen, name) for seen in clocks]) for name in ("core_mhz", "memory_mhz"))
        ),
        (temperature, sensors.temperature_c()),
        None if throttled is None or now_throttled is None else now_throttled - throttled,
        average_of_known(fmean, memory_w[len(memory_w) // 3 :]),  # it may average over a second: not what was before
        (sensors.processes() or 0) > 1,
    )


def _conclude(task: Task, setting: Setting, run: TaskRun, observed: _Observed) -> Measurement:
    calls = np.array([lap.calls for lap in run.laps], dtype=float)
    seconds = np.array([lap.seconds for lap in run.laps])
    time = float(seconds.sum() / calls.sum())
    each = seconds / calls
    error = error_of_mean(each) if len(each) > 1 else 0.0
    counted_mhz = _counted_mhz(run.laps)
    lowest_mhz = min((lap.lowest_core_mhz for lap in run.laps if lap.lowest_core_mhz is not None), default=None)
    core_mhz = observed.in_effect.core_mhz if counted_mhz is None else counted_mhz
    energy = observed.power_w * time
    relative = math.hypot(observed.power_se_w / observed.power_w, error / time)
    share = None if observed.throttled_s is None else min(1.0, observed.throttled_s / observed.window_s)
    begin_c, end_c = observed.temperatures_c
    return Measurement(
        kernel=task.name,
        setting=setting,
        time_s=time,
        time_se_s=error,
        energy_j=energy,
        energy_se_j=energy * relative,
        effective_core_mhz=core_mhz,
        effective_memory_mhz=observed.in_effect.memory_mhz,
        calls=int(calls.sum()),
        temperature_c=None if begin_c is None or end_c is None else 0.5 * (begin_c + end_c),
        window_s=observed.window_s,
        throttled_share=share,
        memory_power_w=observed.memory_power_w,
        how=run.how,
        stopped=observed.stopped,
        flags=_flags(setting, observed, core_mhz, lowest_mhz, share),
    )


def _counted_mhz(laps: Sequence[Lap]) -> float | None:
    """Mean clock of laps by counting cycles, weighted by time; ``None`` where any is unknown."""
    clocks = [lap.core_mhz for lap in laps if lap.core_mhz is not None]
    if len(clocks) < len(laps):
        return None
    first = clocks[0]  # differences from it, so that the mean of equal clocks is exactly theirs
    cycles = math.fsum(lap.seconds * (clock - first) for lap, clock in zip(laps, clocks, strict=True))
    return first + cycles / math.fsum(lap.seconds for lap in laps)


def _flags(
    setting: Setting, observed: _Observed, core: float | None, lowest: float | None, throttled_share: float | None
) -> tuple[str, ...]:
    flags = []
    memory = observed.in_effect.memory_mhz
    if setting.core_mhz is not None and core is not None and core < setting.core_mhz - _CLOCK_MISSED_MHZ:
        flags.append("core clock not reached")
    if setting.core_mhz is not None and core is not None and core > setting.core_mhz + _CLOCK_MISSED_MHZ:
        flags.append("core clock above what was asked for")
    if core is not None and lowest is not None and lowest < core * (1.0 - _CLOCK_DROPPED):
        flags.append("core clock dropped for a moment")
    if setting.memory_mhz is not None and memory is not None and abs(memory - setting.memory_mhz) > _CLOCK_MISSED_MHZ:
        flags.append("memory clock not reached")
    if throttled_share:
        flags.append("throttled")
    begin_c, end_c = observed.temperatures_c
    if begin_c is not None and end_c is not None and abs(end_c - begin_c) >= _DRIFT_C:
        flags.append("temperature drifted")
    if observed.shared:
        flags.append("another process used the GPU")
    return tuple(flags)


def average_of_known(average: Callable[[list[float]], float], values: list[float | None]) -> float | None:
    """An average of the values that could be read; ``None`` if none could."""
    known = [value for value in values if value is not None]
    return float(average(known)) if known else None


def warm_up(device: Device, tasks: Sequence[Task], *, at_least_s: float = 25.0, at_most_s: float = 300.0) -> None:
    """Run the hottest task at auto until the temperature no longer rises (paper, §4, Workflow).

    Args:
        device: to warm.
        tasks: to choose from.
        at_least_s: to run.
        at_most_s: to run, steady or not.
    """
    device.clocks.release()
    with device.launcher.start(tasks[hottest_first(tasks)[0]]) as run:
        pass_time(device, at_least_s, run.feed)
        spent, before = at_least_s, device.sensors.temperature_c()
        while before is not None and spent < at_most_s:
            pass_time(device, 10.0, run.feed)
            spent += 10.0
            now = device.sensors.temperature_c()
            if now is None or now <= before:
                return
            before = now


def hottest_first(tasks: Sequence[Task]) -> list[int]:
    """Indices of tasks by falling FLOPs a byte.

    In this order those that a power limit may hold, and that mostly take most of the time, run while the GPU is hottest.
    """

    def intensity(index: int) -> float:
        flops = sum(calls * kernel.flops for kernel, calls in tasks[index].steps)
        moved = sum(calls * kernel.bytes_moved for kernel, calls in tasks[index].steps)
        return flops / moved if moved else 0.0

    return sorted(range(len(tasks)), key=lambda index: -intensity(index))
