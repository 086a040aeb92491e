"""Fits one channel's window or lag, its delay and drift: a search over a grid, then robust least squares.

Given the sensor's response, its delay and the lags of power, a reading is linear in idle power, busy power and the
deviations of first and last executions, so only the former are searched for; the latter follow by linear least squares
(variable projection: Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973). Standard errors account for all of them, and for
correlated errors of readings of the same run (the sandwich estimator of White, Econometrica 48, 1980, clustered by run).

    search      x = window or lag, delay, lags of power, drift, jump          7 nonlinear parameters, some fixed
    for each x  readings = D(x) · powers + noise                              `design_matrix`; powers by linear least squares
    minimise    |(readings − D(x) powers) · weight / noise|² + |(x − guess) / prior|²
    again       noise and weights from the residuals                          up to 3 rounds

    rough_fit ──► window and middle's age on a grid ──► fit_channel ─┬─ long window ──► _coarse_fit: mean or lag?
                                                                     └─ short window ─► _fine_fit from several windows

A window or lag of many executions averages over their shape: all readings are used, and both kinds of response are tried. A
window of few executions sees the shape of each, which is unknown; then only readings near the edges of bursts are used,
where power is known on one side: idle before the first execution, and after the last one a decay that is a sum of
exponentials. A wrong window requires a shape with kinks; that identifies the right one, however fast or slow the power
itself decays. A lag as short as that of power cannot be distinguished from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.meters.sensors.channel_readings import MAD_TO_SD, SHAPE_KNOTS, ChannelReadings
from wastenot.meters.sensors.delay import DelayPath, follow_delay
from wastenot.meters.sensors.model import BurstReadings, Knots, Load, SensorParameters, design_matrix
from wastenot.meters.sensors.rough_fit import centre_of, onset_s, random_subset

# Where no reason is given, the values below were chosen by hand, and how results depend on each was not recorded.
# `python -m benchmarks sensor` judges them together, on the presets' sensors and 12 others with 5 seeds each.

# The least-squares fit.
_HUBER = 2.5  # in noise standard deviations, above which a reading's weight falls; of normal noise, 1.2 % are beyond
_DEVIATION_PRIOR = 0.5  # standard deviation of deviations from the level, as a fraction of the range of readings
_DRIFT_PRIOR = 0.1  # standard deviation of the drift of power over the time, likewise
_LAG_PRIOR = 1.2  # standard deviation of the logarithm of a lag, around its guess: a factor of 3.3 either way
_FRACTION_PRIOR = 1.0  # standard deviation of the logit of the slow lag's fraction: 0.3 means 0.14 to 0.54
_FIXED = 1e-3  # standard deviation of parameters that stay at their guess, which nothing is searched for
_SHORTEST_LAG_S = 1e-7  # so that its logarithm is finite; far below any sensor's window
_SCALES = np.array([0.1, 0.1, 0.5, 0.5, 0.5, 0.1, 0.1])  # of x for `least_squares`: a tenth of a window, half a log of a lag
_DIFFERENCE_STEP = 1e-5  # relative; usual is √eps = 1.5e-8, but sums of squares of times leave fewer digits
_MAX_LOG_CHANGE = 3.0  # of window and lags in one fit: a factor of 20; one that ends there is not determined
_MAX_LOG_CHANGE_SLOW = 1.1  # of the lags of power where only the sensor's own is long enough to be determined: a factor of 3

# Choices around it.
_MAX_READINGS = 4000  # in a fit; this and the next two bound its time
_PATH_READINGS = 500  # that a path of the delay is found from
_OTHER_SHAPE_KNOTS = (8, 11, 14)  # no multiples: a window that happens to suit one of them does not suit all
_SLOW_LAG_S = 1e-3  # with the next, a first guess of how power follows demand; the priors above are around it
_SLOW_FRACTION = 0.3
_SAME_LOG = 0.1  # log difference of windows below which two fits are the same
_RIVAL_RESIDUAL = 1.25  # times the best residual, below which another first fit remains a candidate
_WINDOW_FACTORS = np.array([1.0, 0.7, 0.5, 0.35, 0.25])  # times the rough window, which a drifting delay makes too long
_FINE_WINDOW_FACTORS = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)
_LAG_PER_WINDOW = 0.4  # the lag most like a window: least squares of the responses to a step give 0.395
_LONG_BURST_QUANTILE = 0.7  # of burst durations: for this long demand may deviate
_READINGS_PER_KNOT, _MIN_KNOTS, _MAX_KNOTS = 16, 4, 24
_NO_LAG_S = 1e-7  # of power: far below what a long window resolves, and the closed forms stay finite
_RESPONSE_ERROR = 0.003  # of a fitted response, as a fraction of power
_MIN_DECISIVE = 10  # readings on which two fits differ, for these to decide
_KEPT_FRACTION = 0.8  # of readings that fits are compared by


@dataclass(frozen=True, slots=True, eq=False)
class SensorFit:
    """Fitted parameters of a sensor.

    Attributes:
        span_se_s, delay_se_s, drift_se, sample_se_s: standard errors of the parameters of these names.
        idle_w, busy_w: power at rest and in steady work, in the middle of the time covered.
        residual_w: readings minus the fit; shape (readings,).
        rms_w: residual of the readings that distinguish the two kinds of response, root mean square.
        other_rms_w: the same for the best fit of the other kind (a lag if this is a mean, a mean if this is a lag);
            ``None`` where the other was not tried.
    """

    parameters: SensorParameters
    span_se_s: float
    delay_se_s: float
    drift_se: float
    sample_se_s: float
    idle_w: float
    busy_w: float
    residual_w: FloatArray
    rms_w: float | None = None
    other_rms_w: float | None = None


def fit_channel(
    channel: ChannelReadings,
    rough: SensorParameters,
    noise_w: float,
    rng: np.random.Generator,
    like: SensorParameters | None = None,
    earlier: SensorParameters | None = None,
) -> SensorFit:
    """The best fit that starts from a rough one.

    Args:
        channel: its readings.
        rough: as by :func:`rough_fit`.
        noise_w: approximate standard deviation of a reading.
        rng: for random subsets of readings.
        like: the only starting point, where it is sure to be close.
        earlier: fitted to fewer readings; one more starting point.
    """
    if like is not None and channel.sees_shape(like):
        return _averaged_over_shapes(channel, like, noise_w, rng)
    if not channel.sees_shape(rough):
        return _coarse_fit(channel, rough, noise_w, rng)
    half = _MAX_READINGS // 2
    start = replace(rough, delay_s=onset_s(channel, rough))
    fits = [
        _fine_fit(channel, start, factor * rough.span_s, noise_w, rng, half, rounds=1) for factor in _FINE_WINDOW_FACTORS
    ]
    if earlier is not None and channel.sees_shape(earlier):
        earlier = replace(earlier, at_s=rough.at_s)
        fits.append(_fine_fit(channel, earlier, earlier.span_s, noise_w, rng, half, rounds=1))
    fits.sort(key=_median_residual_w)
    rivals: list[SensorFit] = []
    for fit in fits:
        new = [abs(math.log(fit.parameters.span_s / rival.parameters.span_s)) > _SAME_LOG for rival in rivals]
        if all(new) and _median_residual_w(fit) < _RIVAL_RESIDUAL * _median_residual_w(fits[0]):
            rivals.append(fit)
    # They used different readings and shapes; rivals are compared on the same. A residual counts as 4 standard deviations at
    # most, of which 1.5 times the median (1.48 of normal noise) is an estimate.
    widest_s = max(fit.parameters.span_s for fit in rivals)
    compared = [
        _fine_fit(channel, fit.parameters, widest_s, noise_w, rng, half, rounds=2, from_s=fit.parameters.span_s)
        for fit in rivals
    ]
    noise = min(_median_residual_w(fit) for fit in compared) * 1.5
    best = min(compared, key=lambda fit: float(np.mean(np.minimum(np.abs(fit.residual_w), 4.0 * noise) ** 2)))
    return _averaged_over_shapes(channel, best.parameters, noise_w, rng)


def _averaged_over_shapes(
    channel: ChannelReadings, start: SensorParameters, noise_w: float, rng: np.random.Generator
) -> SensorFit:
    """The median of fits with shapes of different fineness, one of which may suit a wrong window; their spread is error."""
    fits = [
        _fine_fit(channel, start, start.span_s, noise_w, rng, _MAX_READINGS, knots=number) for number in _OTHER_SHAPE_KNOTS
    ]
    fits.sort(key=lambda fit: fit.parameters.span_s)
    windows = np.array([fit.parameters.span_s for fit in fits])
    delays = np.array([fit.parameters.delay_s for fit in fits])
    middle = fits[len(fits) // 2]
    # Fitting a drift beside everything else would cost the window precision; it is fitted once the window is known.
    subset = np.random.default_rng(0)
    drifting = _fine_fit(
        channel, middle.parameters, middle.parameters.span_s, noise_w, subset, _MAX_READINGS // 2, rounds=2, drifts=True
    )
    return replace(
        middle,
        parameters=replace(middle.parameters, drift=drifting.parameters.drift),
        drift_se=drifting.drift_se,
        span_se_s=float(np.hypot(middle.span_se_s, windows.std())),
        delay_se_s=float(np.hypot(middle.delay_se_s, delays.std())),
    )


def _coarse_fit(channel: ChannelReadings, rough: SensorParameters, noise_w: float, rng: np.random.Generator) -> SensorFit:
    """The better of a mean over a window and a first-order lag, each with its own path of the delay."""
    usable, load = channel.similar_pace, channel.load
    # How far from an edge readings still show it: half as far again as the rough fit says, and ten lags of power.
    reach_s = 1.5 * (rough.reach_s + rough.delay_s) + 10.0 * _SLOW_LAG_S
    near = channel.to_edge_s < reach_s
    if not np.any(near & usable):
        near = np.ones(len(near), dtype=bool)
    path_readings = channel.readings.subset(random_subset(near & usable, _PATH_READINGS, rng))
    chosen = np.union1d(
        random_subset(near & usable, _MAX_READINGS, rng), random_subset(~near & usable, _MAX_READINGS // 4, rng)
    )
    # A power limit may act at any time: demand may deviate throughout a burst, as finely as readings can resolve.
    longest_s = float(np.quantile(load.end_s - load.begin_s, _LONG_BURST_QUANTILE))
    number = min(max(int(np.sum(near & usable)) // _READINGS_PER_KNOT, _MIN_KNOTS), _MAX_KNOTS)
    rise_s = np.append(0.0, np.geomspace(min(load.execution_s, 0.1 * longest_s), longest_s, number))
    knots = Knots(rise_s, np.zeros(0), 0)

    def fit(path: DelayPath) -> SensorFit:
        start = path.parameters
        slow_s = max(_SLOW_LAG_S, 0.02 * start.span_s)
        start = replace(start, fast_s=_NO_LAG_S, slow_s=slow_s, slow_fraction=_SLOW_FRACTION)
        readings = path.with_jumps(channel.readings.subset(chosen))
        return _fit_parameters(readings, channel.run[chosen], load, start, knots, fast=False, noise_w=noise_w)

    fits = []
    for is_lag, age_per_span, span_factor in ((False, 0.5, 1.0), (True, 1.0, _LAG_PER_WINDOW)):
        starts = [
            replace(rough, span_s=span_s, delay_s=max(rough.mean_age_s - age_per_span * span_s, 0.0), is_lag=is_lag)
            for span_s in (rough.span_s * span_factor * _WINDOW_FACTORS).tolist()
        ]
        best = fit(follow_delay(path_readings, load, starts, noise_w))
        if best.parameters.sample_s:  # with the response known, readings close to a jump can be assigned too
            again = fit(follow_delay(path_readings, load, [best.parameters], noise_w, _RESPONSE_ERROR))
            best = min(best, again, key=lambda one: _trimmed_rms_w(one.residual_w))
        fits.append(best)
    # Steady readings say nothing about the response: only those count on which the two fits differ.
    difference_w = np.abs(fits[0].residual_w - fits[1].residual_w)
    decisive = difference_w > min(_median_residual_w(one) for one in fits)
    if np.sum(decisive) < _MIN_DECISIVE:
        decisive[:] = True
    best, other = sorted(fits, key=lambda one: _trimmed_rms_w(one.residual_w[decisive]))
    rms_w, other_rms_w = (_trimmed_rms_w(one.residual_w[decisive]) for one in (best, other))
    return replace(best, rms_w=rms_w, other_rms_w=other_rms_w)


def _fine_fit(
    channel: ChannelReadings,
    rough: SensorParameters,
    window_s: float,
    noise_w: float,
    rng: np.random.Generator,
    most: int,
    *,
    rounds: int = 3,
    from_s: float | None = None,
    knots: int = SHAPE_KNOTS,
    drifts: bool = False,
) -> SensorFit:
    """A fit that starts from a window of ``from_s``, with the readings and shapes that a window of ``window_s`` requires."""
    each_s = channel.load.execution_s
    last = 1 if window_s < 0.5 * each_s else int(np.ceil(window_s / each_s)) + 1
    rise_s = max(each_s, 2.2 * window_s)
    step_s = each_s / knots
    shapes = Knots(_uneven(int(np.ceil(rise_s / step_s)) + 1) * step_s, _uneven(knots) * step_s, last)
    after_begin_s, after_end_s = channel.after_begin_s, channel.after_end_s
    rising = (after_begin_s - rough.delay_s < rise_s - step_s) & (after_end_s < 0.0)
    falling_s = after_end_s - rough.delay_s
    falling = (falling_s - 1.2 * window_s > -last * each_s) & (after_begin_s > 0.0)
    steep = falling & (falling_s < max(3.0 * window_s, 0.5 * each_s))
    tail = (falling & ~steep) | ((channel.before_next_s < each_s) & ~rising)
    similar = channel.similar_pace
    chosen = np.union1d(random_subset((rising | steep) & similar, most, rng), random_subset(tail & similar, most // 4, rng))
    known = rough.slow_s > 0.0
    start = replace(
        rough,
        span_s=from_s or window_s,
        fast_s=rough.fast_s if known else max(0.3 * window_s, 1e-6),
        slow_s=rough.slow_s if known else _SLOW_LAG_S,
        slow_fraction=rough.slow_fraction if known else _SLOW_FRACTION,
        drift=0.0,
    )
    return _fit_parameters(
        channel.readings.subset(chosen),
        channel.run[chosen],
        channel.load,
        start,
        shapes,
        fast=True,
        noise_w=noise_w,
        drifts=drifts,
        rounds=rounds,
    )


def _fit_parameters(
    readings: BurstReadings,
    run: IndexArray,
    load: Load,
    start: SensorParameters,
    knots: Knots,
    *,
    fast: bool,
    noise_w: float,
    drifts: bool = True,
    rounds: int = 3,
) -> SensorFit:
    """Fit all parameters by robust least squares, in rounds that are each weighted by the residuals of the one before.

    ``start`` is a guess of everything, which the prior of the lags is centred on; the fast lag stays at its guess unless
    ``fast``, and the delay does not drift unless ``drifts``.
    """
    # x: log window or lag, delay, log fast lag, log slow lag, logit of the slow fraction, drift, jump. Delay, drift and jump
    # are in units of the scales below, from their start. Where 0 is a likely value it is offset by 1: finite differences are
    # relative.
    guess = np.array([np.log(start.span_s), 1.0, np.log(max(start.fast_s, _SHORTEST_LAG_S)), np.log(start.slow_s),
                      np.log(start.slow_fraction / (1.0 - start.slow_fraction)), 1.0, 1.0])  # fmt: skip
    jumped = bool(np.any(readings.jumps))
    prior_sd = np.array([np.inf, np.inf, _LAG_PRIOR if fast else _FIXED, _LAG_PRIOR, _FRACTION_PRIOR,
                         np.inf if drifts else _FIXED, np.inf if jumped else _FIXED])  # fmt: skip
    max_change = np.array([_MAX_LOG_CHANGE, _MAX_LOG_CHANGE, _MAX_LOG_CHANGE if fast else _MAX_LOG_CHANGE_SLOW])
    scale_s = start.span_s + max(start.delay_s, 0.0)
    half_s = max(0.5 * float(np.ptp(readings.moment_s)), 1e-9)
    when = (readings.moment_s - centre_of(readings)) / half_s
    drift = np.stack([when, when**2 - 1.0 / 3.0], axis=1)  # Legendre's polynomials, orthogonal to a constant level
    power_range = max(float(np.ptp(readings.power_w)), 1e-6)

    def to_parameters(x: FloatArray) -> SensorParameters:
        spans = np.clip(x[[0, 2, 3]], guess[[0, 2, 3]] - max_change, guess[[0, 2, 3]] + max_change)
        span_s, fast_s, slow_s = np.exp(spans).tolist()
        return replace(
            start,
            span_s=span_s,
            delay_s=start.delay_s + (float(x[1]) - 1.0) * scale_s,
            fast_s=fast_s,
            slow_s=slow_s,
            slow_fraction=float(1.0 / (1.0 + np.exp(-float(np.clip(x[4], -30.0, 30.0))))),
            drift=start.drift + (float(x[5]) - 1.0) * scale_s / half_s,
            sample_s=start.sample_s + (float(x[6]) - 1.0) * scale_s,
        )

    def solve_powers(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The linear unknowns, and the weighted residuals."""
        columns = design_matrix(readings, load, to_parameters(x), knots)
        design = np.column_stack([np.ones(len(columns)), columns[:, :1], drift, columns[:, :1] * drift, columns[:, 1:]])
        # Columns: idle, busy − idle, the drift of both, deviations. Priors are rows of the same least squares; 1e-6 is none.
        ridge = np.concatenate([[1e-6, 1e-6], np.full(4, noise / (_DRIFT_PRIOR * power_range)),
                                np.full(knots.columns, noise / (_DEVIATION_PRIOR * power_range))])  # fmt: skip
        stacked = np.vstack([design * weight[:, None], np.diag(ridge)])
        target = np.concatenate([readings.power_w * weight, np.zeros(len(ridge))])
        values = np.linalg.lstsq(stacked, target, rcond=None)[0]
        return values, (target - stacked @ values) / noise

    free = prior_sd > _FIXED

    def whole(free_x: FloatArray) -> FloatArray:
        x = guess.copy()
        x[free] = free_x
        return x

    def residuals(free_x: FloatArray) -> FloatArray:
        return np.concatenate([solve_powers(whole(free_x))[1], (free_x - guess[free]) / prior_sd[free]])

    steps = np.full(int(free.sum()), _DIFFERENCE_STEP)
    weight, noise, x = np.ones(len(readings.power_w)), noise_w, guess
    for _ in range(rounds):
        solution = least_squares(
            residuals, x[free], x_scale=_SCALES[free], diff_step=steps, max_nfev=15 if rounds == 1 else 40
        )
        x = whole(solution.x)
        values, residual = solve_powers(x)
        residual_w = residual[: len(weight)] * noise / weight
        noise = max(MAD_TO_SD * float(np.median(np.abs(residual_w - np.median(residual_w)))), 1e-3 * noise_w)
        # These multiply rows, so that they act squared. A fine fit takes the root of Huber's weights, which makes it Huber's
        # loss. A coarse fit takes them as they are: where the model is nearly exact, outliers have another cause, such as a
        # stale sample.
        weight = np.minimum(1.0, _HUBER * noise / np.maximum(np.abs(residual_w), 1e-12)) ** (0.5 if fast else 1.0)
    variance = np.full(len(guess), _FIXED**2)
    variance[free] = _variances(np.asarray(solution.jac, dtype=float), residuals(x[free]), run)
    parameters = to_parameters(x)
    # A span at the bound of what it may change by is not determined, whatever the scatter says.
    if abs(float(x[0] - guess[0])) > 0.95 * _MAX_LOG_CHANGE:
        variance[0] = np.inf
    error = np.sqrt(variance)
    return SensorFit(
        parameters,
        parameters.span_s * float(error[0]),
        scale_s * float(error[1]),
        scale_s / half_s * float(error[5]),
        scale_s * float(error[6]) if jumped else 0.0,
        float(values[0]),
        float(values[0] + values[1]),
        residual_w,
    )


