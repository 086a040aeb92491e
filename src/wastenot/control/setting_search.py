"""Which setting of a running job to try next, until the one of least energy within a slowdown is found.

    ladder    default  1  2     4           8     ·  ✗        walks down by growing strides until a setting is too slow, or
    walked       ├──────┴──┴─────┴───────────┴─────┤           needs clearly more energy than one before; then halves the gap
    compared                              ▲     ▲  ▲          what is left is compared in rounds of random order

Time grows from setting to setting of a ladder: those below one that is too slow need no trial, and how slow one is at most,
slower ones tell as well. Energy falls and then rises:
that is used to end a walk, and to look between settings that were tried, never to rule out one that was.

Every trial is a stretch at a setting against the default clocks around it, as logarithms of ratios. Their scatter is pooled
over all settings, beginning with what is usual. A setting is dropped once it is slower than allowed, or needs more energy
than the best, beyond doubt; the search ends when nothing left could be better by more than a tolerance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wastenot.control.candidates import Ladder
from wastenot.control.estimate import LogMean, student_t
from wastenot.control.guard import TOLERANCE
from wastenot.core.setting import Setting

_USUAL = 0.003  # scatter of a trial's energy, before any was repeated, and how many trials that is worth
_USUAL_TRIALS = 6
_SURE = 2.4  # standard errors beyond which there is no doubt, of many trials
_LIKELY = 1.0  # within which something is likely
_FARTHEST = 0.12  # logarithm by which a walk goes down in one stride: more than that may be far too slow
_RISEN = 3.0  # standard errors by which energy has to be higher for a walk to end
_LOOKS_BETWEEN = 4  # settings of a ladder that are tried because they may be better than the best beside them
_DOUBTFUL = 4  # trials after which a faster setting is tried as well as one that may or may not be too slow
_LONG_DOUBTFUL = 10  # trials after which it counts as too slow where another one is hardly worse and keeps the slowdown
_AT_ONCE = 3  # settings of a round, those of least energy: what slower ones show speaks for faster ones too
_CLOSE = 0.3 * TOLERANCE  # half length of the interval of time at which a setting that may be too slow counts as such
_MOST_FAILURES = 3  # of trials of one setting, because of pauses in the job
_NORMAL = 1.959964


@dataclass(slots=True)
class Candidate:
    """A setting, and what its trials showed against the default clocks, as logarithms of ratios.

    Attributes:
        ladder: index of its ladder.
        place: on it.
        time: of iterations; ``time_noise`` is the variance that each has from how iterations differ.
        energy: of iterations.
        dropped: why it is out of the race; empty while it is in it.
        slow: whether it is out of it because it is slower than allowed.
        rehearsed: whether it was set, and nothing compared.
    """

    ladder: int
    place: int
    setting: Setting
    time: list[float] = field(default_factory=list)
    time_noise: list[float] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)
    dropped: str = ""
    slow: bool = False
    rehearsed: bool = False
    failures: int = 0


class SettingSearch:
    """Chooses settings to try.

    Args:
        ladders: of settings.
        max_slowdown: allowed.
        tolerance: fraction of energy within which the best has to be known.
        seed: of the order of trials.
        error: of progress by proxy, as a logarithm, by which the slowdown is kept more strictly.
    """

    def __init__(
        self, ladders: Sequence[Ladder], max_slowdown: float, tolerance: float = 0.005, seed: int = 0, error: float = 0.0
    ) -> None:
        self.ladders, self.error = tuple(ladders), error
        self.limit = math.log1p(max_slowdown) - error
        self.tolerance = tolerance
        self.candidates: list[Candidate] = []
        self.rounds = 0
        self._strides = [1] * len(self.ladders)
        self._looks = [0] * len(self.ladders)
        self._broken_off = [len(ladder.settings) for ladder in ladders]  # the first place known to be too slow
        self._rng = random.Random(seed)
        self._round: list[Candidate] = []

    # ---- what to try -----------------------------------------------------------------------------------------

    def next_group(self) -> list[Candidate]:
        """The settings to try next, one or two, in random order; empty once the best is known."""
        walking = [found for index in range(len(self.ladders)) if (found := self._next_of(index)) is not None]
        if walking:
            self._rng.shuffle(walking)
            return walking[:2]
        if not self._round:
            if self.known:
                return []
            self.rounds += 1
            worth = sorted((each for each in self.left if self._worth(each)), key=lambda each: self.energy(each).mean)
            self._round = worth[:_AT_ONCE]
            if self.best is not None and self.best not in self._round:
                self._round.append(self.best)
            self._rng.shuffle(self._round)
        group, self._round = self._round[:2], self._round[2:]
        return [each for each in group if not each.dropped] or (self.next_group() if self.left else [])

    def _worth(self, candidate: Candidate) -> bool:
        """Whether another trial of a setting in the race could change anything."""
        best = self.best
        return candidate is best or self._could_gain(candidate, best) > self.tolerance or len(candidate.energy) < 2

    def _next_of(self, index: int) -> Candidate | None:
        """What to try next on a ladder; ``None`` where it is known precisely enough."""
        waiting = [each for each in self.candidates if each.ladder == index and not each.energy and not each.dropped]
        if waiting:
            return waiting[0]
        ladder = self.ladders[index]
        tried = self._tried_on(index)
        bad = self._bad(index, tried)
        passed = [*tried, *(each for each in self.candidates if each.ladder == index and each.rehearsed)]
        fine = max((each.place for each in passed if each.place < bad), default=-1)
        if bad < len(ladder.settings):
            place = (fine + bad) // 2
            if place > fine and not self._flat(tried, fine, bad):
                return self._candidate(index, place)
        elif fine + 1 < bad:
            place = min(fine + self._strides[index], bad - 1)
            while place > fine + 1 and ladder.ratio(fine, place) > _FARTHEST:
                place -= 1
            self._strides[index] *= 2
            return self._candidate(index, place)
        between = self._between(index, [each for each in tried if not self._slow(each)])
        if between is None:
            between = self._before_doubt(tried)
        return None if between is None else self._candidate(index, between)

    def _before_doubt(self, tried: Sequence[Candidate]) -> int | None:
        """A place between the last that stays within the limit and the first of which that stays in doubt."""
        sure = max((each.place for each in tried if self._keeps(each)), default=-1)
        beyond = [each for each in tried if each.place > sure]
        if (
            not beyond
            or not (beyond[0].dropped or len(beyond[0].time) >= _DOUBTFUL)
            or self._flat(tried, sure, beyond[0].place)
        ):
            return None
        place = (sure + beyond[0].place) // 2
        return place if place > sure else None

    def _tried_on(self, index: int) -> list[Candidate]:
        """Settings of a ladder of which there are trials, from fast to slow."""
        tried = [each for each in self.candidates if each.ladder == index and each.energy]
        return sorted(tried, key=lambda each: each.place)

    def _bad(self, index: int, tried: Sequence[Candidate]) -> int:
        """The first place of a ladder that seems too slow, or needs clearly more energy than one before."""
        bad, least = self._broken_off[index], 0.0
        for each in tried:
            energy = self.energy(each)
            risen = energy.mean - least > _RISEN * math.sqrt(2.0) * energy.half / _SURE
            if self._slow(each) or risen:
                return min(bad, each.place)
            least = min(least, energy.mean)
        return bad

    def _slow(self, candidate: Candidate) -> bool:
        """Whether a setting seems to be slower than allowed."""
        time = self.time(candidate)
        return time.mean - time.half / _SURE > self.limit + TOLERANCE

    def _candidate(self, ladder: int, place: int) -> Candidate:
        found = next((each for each in self.candidates if (each.ladder, each.place) == (ladder, place)), None)
        if found is None:
            found = Candidate(ladder, place, self.ladders[ladder].settings[place])
            self.candidates.append(found)
        return found

    def _flat(self, tried: Sequence[Candidate], fine: int, bad: int) -> bool:
        """Whether what is left between the last fine place and the first bad one could hardly save more."""
        until = [each for each in tried if each.place <= fine]
        if len(until) < 2:
            return False
        before, last = until[-2:]
        slope = (self.energy(last).mean - self.energy(before).mean) / (last.place - before.place)
        return abs(slope) * (bad - fine - 1) < 0.5 * self.tolerance

    def _between(self, index: int, fine: Sequence[Candidate]) -> int | None:
        """A place beside the best where there may be something clearly better, if energy is convex along the ladder."""
        if self._looks[index] >= _LOOKS_BETWEEN or len(fine) < 2:
            return None
        points = [(-1, 0.0), *((each.place, self.energy(each).mean) for each in fine)]
        best = min(range(len(points)), key=lambda at: points[at][1])
        for at in (best - 1, best):  # the gap before it, and the one after
            if at < 1 or at + 2 >= len(points) or points[at + 1][0] - points[at][0] < 2:
                continue
            place, least = _lowest_between(*points[at - 1 : at + 3])
            if points[best][1] - least > self.tolerance:
                self._looks[index] += 1
                return place
        return None

    # ---- what trials showed ----------------------------------------------------------------------------------

    def add(self, candidate: Candidate, time: float, energy: float, time_noise: float) -> None:
        """Take note of a trial.

        Args:
            candidate: that was tried.
            time: logarithm of an iteration's time against that at the default clocks.
            energy: likewise.
            time_noise: variance of ``time`` from how iterations differ.
        """
        candidate.time.append(time)
        candidate.energy.append(energy)
        candidate.time_noise.append(time_noise)
        self._drop()

    def too_slow(self, candidate: Candidate, time: float) -> None:
        """A trial was abandoned, since iterations took too long."""
        candidate.dropped = f"{math.expm1(time):+.1%} time"
        candidate.slow = True
        self._broken_off[candidate.ladder] = min(self._broken_off[candidate.ladder], candidate.place)

    def failed(self, candidate: Candidate, why: str, *, at_once: bool = False) -> None:
        """A trial said nothing, such as of a setting that was refused."""
        candidate.failures += 1
        if at_once or candidate.failures >= _MOST_FAILURES:
            candidate.dropped = why
            if not candidate.energy:
                self._broken_off[candidate.ladder] = min(self._broken_off[candidate.ladder], candidate.place)

    def rehearse(self, candidate: Candidate) -> None:
        """A setting was set in a rehearsal, where nothing is compared: the walk continues, and it is in no race."""
        candidate.dropped = "rehearsed"
        candidate.rehearsed = True

    def time(self, candidate: Candidate) -> LogMean:
        """Time of an iteration at a setting against the default clocks; its half length leaves no doubt."""
        return self._mean(candidate.time, self._time_variance())

    def energy(self, candidate: Candidate) -> LogMean:
        """Energy of an iteration at a setting against the default clocks; its half length leaves no doubt."""
        return self._mean(candidate.energy, self._pooled([each.energy for each in self.candidates], _USUAL**2))

    @property
    def tried(self) -> list[Candidate]:
        """Settings that were tried, in the order in which they first were."""
        return [each for each in self.candidates if each.energy or each.dropped]

    @property
    def left(self) -> list[Candidate]:
        """Of these, the ones in the race."""
        return [each for each in self.tried if not each.dropped]

    @property
    def best(self) -> Candidate | None:
        """The setting of least energy among those certain to stay within the limit; ``None`` for the default clocks."""
        sure = [each for each in self.left if self._keeps(each) and self.energy(each).mean < 0.0]
        return min(sure, key=lambda each: self.energy(each).mean, default=None)

    @property
    def known(self) -> bool:
        """Whether no setting could be better than the best by more than the tolerance."""
        return self.rounds > 0 and self.regret <= self.tolerance if self.left else True

    @property
    def regret(self) -> float:
        """How much better than the best another setting might be, at most, as a fraction of energy."""
        best = self.best
        others = [self._could_gain(each, best) for each in self.left if each is not best]
        return max(0.0, *others) if others else 0.0

    @property
    def winner(self) -> Candidate | None:
        """What to hold now: the best, where it saves beyond doubt.

        Where no setting stays within the limit beyond doubt, which takes long if none is allowed, the best of those that
        likely do: a guard watches it.
        """
        likely = [each for each in self.left if self._keeps(each, _LIKELY)]
        best = self.best or min(likely, key=lambda each: self.energy(each).mean, default=None)
        if best is None:
            return None
        energy = self.energy(best)
        return best if energy.mean + energy.half + self.error < 0.0 else None

    # ---- inside ----------------------------------------------------------------------------------------------

    def _drop(self) -> None:
        best = self.best
        for each in self.left:
            doubtful = not self._keeps(each)
            # What it seems to save beyond the best, in units of the tolerance.
            worth = 1.0 if best is None else (self.energy(best).mean - self.energy(each).mean) / self.tolerance
            long = best is not None and len(each.time) >= _LONG_DOUBTFUL * max(worth, 1.0)
            if self._too_slow(each) or (doubtful and (long or self.time(each).half < _CLOSE)):
                each.dropped = f"{math.expm1(self.time(each).mean):+.1%} time"
                each.slow = True
            elif each is not best and self._could_gain(each, best) <= 0.0:
                each.dropped = "more energy"

    def _too_slow(self, candidate: Candidate) -> bool:
        """Whether a setting is slower than allowed beyond doubt, for which faster settings may speak as well."""
        faster = [each for each in reversed(self._tried_on(candidate.ladder)) if each.place <= candidate.place]
        return any(mean - self.sure * error > self.limit + TOLERANCE for mean, error in self._running_means(faster))

    def _keeps(self, candidate: Candidate, errors: float = 2.0) -> bool:
        """Whether a setting stays within the limit, for which slower settings may speak as well."""
        slower = [each for each in self._tried_on(candidate.ladder) if each.place >= candidate.place]
        sure = self.sure * errors / _SURE
        return any(mean + sure * error <= self.limit + TOLERANCE for mean, error in self._running_means(slower))

    def _running_means(self, settings: Sequence[Candidate]) -> Iterator[tuple[float, float]]:
        """Mean time, with its standard error, of the first setting, of the first two, and so on."""
        variance, total, count = self._time_variance(), 0.0, 0
        for each in settings:
            total += math.fsum(each.time)
            count += len(each.time)
            yield total / count, math.sqrt(variance / count)

    def _could_gain(self, candidate: Candidate, best: Candidate | None) -> float:
        """By how much a setting may need less energy than the best one, at most."""
        own = self.energy(candidate)
        if best is None:
            return own.half - own.mean
        other = self.energy(best)
        return other.mean - own.mean + math.hypot(own.half, other.half)

    def _mean(self, values: Sequence[float], variance: float) -> LogMean:
        """The mean with a half length that leaves no doubt, for all that is looked at again and again."""
        count = len(values)
        half = self.sure * math.sqrt(variance / count)
        return LogMean(math.fsum(values) / count, half)

    @property
    def sure(self) -> float:
        """Standard errors that leave no doubt, which is what half lengths are made of."""
        freedom = _USUAL_TRIALS + sum(len(each.energy) - 1 for each in self.candidates if each.energy)
        return _SURE * student_t(freedom) / _NORMAL

    def _time_variance(self) -> float:
        noises = [noise for each in self.candidates for noise in each.time_noise]
        return self._pooled(
            [each.time for each in self.candidates], math.fsum(noises) / len(noises) if noises else _USUAL**2
        )

    @staticmethod
    def _pooled(trials: Sequence[Sequence[float]], usual: float) -> float:
        """Variance of a trial, from how trials of the same setting differ and from what is usual."""
        squares, freedom = _USUAL_TRIALS * usual, float(_USUAL_TRIALS)
        for values in trials:
            if len(values) > 1:
                mean = math.fsum(values) / len(values)
                squares += math.fsum((value - mean) ** 2 for value in values)
                freedom += len(values) - 1
        return squares / freedom


def _lowest_between(*points: tuple[int, float]) -> tuple[int, float]:
    """Where a convex function through four points is least at best between the middle two, and how little that may be.

    It is above the line through the first two points, and above that through the last two.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = points
    falling, rising = (y1 - y0) / (x1 - x0), (y3 - y2) / (x3 - x2)
    meet = 0.5 * (x1 + x2) if rising <= falling else (y2 - y1 + falling * x1 - rising * x2) / (falling - rising)
    place = min(max(round(meet), x1 + 1), x2 - 1)
    return place, max(y1 + falling * (place - x1), y2 + rising * (place - x2))
