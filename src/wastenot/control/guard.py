"""Keeps a slowdown on what is measured: notices when a job is slower than it may be.

Two tests watch. The fast one compares the latest iterations with those at the default clocks, after each of them. Where it
suspects something, a block at the default clocks follows at once, which costs no slowdown, and tells whether the plan's
clocks are to blame or the job itself runs slower now; then less doubt is left, or a few more iterations remove it. The slow
one looks at all pairs so far, and sees small excesses. Both have bounds that hold for looking again and again. An iteration
that is late by itself, as by a slow read of data, says little of the clocks, and counts only in the slow one as it is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wastenot.control.estimate import Noise, boundary

TOLERANCE = 0.001
"""Slowdown beyond what is allowed that is not worth a step: less than a run can show."""

_WINDOWS = (2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32)
_SUSPECT = 3.4  # standard errors: by chance about once in 1,000 iterations of a job that is just as slow as it may be
_SURE = 4.3  # likewise: about once in 50,000
_CHANCE = 0.01  # that the slow test ever steps without reason
_LATE, _LEAST_LATE = 4.0, 0.005
"""Standard deviations by which one iteration counts as late at most, and the least that this comes to: alone it is no alarm,
with the least noise that is believed neither."""
_SHARED = 0.5  # of an alarm's excess, by which the default clocks have become slower as well if the job has
_CHANGED = 4.0  # standard errors by which a block differs from those before, where these do not count any more
_LEAST_CHANGE = 0.01
_WANTED_ERROR = 0.0035  # of a block's mean
_REMEMBERED_BLOCKS = 6
_MOST = 12  # iterations of a block, however noisy they are
_LEAST_NOISE = 5e-4  # of an iteration; less is not believed


@dataclass(frozen=True, slots=True)
class Alarm:
    """Iterations that are slower than allowed.

    Attributes:
        excess: beyond the limit, as a logarithm.
        errors: how many standard errors that is more than what is tolerated.
    """

    excess: float
    errors: float

    @property
    def sure(self) -> bool:
        """Whether it is beyond doubt."""
        return self.errors > _SURE


class Guard:
    """Watches the slowdown of a job.

    Args:
        max_slowdown: to keep.
        error: of progress by proxy, as a logarithm, by which it is kept more strictly.
    """

    def __init__(self, max_slowdown: float, error: float = 0.0) -> None:
        self.limit = math.log1p(max_slowdown) - error
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
        self._blocks.append((self.log_s(times_s), len(times_s)))

    def log_s(self, times_s: Sequence[float]) -> float:
        """Mean logarithm of iterations' times, where few that are late by themselves hardly count."""
        logs = [math.log(each) for each in times_s]
        return self._capped_mean(logs, median(logs))

    def restart(self) -> None:
        """The clocks were changed: what was seen of the plan's iterations does not count any more."""
        self._recent.clear()

    def watch(self, time_s: float) -> Alarm | None:
        """Take note of an iteration at the plan's clocks, and look."""
        self._recent.append(math.log(time_s))
        return self.look()

    def look(self) -> Alarm | None:
        """Whether the latest iterations at the plan's clocks seem slower than allowed."""
        default = self.default_log_s
        if default is None:
            return None
        known = self._default_variance()
        recent = list(self._recent)
        worst: Alarm | None = None
        for window in _WINDOWS:
            if window > len(recent):
                break
            latest, allowed = recent[-window:], default + self.limit
            excess = self._capped_mean(latest, allowed) - allowed
            errors = (excess - TOLERANCE) / math.sqrt(self._of_mean(window) + known)
            if errors > _SUSPECT and (worst is None or errors > worst.errors):
                worst = Alarm(max(excess, median(latest) - allowed), errors)
        return worst

    def slower_too(self, alarm: Alarm, block_s: Sequence[float]) -> bool:
        """Whether a block after an alarm says that the job runs slower at the default clocks as well."""
        default = self.default_log_s
        if default is None:
            return True
        return self.log_s(block_s) - default > _SHARED * alarm.excess

    def changed(self, block_s: Sequence[float]) -> bool:
        """Whether iterations at the default clocks are not what they were."""
        default = self.default_log_s
        if default is None:
            return True
        difference = abs(self.log_s(block_s) - default)
        error = math.sqrt(self._default_variance() + self._of_mean(len(block_s)))
        return difference > max(_CHANGED * error, _LEAST_CHANGE)

    def enough(self, most: int = _MOST) -> int:
        """Iterations of a block whose mean is known precisely enough."""
        return min(math.ceil(self.noise.of_mean(1) / _WANTED_ERROR**2), most)

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

    def _capped_mean(self, logs: Sequence[float], usual: float) -> float:
        """Mean of logarithms of times, of which none counts as much later than what is usual."""
        most = usual + max(_LATE * math.sqrt(self.noise.variance), _LEAST_LATE)
        return math.fsum(min(each, most) for each in logs) / len(logs)

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
