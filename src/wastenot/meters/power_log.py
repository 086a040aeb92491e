"""What the sensors of one device returned and when: steps of its energy counter, and samples of everything else."""

from __future__ import annotations

import math
import threading
from array import array
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.meters.window_energy import Steps

_CONTEXT = 6  # steps and samples beyond a window's edges, which show how power varies there


@dataclass(frozen=True, slots=True)
class Samples:
    """All cheap sensors at some moments, as arrays of equal length, in order; NaN where a device has none.

    Attributes:
        throttled_s: how long a limit has held the clocks down, in total.
        processes: number of processes that use the device.
    """

    moment_s: FloatArray
    power_w: FloatArray
    memory_power_w: FloatArray
    core_mhz: FloatArray
    memory_mhz: FloatArray
    temperature_c: FloatArray
    throttled_s: FloatArray
    processes: FloatArray

    def between(self, begin_s: float, end_s: float) -> BoolArray:
        """Mask of those taken in an interval; the nearest one where there are none."""
        chosen: BoolArray = (self.moment_s >= begin_s) & (self.moment_s <= end_s)
        if len(chosen) and not chosen.any():
            chosen[int(np.argmin(np.abs(self.moment_s - 0.5 * (begin_s + end_s))))] = True
        return chosen


_STEP_FIELDS = tuple(Steps.__slots__)
_SAMPLE_FIELDS = tuple(Samples.__slots__)


class PowerLog:
    """The log of one device. One thread writes, others read."""

    def __init__(self) -> None:
        self._steps = tuple(array("d") for _ in _STEP_FIELDS)
        self._samples = tuple(array("d") for _ in _SAMPLE_FIELDS)
        self._changed = threading.Condition()

    def add_steps(self, *steps: tuple[float, float, float]) -> None:
        """Add steps, each as moment, width and energy."""
        with self._changed:
            for step in steps:
                for column, value in zip(self._steps, step, strict=True):
                    column.append(value)
            self._changed.notify_all()

    def add_sample(self, *sensors: float | None) -> None:
        """Add what the sensors of :class:`Samples` say, in that order; ``None`` where a device has none."""
        with self._changed:
            for column, value in zip(self._samples, sensors, strict=True):
                column.append(math.nan if value is None else value)
            self._changed.notify_all()

    def forget(self, before_s: float) -> None:
        """Drop what is older, except a few next to it."""
        with self._changed:
            for columns in (self._steps, self._samples):
                drop = int(np.searchsorted(columns[0], before_s)) - 2 * _CONTEXT
                if drop > 0:
                    for column in columns:
                        del column[:drop]

    def wait(self, steps_after_s: float | None, sample_after_s: float, timeout_s: float) -> bool:
        """Wait until enough is logged.

        Args:
            steps_after_s: wait for two steps after this moment; ``None`` for a device without a counter.
            sample_after_s: and for a sample after this one.
            timeout_s: longest wait.

        Returns:
            Whether it is logged.
        """

        def complete() -> bool:
            moments = self._steps[0]
            stepped = steps_after_s is None or (len(moments) > 1 and moments[-2] >= steps_after_s)
            return stepped and bool(self._samples[0]) and self._samples[0][-1] >= sample_after_s

        with self._changed:
            return self._changed.wait_for(complete, timeout_s)

    def steps(self, begin_s: float, end_s: float) -> Steps:
        """Steps in an interval and a few on either side."""
        return Steps(*self._slice(self._steps, begin_s, end_s))

    def samples(self, begin_s: float, end_s: float) -> Samples:
        """Samples in an interval and a few on either side."""
        return Samples(*self._slice(self._samples, begin_s, end_s))

    def last_step_s(self) -> float | None:
        """Moment of the last step."""
        with self._changed:
            return self._steps[0][-1] if self._steps[0] else None

    def last_sample_s(self) -> float | None:
        """Moment of the last sample."""
        with self._changed:
            return self._samples[0][-1] if self._samples[0] else None

    def _slice(self, columns: tuple[array[float], ...], begin_s: float, end_s: float) -> list[FloatArray]:
        with self._changed:
            first = max(int(np.searchsorted(columns[0], begin_s)) - _CONTEXT, 0)
            last = int(np.searchsorted(columns[0], end_s)) + _CONTEXT
            return [np.array(column[first:last], dtype=float) for column in columns]
