"""How a simulated run finds the best setting of its batch size: in slices of seconds, while it trains.

    epoch     │        1        │        2        │   …
    setting    A │ B │ C │  A           │ D │ A …           held where nothing is worth a slice, D where something is

What a slice at a setting tells is off by as much as its length allows. Epochs may be shorter than a slice, which then
continues in the next.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np

from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.limits import SLICE_S, Limits, Trial, slice_length_s
from wastenot.jobs.tables.records import Speed

_BEHIND = 1e-9  # of an epoch, which is no rest


TIME_NOISE = 0.005
"""Standard deviation of the logarithm of the mean time of iterations in a slice of
:data:`wastenot.jobs.plan.limits.SLICE_S`, where iterations of a tenth of a second differ by 3 % each."""
POWER_NOISE = 0.01
"""The same of its power, from a counter that moves every tenth of a second."""


class SlicedRuns:
    """Runs of a job that measure the settings of each batch size on the way.

    Args:
        trace: of the job.
        tell: takes what is measured.
        rng: draws what measurements are off by.

    Attributes:
        limits: what is known.
        slices: that were measured.
    """

    def __init__(self, trace: JobTrace, tell: Callable[[Speed], None], rng: np.random.Generator) -> None:
        self.limits = Limits(trace.terms)
        self.slices = 0
        self._trace, self._tell, self._rng = trace, tell, rng
        self._seen_s: dict[int, float] = {}
        self._held: dict[int, int] = {}  # the setting of batch sizes whose choice is known
        self._slice: tuple[Trial, float, float] | None = None  # what is measured now, for how long, and already was

    def begin(self) -> None:
        """A run begins: what another one was measuring when it ended tells nothing."""
        self._slice = None

    def beside(self) -> SlicedRuns:
        """For another run at the same time, with which this one shares what is known."""
        other = copy.copy(self)
        other._slice = None
        return other

    def epoch(self, batch_size: int) -> tuple[float, float]:
        """Time and energy of the next epoch of the run in flight."""
        row = self._trace.terms.batch_sizes.index(batch_size)
        held = self._held.get(batch_size)
        if held is not None:
            time_s = float(self._trace.epoch_time_s[row, held])
            return time_s, time_s * float(self._trace.power_w[row, held])
        left, spent_s, spent_j = 1.0, 0.0, 0.0
        while left > _BEHIND:
            place, most_s = self._now(batch_size)
            epoch_s = float(self._trace.epoch_time_s[row, place])
            step_s = min(most_s, left * epoch_s)
            left -= step_s / epoch_s
            spent_s += step_s
            spent_j += step_s * float(self._trace.power_w[row, place])
            self._seen_s[batch_size] = self._seen_s.get(batch_size, 0.0) + step_s
            self._pass(batch_size, place, step_s)
        if not self.limits.measured_at(batch_size):  # it was shorter than a slice, and tells something all the same
            self._measure(batch_size, self.setting(batch_size), spent_s)
        return spent_s, spent_j

    def setting(self, batch_size: int) -> int:
        """Index of the setting that a batch size holds."""
        held = self._held.get(batch_size)
        return self._trace.terms.settings.index(self.limits.best(batch_size)) if held is None else held

    def _now(self, batch_size: int) -> tuple[int, float]:
        """Index of the setting that runs now, and for how long at most."""
        settings = self._trace.terms.settings
        if self._slice is None:
            seen_s = self._seen_s.get(batch_size, 0.0)
            trial = self.limits.next(batch_size, seen_s=seen_s)
            if trial is None:
                self._held[batch_size] = self.setting(batch_size)
                return self._held[batch_size], math.inf
            if trial.from_s > seen_s:
                return self.setting(batch_size), max(trial.from_s - seen_s, 0.1)
            self._slice = trial, slice_length_s(seen_s), 0.0
        trial, lasts_s, passed_s = self._slice
        return settings.index(trial.setting), lasts_s - passed_s

    def _pass(self, batch_size: int, place: int, step_s: float) -> None:
        """Time has passed; a slice that has ended has measured its setting."""
        if self._slice is None:
            return
        trial, lasts_s, passed_s = self._slice
        if passed_s + step_s < lasts_s * (1.0 - _BEHIND):
            self._slice = trial, lasts_s, passed_s + step_s
            return
        self._slice = None
        self.slices += 1
        self._measure(batch_size, place, lasts_s)

    def _measure(self, batch_size: int, place: int, for_s: float) -> None:
        """What a stretch at a setting tells."""
        row, setting = self._trace.terms.batch_sizes.index(batch_size), self._trace.terms.settings[place]
        longer = math.sqrt(SLICE_S / for_s)
        time_error, power_error = TIME_NOISE * longer, POWER_NOISE * longer
        off = np.exp(self._rng.standard_normal(2) * (time_error, power_error))
        time_s, power_w = self._trace.epoch_time_s[row, place] * off[0], self._trace.power_w[row, place] * off[1]
        new = Speed(self._trace.device, batch_size, setting, float(time_s), float(power_w), time_error, power_error)
        self.limits.measured(new)
        together = self.limits.speed(self._trace.device, batch_size, setting)
        self._tell(new if together is None else together)
