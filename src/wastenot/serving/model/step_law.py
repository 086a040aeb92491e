"""What steps cost at clocks, sizes and contexts between those measured: a law of a few parameters, fitted.

The time of a step of *n* new tokens that attend to *a* others (all pairs counted), at clock *f* with r = maximum clock / f:

    time = ((w0 + w1 r + w2 n)^p + (g n r)^p)^(1/p) + (k0 + k1 r) a

The first term is what does not depend on how much is computed: weights read from memory, the host; the second is
arithmetic, which scales with the clock; the larger of the two counts (p says how sharply they meet). The third is
attention, which reads the cache. No parameter is negative. The mean power is

    power = s + (d1 / r + d2 / r^5) (1 + u U + v log2 n)

with U the fraction of the time that arithmetic takes: linear in the clock as long as the voltage is at its least, and
steep where it rises. What measurements are above and below the law is smoothed and added (a Gaussian process over the
logarithms of clock, tokens and context), so that the law matters most where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.serving.model.steps import MeasuredStep, averaged

_MOST = 1500  # steps that residuals are smoothed over
_LENGTHS: Final = np.array([0.5, 1.0, 3.0])  # over which they are alike: in log clock, log2 tokens, log2 context
_SPREAD, _NOISE = 0.06, 0.02  # how far measurements are from the law, and repeats from each other
_NEAR = 64.0  # tokens of context that make no difference
_OUTLYING = 0.05  # relative differences beyond count less than in least squares
_SHARPNESS = (0.5, 2.0)  # log(p - 1) that the search begins at
_SHARPEST = 3.0
_LEAST_SHARP = -1.0
_STEEPEST = 0.5  # dynamic power by twice the tokens
_WEAK = 1e-3  # pull toward 0, for parameters that the measurements say nothing of
_POWER_PULL = 0.01  # of how power varies with size toward 0; without it few steps would say anything of sizes between
_PAIR_IN_PREFILL = 3e-5  # of a token's arithmetic: 4 x layers x width / (2 x weights) FLOPs in LLMs of 7B to 70B weights
_PAIR_PULL = 5e-3  # toward 0, for each time that; else few long prompts would leave it open


@dataclass(frozen=True, slots=True, eq=False)
class StepLaw:
    """A fitted law of the time and power of one phase's steps, at clocks that differ in the core clock alone.

    Attributes:
        greatest_mhz: core clock that r is relative to; 1 where the clock is automatic.
        time: w0, w1, w2, g, k0, k1, log(p - 1).
        power: s, d1, d2, u, v; ``None`` where power was not measured.
        features: of the steps measured; shape (steps, 3).
        time_weights: by which the steps' neighbourhoods correct the logarithm of time; shape (steps,).
        power_weights: the same of power.
    """

    greatest_mhz: float
    time: FloatArray
    power: FloatArray | None
    features: FloatArray
    time_weights: FloatArray
    power_weights: FloatArray | None

    def time_s(self, core_mhz: float | None, tokens: FloatArray, attended: FloatArray) -> FloatArray:
        """Times of steps at a clock, by their new tokens and how many pairs of tokens attend; any shape."""
        ratio, shape = self._ratio(core_mhz), np.broadcast_shapes(tokens.shape, attended.shape)
        n, a = (np.broadcast_to(each, shape).ravel() for each in (tokens, attended))
        near = _alike(_features(np.full(n.shape, ratio), n, a), self.features)
        found = _time(self.time, ratio, n, a)[0] * np.exp(near @ self.time_weights)
        return np.asarray(found.reshape(shape), dtype=np.float64)

    def power_w(self, core_mhz: float | None, tokens: FloatArray, attended: FloatArray) -> FloatArray:
        """Mean powers of such steps; NaN where power was not measured."""
        ratio, shape = self._ratio(core_mhz), np.broadcast_shapes(tokens.shape, attended.shape)
        n, a = (np.broadcast_to(each, shape).ravel() for each in (tokens, attended))
        if self.power is None or self.power_weights is None:
            return np.full(shape, np.nan)
        near = _alike(_features(np.full(n.shape, ratio), n, a), self.features)
        busy = _time(self.time, ratio, n, a)[1]
        found = _power(self.power, ratio, busy, n) * np.exp(near @ self.power_weights)
        return np.asarray(found.reshape(shape), dtype=np.float64)

    def of_steps(self, steps: Sequence[MeasuredStep]) -> tuple[FloatArray, FloatArray]:
        """Time and power that the law gives to steps."""
        rows = [
            (law(each.setting.core_mhz, np.array([each.new_tokens]), np.array([each.attended]))[0])
            for law in (self.time_s, self.power_w)
            for each in steps
        ]
        return np.array(rows[: len(steps)]), np.array(rows[len(steps) :])

    def _ratio(self, core_mhz: float | None) -> float:
        return 1.0 if core_mhz is None else self.greatest_mhz / core_mhz


def fit_law(steps: Iterable[MeasuredStep]) -> StepLaw:
    """Fit the law to steps of one phase, one parallel degree, and one memory clock and power limit.

    Args:
        steps: measured; repeats are averaged first. All at core clocks, or all at the automatic one. Power is fitted if
            all have it.
    """
    rows = averaged(steps)
    clocks = np.array([1.0 if each.setting.core_mhz is None else each.setting.core_mhz for each in rows])
    n, a, time, power = (
        np.array([getattr(each, name) for each in rows]) for name in ("new_tokens", "attended", "time_s", "power_w")
    )
    ratio = clocks.max() / clocks
    import scipy.optimize  # noqa: F401  loads a BLAS of its own, which is to be limited too

    with single_threaded():
        law = _fit_time(ratio, n, a, time, is_prefill=rows[0].phase == "prefill")
        fitted, busy = _time(law, ratio, n, a)
        features = _features(ratio, n, a)
        kept = np.arange(len(rows))[:: -(-len(rows) // _MOST)]
        near = _alike(features[kept], features[kept])
        weights = _weights(near, np.log(time / fitted)[kept])
        powers = power_weights = None
        if np.isfinite(power).all():
            powers = _fit_power(ratio, busy, n, power)
            power_weights = _weights(near, np.log(power / _power(powers, ratio, busy, n))[kept])
    return StepLaw(float(clocks.max()), law, powers, features[kept], weights, power_weights)


def _fit_time(ratio: FloatArray, n: FloatArray, a: FloatArray, time: FloatArray, *, is_prefill: bool) -> FloatArray:
    from scipy.optimize import least_squares  # takes a quarter of a second to import

    least, per_token = time.min(), time.max() / n.max()
    per_pair = time.max() / a.max() / 10 if a.max() > 0 else 0.0
    pull = np.full(6, _WEAK)
    if is_prefill:
        per_pair = min(per_pair, _PAIR_IN_PREFILL * per_token)
        pull[4:] = _PAIR_PULL
    scale = np.array([least, least, per_token / 10, per_token, per_pair, per_pair, 1.0])
    several = bool(np.ptp(ratio) > 0)
    free = np.flatnonzero([True, several, True, True, per_pair > 0, per_pair > 0 and several, True])
    start = np.array([0.5, 0.3, 0.1, 0.5, 0.1, 0.1, 0.0])
    best: tuple[float, FloatArray] | None = None
    for sharpness in _SHARPNESS:
        start[-1] = sharpness

        def parameters(values: FloatArray) -> FloatArray:
            full = np.zeros(7)
            full[free] = values * scale[free]
            return full

        def residuals(values: FloatArray) -> FloatArray:
            away = np.log(np.maximum(_time(parameters(values), ratio, n, a)[0], 1e-12) / time)
            return np.concatenate([away, pull[free[:-1]] * values[:-1]])

        bounds = ([*[0.0] * (len(free) - 1), _LEAST_SHARP], [*[np.inf] * (len(free) - 1), _SHARPEST])
        found = least_squares(residuals, start[free], bounds=bounds, loss="soft_l1", f_scale=_OUTLYING)
        if best is None or found.cost < best[0]:
            best = float(found.cost), parameters(found.x)
    assert best is not None
    return best[1]


def _fit_power(ratio: FloatArray, busy: FloatArray, n: FloatArray, power: FloatArray) -> FloatArray:
    from scipy.optimize import least_squares  # as above

    clocks = len(np.unique(ratio))
    free = np.flatnonzero([True, clocks > 1, clocks > 2, True, True])  # two clocks cannot tell how steep it is between
    if clocks == 1:
        free = np.array([1, 3, 4])  # all of the power may vary with size
    scale = np.array([power.mean()] * 3 + [1.0, 1.0])

    def parameters(values: FloatArray) -> FloatArray:
        full = np.zeros(5)
        full[free] = values * scale[free]
        return full

    def residuals(values: FloatArray) -> FloatArray:
        away = np.log(np.maximum(_power(parameters(values), ratio, busy, n), 1e-9) / power)
        return np.concatenate([away, _POWER_PULL * values[-2:]])

    start, low, high = (
        np.array(each)[free]
        for each in (
            [0.5, 0.2, 0.2, 0.1, 0.1],
            [0.0, 0.0, 0.0, -_STEEPEST, -_STEEPEST],
            [np.inf, np.inf, np.inf, np.inf, _STEEPEST],
        )
    )
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_OUTLYING)
    return parameters(found.x)


def _time(law: FloatArray, ratio: FloatArray | float, n: FloatArray, a: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Times by the law, and the fraction of each that arithmetic takes."""
    w0, w1, w2, g, k0, k1, sharpness = law
    p = 1.0 + np.exp(sharpness)
    waiting, computing = w0 + w1 * ratio + w2 * n, g * n * ratio
    larger = np.maximum(np.maximum(waiting, computing), 1e-12)
    together = larger * ((waiting / larger) ** p + (computing / larger) ** p) ** (1 / p)
    time = together + (k0 + k1 * ratio) * a
    return np.asarray(time, dtype=np.float64), np.minimum(computing / time, 1.0)


def _power(law: FloatArray, ratio: FloatArray | float, busy: FloatArray, n: FloatArray) -> FloatArray:
    s, d1, d2, u, v = law
    active: FloatArray = np.maximum(1.0 + u * busy + v * np.log2(n), 0.0)
    return np.asarray(s + (d1 / ratio + d2 / np.asarray(ratio) ** 5) * active, dtype=np.float64)


def _features(ratio: FloatArray, n: FloatArray, a: FloatArray) -> FloatArray:
    features = np.stack([np.log(ratio), np.log2(n), np.log2(a / n + _NEAR)], axis=1)
    return np.asarray(features / _LENGTHS, dtype=np.float64)


def _alike(some: FloatArray, others: FloatArray) -> FloatArray:
    """Covariance of how far steps are from the law; shape (some, others)."""
    apart = np.square(some[:, None, :] - others[None, :, :]).sum(axis=2)
    return np.asarray(_SPREAD**2 * np.exp(-0.5 * apart), dtype=np.float64)


def _weights(near: FloatArray, residuals: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(near + _NOISE**2 * np.eye(len(near)), residuals), dtype=np.float64)