def _variances(jacobian: FloatArray, residual: FloatArray, run: IndexArray) -> FloatArray:
    """Of each parameter; the larger of the scatter's and the clustered estimate, which few runs make too small."""
    parameters = jacobian.shape[1]
    # Sandwich: bread · meat · bread. Meat sums the scores of each run before squaring, so that errors within a run may be
    # correlated; n / (n − 1) of n runs corrects for their being few.
    bread = np.linalg.pinv(jacobian.T @ jacobian)
    clusters = np.unique(run, return_inverse=True)[1]
    scores = np.zeros((int(clusters.max()) + 1, parameters))
    np.add.at(scores, clusters, jacobian[: len(run)] * residual[: len(run), None])
    meat = scores.T @ scores * (len(scores) / max(len(scores) - 1, 1))
    # The last rows are the priors, one for each parameter; those of the powers lie between them and the readings.
    priors = jacobian[len(residual) - parameters :]
    clustered = np.diag(bread @ (meat + priors.T @ priors) @ bread)
    scatter = max(float(residual[: len(run)] @ residual[: len(run)]) / max(len(run) - parameters, 1), 1.0)
    return np.asarray(np.maximum(clustered, scatter * np.diag(bread)))


def _median_residual_w(fit: SensorFit) -> float:
    return float(np.median(np.abs(fit.residual_w)))


def _trimmed_rms_w(residual_w: FloatArray) -> float:
    """Root mean square without the largest residuals."""
    smallest = np.sort(np.abs(residual_w))[: math.ceil(_KEPT_FRACTION * len(residual_w))]
    return float(np.sqrt(np.mean(smallest**2)))


def _uneven(steps: int) -> FloatArray:
    """Knots from 0 to ``steps``, unevenly spaced: a window of whole steps would be blind to even ones."""
    index = np.arange(steps + 1.0)
    inside = np.minimum(index, steps - index) > 0.0
    return np.asarray(index + np.where(inside, 0.35 * np.sin(2.4 * index), 0.0))
