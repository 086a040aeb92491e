"""Which power limit or clock a job runs at, at a batch size: what is worth measuring, and when the best is known.

    settings     250 W   200 W   150 W   100 W
    batch 128      ●       ○       ●       ·      ● measured   ○ told by the others   · not worth a slice
    batch 256      ·       ·       ●       ·      its curve is expected to be like that of 128

Time and power by setting follow a curve of physics with a few unknown numbers: where the limit begins to be felt, how much
of the time is the core's, how much power is static. Many curves are drawn and weighted by how well they fit what was
measured; those of a batch size begin with what the nearest one that was measured has left. What they all miss is a smooth
deviation whose size is learned. A slice at another setting is worth it once what it is expected to save, over as much time
as the job has been seen to run (what has lasted so long is expected to last as long again), exceeds what it is expected to
cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import Setting
from wastenot.jobs.model.objective import cost
from wastenot.jobs.model.setting_curves import Curves, drawn_curves, resampled_curves
from wastenot.jobs.tables.records import JobTerms, Speed

TOLERANCE = 0.0005
"""Fraction of the cost below which nothing more is worth knowing."""

SLICE_S = 4.0
"""How long a slice lasts in the long run, the time included in which a regulator comes to rest."""

_FIRST_S = 2.0  # of the first slices, which have large differences to tell
_SHARE = 0.1  # of the time seen so far, that a slice may last from there on

_CURVES = 1536
_ELSEWHERE = 2.0  # octaves of the batch size, that another device is as far away as
_DRAWS = 192
_LEAST_ERROR = 0.002  # of a slice, however steady it was
_KNOWN_WELL = 0.003  # error of a setting's cost, below which it is not measured again
_DEVIATION = 0.02  # by which curves and what is measured are expected to differ; learned from there on
_BELIEF = 3.0  # settings, as many as that expectation counts for
_ROUGH = 0.35  # of the deviation's variance that neighbours do not share
_USUAL_POWER = 0.8  # of the greatest, where that is not known
_MOST_POWER = 0.3  # logarithm of the greatest, above which no draw is believed
_REACH = 0.35  # in logarithms of a setting, within which the rest is shared


def slice_length_s(seen_s: float) -> float:
    """How long a slice lasts, given how long the job has been seen to run: short ones do for large differences."""
    return min(max(_FIRST_S, _SHARE * seen_s), SLICE_S)


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting to measure.

    Attributes:
        setting: the setting.
        from_s: of the job's running time; before, what it may save is not worth what it may cost.
        why: a clause for people.
    """

    setting: Setting
    from_s: float
    why: str


@dataclass(slots=True)
class _Known:
    """What was measured at a setting: logarithms, each with its variance."""

    time: float
    time_variance: float
    power: float
    power_variance: float

    @property
    def variance(self) -> float:
        """Of both."""
        return self.time_variance + self.power_variance

    def add(self, other: _Known) -> None:
        """Combine two measurements of the same."""
        self.time, self.time_variance = _combined(self.time, self.time_variance, other.time, other.time_variance)
        self.power, self.power_variance = _combined(self.power, self.power_variance, other.power, other.power_variance)


@dataclass(frozen=True, slots=True, eq=False)
class _Belief:
    """Draws from what is believed of a batch size.

    Attributes:
        costs: of runs at each setting; shape (draws, settings).
        prices: expected cost of a slice at each setting, whatever bounds there are on whole runs; shape (settings,).
        best: index of the setting of least expected cost.
    """

    costs: FloatArray
    prices: FloatArray
    best: int

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.costs.mean(axis=0), dtype=np.float64)


