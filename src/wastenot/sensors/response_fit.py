"""Window or lag, delay and its drift from readings of known load: a search over a grid, then robust least squares.

Given response, delay and lags of power, a reading is a sum over idle power, busy power and what first and last executions
differ by, so that only the former are searched for; the latter follow from each guess (variable projection: Golub and
Pereyra, SIAM J. Numer. Anal. 10, 1973). Standard errors allow for all of them, and for readings of the same run that err
together (the sandwich of White, Econometrica 48, 1980, by runs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from wastenot.arrays import FloatArray, IndexArray
from wastenot.sensors.model import Knots, Load, Seen, Sensing, columns_of

_HUBER = 2.5  # noises from which a reading counts less
_DIFFERENCE = 0.5  # belief in how much executions differ from their level, as a share of it
_DRIFT = 0.1  # belief in how much powers drift over the time
_LAG_DOUBT = 1.2  # standard deviation of the logarithm of a lag, around its guess
_FIXED = 1e-3  # of what is taken as guessed
_SHARE_DOUBT = 1.0  # of the logit of the slow lag's share
_SHORTEST_S = 1e-7
_SCALES = np.array([0.1, 0.1, 0.5, 0.5, 0.5, 0.1, 0.1])
_DIFFERENCE_STEP = 1e-5  # in sums of squares of times fewer digits are left than usual
_FARTHEST = 3.0  # logarithms that window and lags may move by in a fit
_FARTHEST_SLOW = 1.1  # that lags of power may, where only the sensor's own is long enough to be told
NO_KNOTS = Knots(np.zeros(0), np.zeros(0), 0)


@dataclass(frozen=True, slots=True, eq=False)
class SensorFit:
    """What was found.

    Attributes:
        sensing: response, delay and lags.
        span_se_s, delay_se_s, drift_se, sample_se_s: standard errors of what is named so in it.
        idle_w, busy_w: power at rest and in steady work, in the middle of the time that was looked at.
        left_w: readings less what the fit says; shape (readings,).
        usual_w, other_usual_w: what it leaves of readings that tell of the response, root mean square, and what the best
            fit of the other response does (of a lag beside a mean, of a mean beside a lag); ``None`` where no other was
            looked at.
    """

    sensing: Sensing
    span_se_s: float
    delay_se_s: float
    drift_se: float
    sample_se_s: float
    idle_w: float
    busy_w: float
    left_w: FloatArray
    usual_w: float | None = None
    other_usual_w: float | None = None


def search(seen: Seen, load: Load, windows_s: FloatArray, middles_s: FloatArray) -> Sensing:
    """The window and delay of a grid that explain the readings best, by a load that comes and goes at once.

    Args:
        seen: readings.
        load: that they saw.
        windows_s: to look at.
        middles_s: times from a window's middle to the reading's stamp, to look at.
    """
    edges = np.stack([load.begin_s, load.end_s], axis=1).ravel()
    worked = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (np.arange(len(edges) - 1) % 2 == 0))])
    power = seen.power_w - seen.power_w.mean()
    most, best = -np.inf, (float(windows_s[0]), 0.0)
    for middle in middles_s:
        for window in windows_s:
            delay = max(float(middle) - 0.5 * float(window), 0.0)
            until = np.interp(seen.moment_s - delay, edges, worked)
            share = (until - np.interp(seen.moment_s - delay - window, edges, worked)) / window
            share -= share.mean()
            explained = float(share @ power) ** 2 / max(float(share @ share), 1e-12)
            if explained > most:
                most, best = explained, (float(window), delay)
    return Sensing(*best, 0.0, 0.0, 0.0, at_s=middle_of(seen))


def middle_of(seen: Seen) -> float:
    """The moment about which drifts are told."""
    return 0.5 * float(seen.moment_s[0] + seen.moment_s[-1])


def fit_sensing(
    seen: Seen,
    run: IndexArray,
    load: Load,
    start: Sensing,
    knots: Knots,
    *,
    fast: bool,
    noise_w: float,
    drifts: bool = True,
    rounds: int = 3,
) -> SensorFit:
    """Fit everything.

    Args:
        seen: the readings.
        run: which run each is of; shape (readings,).
        load: that they saw.
        start: a guess of everything; lags are believed to be about as guessed.
        knots: where demand may differ from its level.
        fast: whether the fast lag can be told; if not, it is taken as guessed.
        noise_w: standard deviation of a reading, about.
        drifts: whether the delay may drift.
        rounds: of fits, each with weights after what the last one left; one is for a first look.
    """
    # Those that are 0 at first count from 1, since steps of differences are shares of what they are of.
    guess = np.array([np.log(start.span_s), 1.0, np.log(max(start.fast_s, _SHORTEST_S)), np.log(start.slow_s),
                      np.log(start.slow_share / (1.0 - start.slow_share)), 1.0, 1.0])  # fmt: skip
    jumped = bool(np.any(seen.jumps))
    doubt = np.array([np.inf, np.inf, _LAG_DOUBT if fast else _FIXED, _LAG_DOUBT, _SHARE_DOUBT,
                      np.inf if drifts else _FIXED, np.inf if jumped else _FIXED])  # fmt: skip
    farthest = np.array([_FARTHEST, _FARTHEST, _FARTHEST if fast else _FARTHEST_SLOW])
    scale_s = start.span_s + max(start.delay_s, 0.0)
    half_s = max(0.5 * float(np.ptp(seen.moment_s)), 1e-9)
    when = (seen.moment_s - middle_of(seen)) / half_s
    drift = np.stack([when, when**2 - 1.0 / 3.0], axis=1)
    span = max(float(np.ptp(seen.power_w)), 1e-6)

    def sensing_of(told: FloatArray) -> Sensing:
        near = np.clip(told[[0, 2, 3]], guess[[0, 2, 3]] - farthest, guess[[0, 2, 3]] + farthest)
        span, fast_s, slow_s = np.exp(near).tolist()
        share = 1.0 / (1.0 + np.exp(-float(np.clip(told[4], -30.0, 30.0))))
        return replace(
            start,
            span_s=span,
            delay_s=start.delay_s + (float(told[1]) - 1.0) * scale_s,
            fast_s=fast_s,
            slow_s=slow_s,
            slow_share=float(share),
            drift=start.drift + (float(told[5]) - 1.0) * scale_s / half_s,
            sample_s=start.sample_s + (float(told[6]) - 1.0) * scale_s,
        )

    def solved(told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What is linear, and what is left of the readings."""
        columns = columns_of(seen, load, sensing_of(told), knots)
        design = np.column_stack([np.ones(len(columns)), columns[:, :1], drift, columns[:, :1] * drift, columns[:, 1:]])
        ridge = np.concatenate([[1e-6, 1e-6], np.full(4, noise / (_DRIFT * span)),
                                np.full(knots.columns, noise / (_DIFFERENCE * span))])  # fmt: skip
        weighted = design * weight[:, None]
        stacked = np.vstack([weighted, np.diag(ridge)])
        target = np.concatenate([seen.power_w * weight, np.zeros(len(ridge))])
        values = np.linalg.lstsq(stacked, target, rcond=None)[0]
        return values, (target - stacked @ values) / noise

    def residuals(told: FloatArray) -> FloatArray:
        return np.concatenate([solved(told)[1], (told - guess) / doubt])

    steps = np.full(len(guess), _DIFFERENCE_STEP)
    weight, noise, told = np.ones(len(seen.power_w)), noise_w, guess
    for _ in range(rounds):
        found = least_squares(residuals, told, x_scale=_SCALES, diff_step=steps, max_nfev=15 if rounds == 1 else 40)
        told = found.x
        values, left = solved(told)
        unweighted = left[: len(weight)] * noise / weight
        noise = max(1.4826 * float(np.median(np.abs(unweighted - np.median(unweighted)))), 1e-3 * noise_w)
        # Where the model is nearly exact, readings far off are something else, such as a sample too old: they count nothing.
        weight = np.minimum(1.0, _HUBER * noise / np.maximum(np.abs(unweighted), 1e-12)) ** (0.5 if fast else 1.0)
    variance = _variances(np.asarray(found.jac, dtype=float), residuals(told), run)
    sensing = sensing_of(told)
    # A span that ran away in the last round is not known, whatever the scatter says.
    if abs(float(told[0] - guess[0])) > 0.95 * _FARTHEST:
        variance[0] = np.inf
    error = np.sqrt(variance)
    return SensorFit(
        sensing,
        sensing.span_s * float(error[0]),
        scale_s * float(error[1]),
        scale_s / half_s * float(error[5]),
        scale_s * float(error[6]) if jumped else 0.0,
        float(values[0]),
        float(values[0] + values[1]),
        unweighted,
    )


def _variances(jacobian: FloatArray, left: FloatArray, run: IndexArray) -> FloatArray:
    """Of each unknown; the larger of what scatter says and what it says run by run, which few runs make too small.

    Args:
        jacobian: shape (readings + more, unknowns); the last rows are beliefs, one for each unknown.
        left: residuals, shape (readings + more,).
        run: of each reading.
    """
    unknowns = jacobian.shape[1]
    bread = np.linalg.pinv(jacobian.T @ jacobian)
    groups = np.unique(run, return_inverse=True)[1]
    by_run = np.zeros((int(groups.max()) + 1, unknowns))
    np.add.at(by_run, groups, jacobian[: len(run)] * left[: len(run), None])
    meat = by_run.T @ by_run * (len(by_run) / max(len(by_run) - 1, 1))
    beliefs = jacobian[len(left) - unknowns :]
    runwise = np.diag(bread @ (meat + beliefs.T @ beliefs) @ bread)
    scatter = max(float(left[: len(run)] @ left[: len(run)]) / max(len(run) - unknowns, 1), 1.0)
    return np.asarray(np.maximum(runwise, scatter * np.diag(bread)))
