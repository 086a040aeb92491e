"""GPUs that wait for the slowest of their job at each all-reduce, and lower clocks at which they end just before it.

    slowest     |forward ·····|backward ·················|optimizer|
    another     |forward ···|backward ···············| waits |optimizer|
    lowered     |forward ····|backward ················|     |optimizer|    the same iterations, with less energy

How fast a GPU is shows from the begin of an iteration until its backward pass. Gradients are reduced after that (DDP). Where
parameters are gathered layer by layer (FSDP), a GPU gets ahead by a layer or two at most; what it is ahead by beyond that
shows once its clocks are lower. Time grows at most as 1/clock, so that a clock lowered by what a GPU is ahead never makes it
the slowest. Pure bookkeeping: nothing is requested here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wastenot.control.level import FIRST, Level
from wastenot.control.marker import ITERATION, Marker

MARKED = frozenset({ITERATION, "backward"})
"""Markers that it needs."""

_LEAST = 0.005  # of an iteration, that is worth a change of clocks, which are 1 % apart
_ERRORS = 1.5  # standard deviations of the difference of two GPUs, kept free: at 0.3 %, 8 GPUs are 0.1 % slower at most
_LOWEST = 0.85  # of the clocks; cards of a model differ by less
_RAISED = 2.0  # times what one is behind, as its time may follow its clock by half
_LONGER, _SURE = 0.002, 3.0  # of an iteration, and standard errors, beyond which it has become longer by lower clocks
_CORRELATED = 1.3 / 0.7  # times the variance of a mean, as neighbours are alike
_WAIT = 50  # iterations after clocks were raised because of the whole iteration; twice as many each time it happens soon
_SOON = 4  # of these waits


class Slack:
    """Finds by how much the clocks of each GPU can be lowered.

    Args:
        gpus: of the job.

    Attributes:
        counted: the iteration of the first GPU that counts, as all run at clocks of one rung; ``None`` for none.
    """

    def __init__(self, gpus: int) -> None:
        self.counted: int | None = None
        self._levels = [Level(_LEAST) for _ in range(gpus)]
        self._began: list[tuple[int, float] | None] = [None] * gpus
        self._took_s: dict[int, float] = {}  # until the backward pass in the latest iteration, by GPU
        self._changed = False
        self._logs: list[float] = []  # of the times of iterations since the latest change
        self._before: tuple[float, float] | None = None  # their mean before that, and its variance
        self._lowers = False  # whether the latest decision raises no clock
        self._since, self._rest, self._wait = _SOON * _WAIT, 0, _WAIT

    def mark(self, marker: Marker) -> None:
        """Take note of what a GPU has reached."""
        if marker.name == ITERATION:
            self._began[marker.gpu] = (marker.iteration, marker.reached_s)
            if marker.gpu == 0:
                self._took_s.clear()
        elif marker.name == "backward":
            began, self._began[marker.gpu] = self._began[marker.gpu], None
            if began is not None and marker.iteration == began[0] == self.counted:
                self._took_s[marker.gpu] = marker.reached_s - began[1]
                if len(self._took_s) == len(self._levels) and min(self._took_s.values()) > 0.0:
                    self._learn()

    def restart(self) -> None:
        """GPUs run at the clocks that were decided, from now on: where none was raised, iterations may not become longer."""
        for level in self._levels:
            level.restart()
        self._before = self._mean() if self._lowers else None
        self._logs.clear()
        self._changed = False

    def forget(self) -> None:
        """What iterations took says nothing of those to come, as the rung or the job has changed."""
        self._before = None
        self._logs.clear()

    def decide(self, time_s: float, lowered: Sequence[float]) -> list[float] | None:
        """Fractions of the clocks that each GPU is to have from now on; ``None`` where nothing changes.

        Args:
            time_s: of an iteration that counts, which has ended.
            lowered: the present fractions.
        """
        self._logs.append(math.log(time_s))
        self._since += 1
        self._rest = max(self._rest - 1, 0)
        if len(self._logs) == FIRST and self._is_longer():
            return self.given_up()
        if not self._changed or self._rest or not all(level.known for level in self._levels):
            return None
        self._changed = False
        found = self._fractions(lowered)
        self._lowers = all(after <= before for before, after in zip(lowered, found, strict=True))
        return found

    def given_up(self) -> list[float]:
        """The rungs' own clocks, for a while, as the job has become slower."""
        self._wait = 2 * self._wait if self._since < _SOON * self._wait else _WAIT
        self._rest, self._since, self._lowers = self._wait, 0, False
        return [1.0] * len(self._levels)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Take in what all GPUs took, relative to each other: what they have in common is nobody's."""
        logs = {gpu: math.log(took_s) for gpu, took_s in self._took_s.items()}
        mean = math.fsum(logs.values()) / len(logs)
        for gpu, log in logs.items():
            self._changed |= self._levels[gpu].learn(math.exp(log - mean))

    def _fractions(self, lowered: Sequence[float]) -> list[float]:
        # At the rung's own clocks each would take so long at least.
        own = [level.held + math.log(fraction) for level, fraction in zip(self._levels, lowered, strict=True)]
        slowest = max(range(len(own)), key=own.__getitem__)
        gpus = len(own)
        found = []
        for gpu, (level, fraction) in enumerate(zip(self._levels, lowered, strict=True)):
            if gpu == slowest:
                found.append(1.0)
                continue
            # The mean of all is subtracted from each, which takes one part in `gpus` off its variance.
            noise = math.hypot(level.noise, self._levels[slowest].noise) * math.sqrt(gpus / (gpus - 1))
            room = own[slowest] - level.held - _ERRORS * noise
            if -0.5 * _ERRORS * noise < room < _LEAST:
                room = 0.0
            found.append(min(max(fraction * math.exp(-room if room > 0.0 else -_RAISED * room), _LOWEST), 1.0))
        return found

    def _mean(self) -> tuple[float, float] | None:
        """Mean logarithm of the iterations since the latest change, and its variance; ``None`` of too few."""
        count = len(self._logs)
        if count < FIRST:
            return None
        mean = math.fsum(self._logs) / count
        return mean, math.fsum((each - mean) ** 2 for each in self._logs) / (count - 1) / count * _CORRELATED

    def _is_longer(self) -> bool:
        """Whether iterations last longer than before clocks were lowered."""
        before, after = self._before, self._mean()
        if before is None or after is None:
            return False
        return after[0] - before[0] > _LONGER + _SURE * math.sqrt(before[1] + after[1])