class Limits:
    """What is known of the settings of a job on a device, at all its batch sizes.

    Args:
        terms: of the job; its settings are those to choose among.
        like: what is known of the job on another device, whose curves are like those here; ``None`` for nothing.
    """

    def __init__(self, terms: JobTerms, *, like: Limits | None = None) -> None:
        self.terms, self._like = terms, like
        self._known: dict[int, dict[int, _Known]] = {}
        self._beliefs: dict[tuple[int, float | None], _Belief] = {}
        self._curves: dict[int, Curves] = {}
        self._starts: dict[int, Curves] = {}
        self._near: FloatArray | None = None
        self._prior: Curves | None = None
        self._refused: set[int] = set()

    # ---- what it is told -------------------------------------------------------------------------------------

    def measured(self, speed: Speed) -> None:
        """Take note of a slice, or of an epoch.

        Times of a batch size may be of any piece of work, as long as it is the same one.
        """
        if speed.setting not in self.terms.settings:
            return
        place = self.terms.settings.index(speed.setting)
        new = _Known(
            math.log(speed.epoch_time_s),
            max(speed.time_error, _LEAST_ERROR) ** 2,
            math.nan if speed.power_w is None else math.log(speed.power_w),
            max(speed.power_error, _LEAST_ERROR) ** 2,
        )
        batch_size = speed.batch_size
        known = self._known.setdefault(batch_size, {})
        if place in known:
            known[place].add(new)
        else:
            known[place] = new
        self._changed(batch_size)

    def forget(self, batch_size: int) -> None:
        """Drop what was measured at a batch size, as the job no longer runs like that."""
        self._known.pop(batch_size, None)
        self._changed(batch_size)

    def refused(self, setting: Setting) -> None:
        """A setting cannot be set on this device, and is not to be chosen."""
        self._refused.add(self.terms.settings.index(setting))
        self._beliefs.clear()

    def _changed(self, batch_size: int) -> None:
        """What is believed of a batch size does not hold any more, nor of those that it tells about."""
        for key in [each for each in self._beliefs if each[0] == batch_size or not self._known.get(each[0])]:
            del self._beliefs[key]
        for held, own in ((self._curves, True), (self._starts, False)):
            for size in [each for each in held if (own and each == batch_size) or not self._known.get(each)]:
                del held[size]

    @property
    def choices(self) -> int:
        """Settings that may be chosen."""
        return len(self.terms.settings) - len(self._refused)

    def scale(self, batch_size: int, factor: float) -> None:
        """Times measured at a batch size were of another piece of work; multiply them."""
        for known in self._known.get(batch_size, {}).values():
            known.time += math.log(factor)
        self._changed(batch_size)

    # ---- what it answers -------------------------------------------------------------------------------------

    def best(self, batch_size: int, epochs: float | None = None) -> Setting:
        """The setting to hold: that of least expected cost.

        Args:
            batch_size: the batch size.
            epochs: expected to the target, which bounds on the whole run need.
        """
        if len(self.terms.settings) == 1:
            return self.terms.settings[0]
        return self.terms.settings[self._belief(batch_size, epochs).best]

    def next(
        self, batch_size: int, *, seen_s: float, slice_s: float | None = None, epochs: float | None = None
    ) -> Trial | None:
        """What to measure next; ``None`` once the choice is known.

        Args:
            batch_size: the batch size that runs.
            seen_s: how long the job has been seen to run at it, which is taken for how long it still will.
            slice_s: how long a slice lasts; by default :func:`slice_length_s`.
            epochs: as for :meth:`best`.
        """
        settings, lasts_s = self.terms.settings, slice_length_s(seen_s) if slice_s is None else slice_s
        if len(settings) < 2:
            return None
        belief, known = self._belief(batch_size, epochs), self._known.get(batch_size, {})
        best, mean = belief.best, belief.mean
        if best not in known:
            return Trial(settings[best], 0.0, "expected to be the cheapest")
        own = belief.costs[:, [best]]
        gains = np.maximum(own - belief.costs, 0.0).mean(axis=0) / mean[best]
        prices = np.maximum(belief.prices / belief.prices[best] - 1.0, 0.0)
        worth = gains > TOLERANCE
        for place in known:  # measured again only where a slice would tell something new
            worth[place] &= max(known[place].variance, known[best].variance) > _KNOWN_WELL**2
        if not worth.any():
            return None
        from_s = np.where(worth, prices * lasts_s / np.maximum(gains, 1e-12), np.inf)
        ready = from_s <= seen_s
        # Of those that are worth it now the one that tells most; otherwise the one that will be first.
        place = int(np.where(ready, gains, -np.inf).argmax()) if ready.any() else int(from_s.argmin())
        if place in known and known[best].variance > known[place].variance:
            return Trial(settings[best], float(from_s[place]), "to measure the best setting more precisely")
        return Trial(settings[place], float(from_s[place]), f"may cost {gains[place]:.1%} less than the best known setting")

    def measured_at(self, batch_size: int) -> tuple[Setting, ...]:
        """Settings that were measured at a batch size."""
        return tuple(self.terms.settings[place] for place in sorted(self._known.get(batch_size, {})))

    def known(self, batch_size: int, setting: Setting) -> bool:
        """Whether a setting was measured at a batch size."""
        return setting in self.terms.settings and self.terms.settings.index(setting) in self._known.get(batch_size, {})

    def shortfall(self, batch_size: int, epochs: float | None = None) -> float:
        """Fraction of the cost that the best setting is expected to save against the one that is held."""
        belief = self._belief(batch_size, epochs)
        own = belief.costs[:, belief.best]
        return float((own - belief.costs.min(axis=1)).mean() / own.mean())

    def speed(self, device: str, batch_size: int, setting: Setting) -> Speed | None:
        """What was measured at a setting, all its slices together; ``None`` where none was."""
        if not self.known(batch_size, setting):
            return None
        known = self._known[batch_size][self.terms.settings.index(setting)]
        power_w = math.exp(known.power) if math.isfinite(known.power) else None
        errors = math.sqrt(known.time_variance), math.sqrt(known.power_variance)
        return Speed(device, batch_size, setting, math.exp(known.time), power_w, *errors)

    # ---- what is believed ------------------------------------------------------------------------------------

    @property
    def _scale_w(self) -> float:
        """What powers are fractions of."""
        if self.terms.max_power_w is not None:
            return self.terms.max_power_w
        # Where the device reports no limit: training rarely needs all the power there is.
        seen = [math.exp(each.power) for known in self._known.values() for each in known.values()]
        return max([w / _USUAL_POWER for w in seen if math.isfinite(w)], default=1.0)

    def _belief(self, batch_size: int, epochs: float | None) -> _Belief:
        if self.terms.within_s is None:
            epochs = None  # the same setting is best, however many there are
        key = batch_size, epochs
        if key not in self._beliefs:
            self._beliefs[key] = self._believe(batch_size, epochs)
        return self._beliefs[key]

    def _believe(self, batch_size: int, epochs: float | None) -> _Belief:
        curves, known = self._curves_of(batch_size), self._known.get(batch_size, {})
        rng = np.random.default_rng(5)
        chosen = rng.choice(len(curves.weights), _DRAWS, p=curves.weights)
        places = sorted(known)
        rows = [known[place] for place in places]
        time = self._deviated(
            curves.time[chosen] + curves.offset[chosen, None],
            places,
            np.array([row.time for row in rows]),
            np.array([row.time_variance for row in rows]),
            rng,
        )
        power = self._deviated(
            curves.power[chosen],
            places,
            np.array([row.power for row in rows]) - math.log(self._scale_w),
            np.array([row.power_variance for row in rows]),
            rng,
        )
        time_s, power_w = np.exp(time), np.exp(np.minimum(power, _MOST_POWER)) * self._scale_w
        costs = self._cost(time_s, power_w, epochs)
        free = replace(self.terms, within_s=None, power_budget_w=None)
        prices = cost(free, time_s, time_s * power_w).mean(axis=0)
        costs[:, sorted(self._refused)] = math.inf
        return _Belief(costs, prices, int(costs.mean(axis=0).argmin()))

    def _cost(self, time_s: FloatArray, power_w: FloatArray, epochs: float | None) -> FloatArray:
        if self.terms.within_s is not None:
            if epochs is None:
                return time_s  # nothing is late that is as fast as can be
            return cost(self.terms, epochs * time_s, epochs * time_s * power_w)
        return cost(self.terms, time_s, time_s * power_w)

    def _deviated(
        self, drawn: FloatArray, places: list[int], seen: FloatArray, variance: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Curves with draws of what they miss, given what was seen at some settings; shape (draws, settings)."""
        shared = self._shared()
        if not np.isfinite(seen).all():  # nothing measures it
            places, seen, variance = [], np.empty(0), np.empty(0)
        apart = seen - drawn[:, places]
        misfit = float((apart**2).mean(axis=0).sum()) if places else 0.0
        prior = (_BELIEF * _DEVIATION**2 + misfit) / (_BELIEF + len(places)) * shared
        if places:
            gain = np.linalg.solve(prior[np.ix_(places, places)] + np.diag(variance), prior[places]).T
            drawn = drawn + apart @ gain.T
            prior = prior - gain @ prior[places]
        values, vectors = np.linalg.eigh(0.5 * (prior + prior.T))
        normal = rng.standard_normal((len(drawn), drawn.shape[1]))
        deviated: FloatArray = drawn + normal * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        return deviated

    def _shared(self) -> FloatArray:
        """How the deviations of settings go together."""
        if self._near is not None:
            return self._near
        settings = self.terms.settings
        highest_w = max((each.power_limit_w for each in settings if each.power_limit_w is not None), default=1.0)
        highest_mhz = max((each.core_mhz for each in settings if each.core_mhz is not None), default=1.0)
        parts = ((s.power_limit_w or highest_w, s.core_mhz or highest_mhz, s.memory_mhz or 1.0) for s in settings)
        where = np.array([[math.log(part) for part in each] for each in parts])
        apart = ((where[:, None] - where[None]) ** 2).sum(axis=2)
        near: FloatArray = (1.0 - _ROUGH) * np.exp(-0.5 * apart / _REACH**2) + _ROUGH * np.eye(len(where))
        self._near = near
        return near

    def _curves_of(self, batch_size: int) -> Curves:
        """Curves that fit what was measured at a batch size, or at the nearest."""
        if batch_size not in self._curves:
            if batch_size not in self._starts:
                self._starts[batch_size] = self._start(batch_size)
            self._curves[batch_size] = self._weighted(self._starts[batch_size], batch_size)
        return self._curves[batch_size]

    def _start(self, batch_size: int) -> Curves:
        """Curves of a batch size by what the nearest other one tells; they stay once it has slices of its own."""
        others = [size for size in self._known if size != batch_size and self._known[size]]
        first = self._first(batch_size)
        if not others:
            return first
        nearest = _nearest(others, batch_size)
        return resampled_curves(self.terms, self._weighted(first, nearest), abs(math.log2(nearest / batch_size)), _CURVES)

    def _first(self, batch_size: int) -> Curves:
        """Curves of a batch size of which nothing is known on this device."""
        elsewhere = [] if self._like is None else [size for size in self._like._known if self._like._known[size]]
        if self._like is not None and elsewhere:
            nearest = _nearest(elsewhere, batch_size)
            apart = abs(math.log2(nearest / batch_size)) + _ELSEWHERE
            return resampled_curves(self.terms, self._like._curves_of(nearest), apart, _CURVES)
        if self._prior is None:
            self._prior = drawn_curves(self.terms, _CURVES)
        return self._prior

    def _weighted(self, curves: Curves, batch_size: int) -> Curves:
        known = self._known.get(batch_size, {})
        places = sorted(known)
        if not places:
            return curves
        rows = [known[place] for place in places]
        power = np.array([row.power for row in rows]) - math.log(self._scale_w)
        return curves.fitted(
            places,
            np.array([row.time for row in rows]),
            np.array([row.time_variance + _DEVIATION**2 for row in rows]),
            power if np.isfinite(power).all() else None,
            np.array([row.power_variance + _DEVIATION**2 for row in rows]),
        )


def _nearest(sizes: list[int], batch_size: int) -> int:
    return min(sizes, key=lambda size: abs(math.log(size / batch_size)))


def _combined(first: float, first_variance: float, second: float, second_variance: float) -> tuple[float, float]:
    total = 1.0 / first_variance + 1.0 / second_variance
    return (first / first_variance + second / second_variance) / total, 1.0 / total
