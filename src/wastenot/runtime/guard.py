"""Keeps a slowdown on what is measured: when a job is slower than it may be, and which rung it should step to.

Two tests watch. The fast one compares the latest iterations with those at the default clocks, after each of them, and only
raises an alarm: a block at the default clocks follows at once, which tells whether the plan's clocks are to blame or the job
itself runs slower now. The slow one looks at all pairs so far, and sees small excesses. Both have bounds that hold for
looking again and again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from wastenot.planning.schedule import Rung
from wastenot.runtime.estimate import Noise, boundary

TOLERANCE = 0.001
"""Slowdown beyond what is allowed that is not worth a step: less than a run can show."""

_WINDOWS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_ALARM = 3.3  # standard errors
_CHANCE = 0.01  # that the slow test ever steps without reason
_CONFIRMED = 0.5  # of an alarm's excess, that has to remain against the block that follows it
_REMEMBERED_BLOCKS = 6
_LEAST_NOISE = 5e-4  # of an iteration; less is not believed


@dataclass(frozen=True, slots=True)
class Alarm:
    """A slowdown beyond what is allowed, by which windows of iterations it was seen, and its standard error."""

    excess: float
    error: float
    iterations: int


class Guard:
    """Watches the slowdown of a job.

    Args:
        max_slowdown: to keep.
    """

    def __init__(self, max_slowdown: float) -> None:
        self.limit = math.log1p(max_slowdown)
        self.noise = Noise()
        self._blocks: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED_BLOCKS)  # mean logarithm, iterations
        self._recent: deque[float] = deque(maxlen=_WINDOWS[-1])

    @property
    def default_log_s(self) -> float | None:
        """Mean logarithm of an iteration's time at the default clocks; ``None`` before the first block."""
        total = sum(count for _, count in self._blocks)
        return math.fsum(mean * count for mean, count in self._blocks) / total if total else None

    def reference(self, times_s: Sequence[float], *, anew: bool = False) -> None:
        """Take note of iterations at the default clocks.

        Args:
            times_s: their times.
            anew: whether earlier ones do not count any more.
        """
        if anew:
            self._blocks.clear()
        self._blocks.append((math.fsum(map(math.log, times_s)) / len(times_s), len(times_s)))

    def restart(self) -> None:
        """The clocks were changed: what was seen of the plan's iterations does not count any more."""
        self._recent.clear()

    def watch(self, time_s: float) -> Alarm | None:
        """Take note of an iteration at the plan's clocks, and look."""
        self._recent.append(math.log(time_s))
        default = self.default_log_s
        if default is None:
            return None
        known = self._default_variance()
        recent = list(self._recent)
        worst: Alarm | None = None
        for window in _WINDOWS:
            if window > len(recent):
                break
            excess = math.fsum(recent[-window:]) / window - default - self.limit
            error = math.sqrt(self._of_mean(window) + known)
            if excess > TOLERANCE + _ALARM * error and (worst is None or excess / error > worst.excess / worst.error):
                worst = Alarm(excess, error, window)
        return worst

    def confirmed(self, alarm: Alarm, block_s: Sequence[float]) -> float | None:
        """The excess that remains of an alarm against a block right after it; ``None`` where the job itself is slower."""
        slow = math.fsum(list(self._recent)[-alarm.iterations :]) / alarm.iterations
        block = math.fsum(map(math.log, block_s)) / len(block_s)
        excess = slow - block - self.limit
        return excess if excess > TOLERANCE and excess > _CONFIRMED * alarm.excess else None

    def exceeds(self, pairs: Sequence[float]) -> float | None:
        """By how much pairs of stretches are beyond the limit, where that is beyond doubt."""
        count = len(pairs)
        if count < 2:
            return None
        mean = math.fsum(pairs) / count
        spread = math.fsum((value - mean) ** 2 for value in pairs) / (count - 1)
        variance = max(spread, 1.5 * self._of_mean(4) if count < 8 else 0.0)
        excess = mean - self.limit
        return excess if excess > TOLERANCE + boundary(count, _CHANCE) * math.sqrt(variance / count) else None

    def _of_mean(self, count: int) -> float:
        return max(self.noise.of_mean(count), _LEAST_NOISE**2 / count)

    def _default_variance(self) -> float:
        total = sum(count for _, count in self._blocks)
        variance = self._of_mean(total)
        if len(self._blocks) > 2:
            mean = self.default_log_s or 0.0
            between = math.fsum((each - mean) ** 2 for each, _ in self._blocks) / (len(self._blocks) - 1)
            variance = max(variance, between / len(self._blocks))
        return variance


def faster_rung(rungs: Sequence[Rung], present: int, slowdown: float, max_slowdown: float) -> int:
    """The first rung towards speed that is expected to keep a slowdown, given what was measured at the present one.

    What a rung is slower than predicted is expected to shrink with what it saves.

    Args:
        rungs: of the schedule.
        present: where it was measured.
        slowdown: measured there.
        max_slowdown: to keep.
    """
    here = rungs[present]
    extra = slowdown - here.time_change
    for index in range(present + 1, len(rungs) - 1):
        rung = rungs[index]
        share = rung.energy_change / here.energy_change if here.energy_change < 0.0 else 1.0
        if rung.time_change + max(extra, 0.0) * min(max(share, 0.0), 1.0) <= max_slowdown:
            return index
    return len(rungs) - 1
