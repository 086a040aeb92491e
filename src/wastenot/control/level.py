"""Notices that a GPU or a pipeline has become slower or faster from how long it took: level shifts in noise.

    times as long   ··············┌────────────────┐···········    true
                    ─────────────────┌────────────────┐────────    held: a few iterations later, and no other changes

After each iteration the latest two, three, … 32 are compared with all before them since the last change: a generalised
likelihood ratio test (Lai 1995, "Sequential changepoint detection", section 3) in which one iteration counts no more than a
few standard deviations, so that a late one by itself (a checkpoint, a page fault) moves nothing. A large shift is noticed at
once, a small one as soon as enough iterations show it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from statistics import median

FIRST = 8  # iterations until a level is known at first
_WINDOW = 32  # latest iterations that may be at a new level
_SURE = 5.8
"""Standard errors by which they differ then: by chance less than once in 10,000 iterations, one in 200 of them with a pause.

That was found by simulation, as looks overlap and noise is estimated."""
_LATE, _EARLY = 3.6, 5.0
"""Standard deviations that one late or early iteration counts at most: two late ones are never enough, as pauses have many
causes, and two early ones are, as the others hold everybody up."""
_LEAST = 0.02  # change that is worth a change of plans
_LEAST_DEVIATION = 0.2  # of that: where there is less noise, three iterations late by it are still enough, and two not
_NOISE_FROM = 120  # differences between neighbours that noise is learned from
_LEAST_NOISE = 1e-3
_SURE_THROTTLED = 3.0  # standard deviations of the one iteration that is enough where a GPU says that it is throttled
_REFINED = (8, 24, 72)  # iterations after a change at which the level is estimated anew


class Level:
    """How many times as long as planned a pipeline takes, or as the mean of its job a GPU.

    Args:
        least: change of the logarithm that is worth acting on; of pipelines, which change their plans.

    Attributes:
        held: the logarithm that counts; 0 until enough is known.
        known: whether enough is.
    """

    def __init__(self, least: float = _LEAST) -> None:
        self._least = least
        self.held, self.known = 0.0, False
        self._since: deque[float] = deque(maxlen=_REFINED[-1] + _WINDOW)
        self._count = 0
        self._steps: deque[float] = deque(maxlen=_NOISE_FROM)
        self._before: float | None = None

    @property
    def factor(self) -> float:
        """Times as long as planned."""
        return math.exp(self.held)

    @property
    def noise(self) -> float:
        """Standard deviation of one iteration, from how neighbours differ; a level shift or a pause hardly moves it."""
        if len(self._steps) < FIRST - 1:
            return self._least
        return max(1.4826 * median(self._steps) / math.sqrt(2.0), _LEAST_NOISE)

    def restart(self) -> None:
        """It runs in another way from now on: its noise is still known, and its level has to be learned."""
        self.known, self.held, self._before, self._count = False, 0.0, None, 0
        self._since.clear()

    def learn(self, factor: float, *, throttled: bool = False) -> bool:
        """Take note of an iteration.

        Args:
            factor: its time over the planned time of what it ran.
            throttled: a GPU says that it is throttled, so that one iteration is believed.

        Returns:
            Whether the level that counts has changed, or is known now.
        """
        value = math.log(factor)
        if self._before is not None:
            self._steps.append(abs(value - self._before))
        self._before = value
        self._since.append(value)
        self._count += 1
        if not self.known:
            if self._count < FIRST:
                return False
            self.known = True
            self.held = median(self._since)
            return True
        if shifted := self._shifted(value, throttled):
            self._since = deque(shifted, maxlen=self._since.maxlen)
            self._count = len(shifted)
            return self._set(median(shifted))
        if self._count in _REFINED:
            return self._set(median(self._since))
        drifted = len(self._since) == self._since.maxlen and abs(median(self._since) - self.held) > self._least
        return drifted and self._set(median(self._since))

    def _shifted(self, value: float, throttled: bool) -> Sequence[float]:
        """The iterations that are at a new level, where there is one."""
        noise = self.noise
        if throttled and value - self.held > max(self._least, _SURE_THROTTLED * noise):
            return [value]
        deviation, count = max(noise, _LEAST_DEVIATION * self._least), len(self._since)
        late, early = self.held + _LATE * deviation, self.held - _EARLY * deviation
        sums = list(accumulate(min(max(each, early), late) for each in reversed(self._since)))
        most, latest = _SURE * deviation, 0
        for new in range(2, min(_WINDOW, count - 1) + 1):
            old = count - new
            differ = abs(sums[new - 1] / new - (sums[-1] - sums[new - 1]) / old) * math.sqrt(new * old / count)
            if differ > most:
                most, latest = differ, new
        shifted = list(self._since)[count - latest :]
        return shifted if shifted and abs(median(shifted) - self.held) > self._least else []

    def _set(self, level: float) -> bool:
        before, self.held = self.held, level
        return abs(level - before) > 1e-3
