"""Notices that a GPU or a pipeline has become slower or faster from how long it took: level shifts in noise.

    times as long   ··············┌────────────────┐···········    true
                    ─────────────────┌────────────────┐────────    held: a few iterations later, and no other changes

A level is held until the latest iterations are clearly at another one. A single late iteration (a checkpoint, a page fault)
moves nothing: the median of five counts. Becoming faster again is noticed sooner, as then the others hold everybody up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

FIRST = 8  # iterations until a level is known at first
_WINDOW = 5
_QUICK = 2  # iterations in a row that are enough for becoming faster
_SURE, _SURE_QUICK = 3.0, 4.0  # standard deviations of one iteration, beyond which a window, or each of two, is not noise
_LEAST = 0.02
_NOISE_FROM = 40  # differences between neighbours that noise is learned from
_LEAST_NOISE = 1e-3
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
        self._since: deque[float] = deque(maxlen=_REFINED[-1])
        self._count = 0
        self._latest: deque[float] = deque(maxlen=_WINDOW)
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
        self.known, self._before = False, None
        self._set(0.0, anew=True)

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
        self._latest.append(value)
        self._since.append(value)
        self._count += 1
        if not self.known:
            if self._count < FIRST:
                return False
            self.known = True
            self._set(median(self._since), anew=False)
            return True
        if shifted := self._shifted(value, throttled):
            return self._set(median(shifted), anew=True, seen=shifted)
        if self._count in _REFINED:
            return self._set(median(self._since), anew=False)
        return False

    def _shifted(self, value: float, throttled: bool) -> list[float]:
        """The iterations that are at a new level, where there is one."""
        noise = self.noise
        if throttled and value - self.held > max(self._least, _SURE * noise):
            return [value]
        quick = list(self._latest)[-_QUICK:]
        if len(quick) == _QUICK and max(quick) < self.held - max(self._least, _SURE_QUICK * noise):
            return quick
        if len(self._latest) < _WINDOW:
            return []
        middle = median(self._latest)
        # The median of five deviates half as much as one iteration.
        if abs(middle - self.held) > max(self._least, _SURE * noise):
            return [each for each in self._latest if (each > self.held) == (middle > self.held)][-3:]
        return []

    def _set(self, level: float, *, anew: bool, seen: Sequence[float] = ()) -> bool:
        before, self.held = self.held, level
        if anew:
            self._since = deque(seen, maxlen=_REFINED[-1])
            self._latest = deque(seen, maxlen=_WINDOW)
            self._count = len(seen)
        return abs(level - before) > 1e-3
