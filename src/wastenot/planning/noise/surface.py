"""Smooth surfaces over clocks, which let noisy measurements of one kernel at many settings support each other.

    value │ ×                       × measured
          │ ·╲ ·                    · prior mean: the mean weights' sum of shapes
          │   ╲× ·   ·              ╲ posterior mean: near × where noise is small, near · where × scatter
          │    ×╲_____×_
          └────────────── clock

A kernel's values are a weighted sum of shapes that physics suggests, the weights being the kernel's own, plus a smooth
departure from them (a Gaussian process with Matérn-5/2 covariance). Mean and covariance of the weights over the kernels, and
size and length scales of the departures, are common to all kernels and maximise their joint marginal likelihood (empirical
Bayes; Rasmussen and Williams, Gaussian Processes for Machine Learning, §2.7 and §5.4.1). Kernels differ in how rough they
are: each scales its departures by a factor, whose distribution over kernels is learnt too. What remains is noise as far as
it is known; of the rest nobody can tell how much is noise and how much true roughness, and that doubt is an error by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray

LARGEST_FIT = 256  # kernels from which hyperparameters are learnt; of more, a random sample (benchmarks/bench_plan.py)
_WEIGHT_VARIANCE = 4.0  # prior variance of a weight; shapes are scaled so that weights are about 1
_LEAST_KERNELS = 8  # from which weights of other kernels say something about a kernel's
_LARGEST_SEARCH = 48  # kernels on which size and length scales of departures are searched
_LEAST_NOISE = 1e-10  # variance far below any instrument's; keeps matrices regular
_ROUNDS = 25  # of expectation maximisation, each time after the other hyperparameters have changed
_LEAST_SPREAD = 1e-8  # variance of weights over kernels, so that a weight that all kernels share does no harm
_ROUGHNESS = np.array([0.01, 0.1, 0.3, 1.0, 3.0, 10.0])  # factors of a kernel on the variance of departures and roughness
_ROUNDS_OF_ROUGHNESS = 50
_LEAST_LENGTH = 2.0  # of departures, in mean distances between clocks: what is rougher is not smooth
ADDED_NOISE = 0.5
"""Of the coupled bootstrap, in standard deviations of the noise (their √α), by hand: the smaller, the nearer the choice is
to the one that is judged, but the independent set has 1 / 0.5² times the noise's variance more."""

_SMALL_TRIANGLE = 7, 26  # size of many triangles or of one that are inverted without halving them further
_GUARD = 1e-9  # of a square, far above rounding
_TOGETHER = 1 << 18  # numbers of the matrices that are inverted at once: what fits into a core's cache
_EQUAL = np.full(len(_ROUGHNESS), 1.0 / len(_ROUGHNESS))
_LOWEST, _HIGHEST = np.log(_LEAST_NOISE), np.log(10.0)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Measurements of kernels that share their settings.

    Attributes:
        clocks: logarithms of the clocks, auto ones at the highest; shape (settings, dimensions).
        shapes: of which each kernel's surface is made, shape (kernels, shapes, settings).
        value: measured, in a unit in which it is about 1; shape (kernels, settings).
        noise: known variance of ``value``, shape (kernels, settings).
        rest_scale: factor by which the unknown variance is multiplied, shape (kernels, settings).
        more_noise: how much of the unknown variance may be noise, at most; inf where nothing is known of it; shape
            (kernels, settings).
        noise_error: relative standard error of ``noise``.
        offset: what kernels have in common at each setting beside the shapes, shape (kernels, settings).
        offset_error: its standard error.
        own: how many of the shapes, the last ones, are directions in which the same values leave a kernel's mean shape
            uncertain. Their weights vary around 0 by 1 or more: values that chose the mean shape would teach too little.
    """

    clocks: FloatArray
    shapes: FloatArray
    value: FloatArray
    noise: FloatArray
    rest_scale: FloatArray
    more_noise: FloatArray
    noise_error: float
    offset: FloatArray
    offset_error: FloatArray
    own: int

    def of(self, kernels: IndexArray | slice) -> Readings:
        """Those of some kernels."""
        names = ("shapes", "value", "noise", "rest_scale", "more_noise", "offset", "offset_error")
        return replace(self, **{name: getattr(self, name)[kernels] for name in names})


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What kernels have in common.

    Attributes:
        departure: variance of the smooth departure from the shapes.
        low_departure: what is added to it per fourth power of the distance from the highest clocks, since shapes that fit
            at high clocks may fail at low ones.
        lengths: length scale of the departure along each logarithm of a clock.
        rest: variance of single values that nothing else explains.
        weight: mean weight of each shape, shape (shapes,).
        weight_spread: covariance of the weights over kernels, shape (shapes, shapes).
        weight_error: root of the covariance of the error of ``weight``, shape (shapes, shapes).
        roughness: fraction of the kernels whose departures have each factor of ``_ROUGHNESS``.
    """

    departure: float
    low_departure: float
    lengths: tuple[float, ...]
    rest: float
    weight: FloatArray
    weight_spread: FloatArray
    weight_error: FloatArray
    roughness: FloatArray


def fit_hyperparameters(readings: Sequence[Readings], everything: Iterable[Readings] = ()) -> Hyperparameters:
    """The hyperparameters of greatest marginal likelihood.

    The weights are fitted by expectation maximisation, the others by compass search over their logarithms, alternately.

    Args:
        readings: to learn from.
        everything: where ``readings`` are a sample, all of them; the mean weights are then estimated from all.
    """
    width, own = readings[0].shapes.shape[1], readings[0].own
    reach = np.maximum(np.max([np.ptp(each.clocks, axis=0) for each in readings], axis=0), 0.1)
    some, count = readings[:_LARGEST_SEARCH], max(1, _LARGEST_SEARCH // len(readings))
    picked = [np.unique(np.linspace(0, len(each.value) - 1, count).astype(np.intp)) for each in some]
    alike = [_Alike.of(each.of(kernels)) for each, kernels in zip(some, picked, strict=True)]
    weight, spread = np.zeros(width), np.diag(np.repeat([_WEIGHT_VARIANCE, 1.0], [width - own, own]))

    def loss(logs: FloatArray) -> float:
        tried = _unpacked(logs, weight, spread)
        return sum(each.negative_log_likelihood(tried) for each in alike)

    logs = np.log(np.concatenate([[1e-5, 1e-5], 0.5 * reach, [3e-5]]))
    levels = np.max([[len(np.unique(clock)) for clock in each.clocks.T] for each in readings], axis=0)
    shortest = reach * np.minimum(_LEAST_LENGTH / np.maximum(levels - 1, 1), 1.0)
    least = np.concatenate([[_LOWEST, _LOWEST], np.log(shortest), [_LOWEST]])
    most = np.concatenate([[_HIGHEST, _HIGHEST], np.log(10.0 * reach), [_HIGHEST]])
    if sum(len(each.value) for each in readings) < _LEAST_KERNELS:
        return _with_roughness(readings, _unpacked(_compass_search(loss, logs, least, most, 1.5), weight, spread))
    for step in (1.5, 0.8, 0.8):
        fitted = _with_weights(readings, _unpacked(logs, weight, spread))
        weight, spread = fitted.weight, fitted.weight_spread
        logs = _compass_search(loss, logs, least, most, step)
    fitted = _with_mean_weight(everything, _with_weights(readings, _unpacked(logs, weight, spread)))
    return _with_roughness(readings, fitted)


class _Believed(NamedTuple):
    """What the readings say, before anything is asked of it; arrays of shape (kernels, settings) unless stated.

    Attributes:
        value: measured.
        apart: measured less what was expected before.
        whole: prior covariance and noise, shape (kernels, settings, settings).
        noise: its variance, half of what may be noise or roughness included.
        doubt: by how much that variance may be larger or smaller.
    """

    value: FloatArray
    apart: FloatArray
    whole: FloatArray
    noise: FloatArray
    doubt: FloatArray


def roughness(readings: Readings, common: Hyperparameters) -> FloatArray:
    """By what factor each kernel's departures are larger than usual, expected after its measurements; shape (kernels,)."""
    likely = _Alike.of(readings).likelihood_by_roughness(common) * common.roughness
    return np.asarray((likely @ _ROUGHNESS) / likely.sum(axis=1))


def _believed(readings: Readings, common: Hyperparameters, departure: FloatArray, rough: FloatArray) -> _Believed:
    value, noise = readings.value, np.maximum(readings.noise, _LEAST_NOISE)
    rest = rough[:, None] * common.rest * readings.rest_scale
    whole = readings.shapes.transpose(0, 2, 1) @ (common.weight_spread @ readings.shapes)
    whole += rough[:, None, None] * departure
    each = np.arange(value.shape[1])
    whole[:, each, each] += noise + rest
    perhaps = 0.5 * np.minimum(rest, readings.more_noise)
    apart = value - readings.offset - common.weight @ readings.shapes
    return _Believed(value, apart, whole, noise + perhaps, perhaps + readings.noise_error * noise)


class Solved(NamedTuple):
    """What is believed of some kernels at each of their settings.

    Attributes:
        mean: shape (kernels, settings).
        variance: shape (kernels, settings).
        with_first: covariance with the first setting, shape (kernels, settings).
        common: loadings of errors that all kernels have in common, shape (kernels, settings, shapes + 2): they share the
            mean weights, the offsets, and the doubt about the noise. Were more of the scatter noise, every value would move
            further towards its surface.
        moved: by how much each posterior mean moves with a little more noise; shape (kernels, settings, draws).
        left: independent measurements less the posterior mean; shape (kernels, settings, draws).
    """

    mean: FloatArray
    variance: FloatArray
    with_first: FloatArray
    common: FloatArray
    moved: FloatArray
    left: FloatArray


def posterior(readings: Readings, common: Hyperparameters, rough: FloatArray, draws: FloatArray) -> Solved:
    """Posterior of each kernel's true values after all of its measurements, and its coupled bootstrap.

    Noise added to the measured values, and as much of it, scaled, taken from them, makes two sets whose noises are
    independent (Oliveira, Lei and Tibshirani, Unbiased risk estimation in the normal means problem via coupled bootstrap
    techniques, arXiv:2111.09447, §2). Whatever is chosen by the first set is judged by the second without luck, also where
    the prior is wrong. It judges the mean as believed: the moved one, noisier, ought to be shrunk more, and is too good even
    where the prior is right.

    With values y of prior mean m, prior covariance P and noise N, and W = (P + N)⁻¹, the posterior has mean m + P W (y − m)
    and covariance P − P W P. As P W = 1 − N W, these are y − N W (y − m) and N − N W N: the noise stands in front, so that
    nothing large cancels.

    Of the two sets y + a ε and y − ε / a, with ε of covariance N and a = ``ADDED_NOISE``, the noises are independent: their
    covariance is N − (a / a) N = 0. The first moves the mean by a (ε − N W ε), which is ``moved``.

    Args:
        readings: of the kernels.
        common: what kernels have in common.
        rough: of each kernel, from :func:`roughness`.
        draws: standard normal, of the bootstrap; shape (kernels, settings, draws).
    """
    departure = _departure(_separation(readings.clocks), common)
    kernels, settings = readings.value.shape
    step = max(1, _TOGETHER // settings**2)
    some = [slice(first, first + step) for first in range(0, kernels, step)]
    parts = [_posterior(readings.of(each), common, departure, rough[each], draws[each]) for each in some]
    return Solved(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _posterior(
    readings: Readings, common: Hyperparameters, departure: FloatArray, rough: FloatArray, draws: FloatArray
) -> Solved:
    believed = _believed(readings, common, departure, rough)
    noise = believed.noise
    added = np.sqrt(noise)[:, None] * draws.transpose(0, 2, 1)
    prior = np.concatenate([common.weight_error.T @ readings.shapes, readings.offset_error[:, None]], axis=1)
    root = _whitening_roots(believed.whole)
    white = np.concatenate([believed.apart[:, None], prior, added], axis=1) @ root.transpose(0, 2, 1)
    weighed = noise[:, None] * (white @ root)
    pulled, loadings, drawn = np.split(weighed, [1, 1 + prior.shape[1]], axis=1)
    variance = noise - noise**2 * np.einsum("kij,kij->kj", root, root)
    with_first = -noise * noise[:, :1] * (root[:, :, :1].transpose(0, 2, 1) @ root)[:, 0]
    with_first[:, 0] = variance[:, 0]  # of the first with itself, to the last digit
    doubted = believed.doubt / noise * pulled[:, 0]
    moved = ADDED_NOISE * (added - drawn)
    left = pulled - added / ADDED_NOISE
    return Solved(
        believed.value - pulled[:, 0],
        variance,
        with_first,
        np.concatenate([loadings, doubted[:, None]], axis=1).transpose(0, 2, 1),
        moved.transpose(0, 2, 1),
        left.transpose(0, 2, 1),
    )


def _whitening_roots(covariances: FloatArray) -> FloatArray:
    """Of each covariance a matrix R whose product R' R is its inverse."""
    try:
        return _inverse_triangles(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:  # hardly any noise
        size, along = np.linalg.eigh(covariances)
        return np.asarray(along.transpose(0, 2, 1) / np.sqrt(np.maximum(size, _LEAST_NOISE))[:, :, None])


def _inverse_triangles(lower: NDArray[np.floating]) -> FloatArray:
    """Inverses of lower triangles, shape (..., size, size)."""
    inverse: FloatArray = np.zeros(lower.shape)
    _invert_triangles(lower, inverse)
    return inverse


def _invert_triangles(lower: NDArray[np.floating], inverse: FloatArray) -> None:
    """By halves, whose products of many triangles at once are quick: of (A 0; B C) it is (A⁻¹ 0; −C⁻¹ B A⁻¹ C⁻¹)."""
    size = lower.shape[-1]
    if size <= _SMALL_TRIANGLE[lower.ndim == 2]:
        inverse[...] = np.linalg.inv(lower)
        return
    half = size // 2
    first, second, below = inverse[..., :half, :half], inverse[..., half:, half:], inverse[..., half:, :half]
    _invert_triangles(lower[..., :half, :half], first)
    _invert_triangles(lower[..., half:, half:], second)
    np.matmul(second, lower[..., half:, :half] @ first, out=below)
    np.negative(below, out=below)


class _Separation(NamedTuple):
    """How far settings are from each other and from the highest clocks, by logarithms of clocks.

    Attributes:
        distances: along each logarithm those that there are, shape (distances,), and which of them is between two settings,
            shape (settings, settings): of settings on a grid few differ.
        low: products of two settings' squared distances from the highest clocks, shape (settings, settings).
    """

    distances: list[tuple[FloatArray, IndexArray]]
    low: FloatArray


def _separation(clocks: FloatArray) -> _Separation:
    square = (clocks**2).sum(axis=1)
    distances = []
    for column in clocks.T:
        apart, which = np.unique(np.abs(column[:, None] - column), return_inverse=True)
        distances.append((apart, which.reshape(len(column), -1)))
    return _Separation(distances, np.outer(square, square))


def _departure(apart: _Separation, common: Hyperparameters) -> FloatArray:
    """Prior covariance of the departures."""
    covariance: FloatArray = common.departure + common.low_departure * apart.low
    for (distance, which), length in zip(apart.distances, common.lengths, strict=True):
        scaled = distance * (np.sqrt(5.0) / length)
        covariance *= ((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)).take(which)
    return covariance


def _unpacked(logs: FloatArray, weight: FloatArray, spread: FloatArray) -> Hyperparameters:
    departure, low, *lengths, rest = np.exp(logs).tolist()
    return Hyperparameters(departure, low, tuple(lengths), rest, weight, spread, np.zeros_like(spread), _EQUAL)


class _Alike(NamedTuple):
    """Kernels whose departures and noise are taken to have one covariance.

    Attributes:
        rows: shapes of each kernel, then its value less its offset; shape (kernels, shapes + 1, settings).
        apart: how far settings are from each other.
        noise: mean variance over the kernels, shape (settings,), as is ``rest_scale`` of its factors.
        rest_scale: see ``noise``.
    """

    rows: FloatArray
    apart: _Separation
    noise: FloatArray
    rest_scale: FloatArray

    @classmethod
    def of(cls, readings: Readings) -> _Alike:
        """Kernels of the same settings."""
        rows = np.concatenate([readings.shapes, (readings.value - readings.offset)[:, None]], axis=1)
        noise = np.maximum(readings.noise.mean(axis=0), _LEAST_NOISE)
        return cls(rows, _separation(readings.clocks), noise, readings.rest_scale.mean(axis=0))

    def whitened(self, common: Hyperparameters) -> tuple[FloatArray, float]:
        """The rows where departures and noise are white, and half the log determinant for it."""
        covariance = _departure(self.apart, common)
        covariance[np.diag_indices(len(covariance))] += self.noise + common.rest * self.rest_scale
        root = np.linalg.cholesky(covariance)
        return _by_setting(self.rows, _inverse_triangles(root).T), float(np.log(np.diag(root)).sum())

    def negative_log_likelihood(self, common: Hyperparameters) -> float:
        """Marginal, but for a constant; kernels share a matrix but for their shapes (Woodbury)."""
        try:
            white, log_root = self.whitened(common)
            return float((log_root + _marginal(_less_mean(white, common), np.linalg.inv(common.weight_spread))).sum())
        except np.linalg.LinAlgError:
            return np.inf

    def likelihood_by_roughness(self, common: Hyperparameters) -> FloatArray:
        """Likelihood of each kernel's values by the factor on its departures, relative; shape (kernels, factors)."""
        covariance = _departure(self.apart, common)
        covariance[np.diag_indices(len(covariance))] += common.rest * self.rest_scale
        # In the basis in which noise is white and departures are independent, every factor has a diagonal covariance.
        scale = 1.0 / np.sqrt(self.noise)
        size, along = np.linalg.eigh(scale[:, None] * covariance * scale)
        rows = _less_mean(_by_setting(self.rows, scale[:, None] * along), common)
        precision = np.linalg.inv(common.weight_spread)
        losses = []
        for factor in _ROUGHNESS.tolist():
            variance = 1.0 + factor * np.maximum(size, 0.0)
            losses.append(_marginal(rows / np.sqrt(variance), precision) + 0.5 * float(np.log(variance).sum()))
        loss = np.stack(losses, axis=1)
        return np.asarray(np.exp(loss.min(axis=1, keepdims=True) - loss))


def _by_setting(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Rows of all kernels times a matrix, at once."""
    return np.asarray((rows.reshape(-1, rows.shape[-1]) @ matrix).reshape(*rows.shape[:-1], -1))


def _less_mean(rows: FloatArray, common: Hyperparameters) -> FloatArray:
    """Rows of shapes, then a value, with the value less its mean."""
    rows[:, -1] -= common.weight @ rows[:, :-1]
    return rows


def _marginal(rows: FloatArray, precision: NDArray[np.floating]) -> FloatArray:
    """Negative log-likelihoods of white values, less their mean, given the prior precision of the weights.

    With shapes S, precision P and value v they are (v (1 − S' (S S' + P)⁻¹ S) v' + log |S S' + P| − log |P|) / 2. The
    diagonal of the Cholesky factor of (S S' + P, S v'; v S', v v' + g) holds all of it, last the root of the quadratic form
    plus g, which is more than what rounding may take from a value that the shapes explain.

    Args:
        rows: shapes, then the value, of each kernel; shape (kernels, shapes + 1, settings).
        precision: shape (shapes, shapes).
    """
    inner = rows @ rows.transpose(0, 2, 1)
    inner[:, :-1, :-1] += precision
    guard = 1.0 + _GUARD * inner[:, -1, -1]
    inner[:, -1, -1] += guard
    try:
        diagonal = np.diagonal(np.linalg.cholesky(inner), axis1=1, axis2=2)
    except np.linalg.LinAlgError:  # hardly any noise, and shapes alike: a QR factor has the same diagonal, and always exists
        within = np.zeros_like(inner)
        size, along = np.linalg.eigh(0.5 * (precision + precision.T))  # of a precision that rounding made indefinite, too
        within[:, :-1, :-1] = np.sqrt(np.maximum(size, 0.0))[:, None] * along.T
        within[:, -1, -1] = np.sqrt(guard)
        upper = np.linalg.qr(np.concatenate([rows.transpose(0, 2, 1), within], axis=1), mode="r")
        diagonal = np.abs(np.diagonal(upper, axis1=1, axis2=2))
    logs = 2.0 * np.log(diagonal[:, :-1]).sum(axis=1) - float(np.linalg.slogdet(precision)[1])
    return np.asarray(0.5 * (diagonal[:, -1] ** 2 - guard + logs))


def _with_roughness(readings: Sequence[Readings], common: Hyperparameters) -> Hyperparameters:
    """The same with how kernels differ in roughness, by expectation maximisation from half a kernel at each factor."""
    likelihood = np.concatenate([_Alike.of(each).likelihood_by_roughness(common) for each in readings])
    fraction = common.roughness
    for _ in range(_ROUNDS_OF_ROUGHNESS):
        member = likelihood * fraction
        member /= member.sum(axis=1, keepdims=True)
        fraction = (member.sum(axis=0) + 0.5) / (len(member) + 0.5 * len(fraction))
    return replace(common, roughness=fraction)


def _evidence(readings: Iterable[Readings], common: Hyperparameters) -> tuple[FloatArray, FloatArray]:
    """What each kernel's values say about its weights: precision, shape (kernels, shapes, shapes), and that × weights."""
    precisions, explained = [], []
    for each in readings:
        white, _ = _Alike.of(each).whitened(common)
        inner = white @ white.transpose(0, 2, 1)
        precisions.append(inner[:, :-1, :-1])
        explained.append(inner[:, -1, :-1])
    return np.concatenate(precisions), np.concatenate(explained)


def _covariance(precision: FloatArray) -> FloatArray:
    """Inverses of each kernel's precision, shape (kernels, shapes, shapes)."""
    try:
        return np.asarray(np.linalg.inv(precision))
    except np.linalg.LinAlgError:  # values without noise outweigh the prior by more than rounding leaves of it
        return np.asarray(np.linalg.pinv(precision, hermitian=True))


def _with_weights(readings: Sequence[Readings], common: Hyperparameters) -> Hyperparameters:
    """The same with mean and spread of the weights over kernels, by expectation maximisation."""
    inner, explained = _evidence(readings, common)
    mean, spread = common.weight, common.weight_spread
    learnt = len(mean) - readings[0].own
    least = _LEAST_SPREAD * np.eye(len(mean))
    for _ in range(_ROUNDS):
        precision = np.linalg.inv(spread)
        covariance = _covariance(inner + precision)
        weight = (covariance @ (explained + precision @ mean)[:, :, None])[:, :, 0]
        mean = np.zeros_like(mean)
        mean[:learnt] = weight[:, :learnt].mean(axis=0)
        apart = weight - mean
        fitted = (covariance.sum(axis=0) + apart.T @ apart) / max(1, len(weight) - 1) + least
        spread = np.diag(np.maximum(np.diag(fitted), 1.0))
        spread[:learnt, :learnt] = fitted[:learnt, :learnt]
    precision = np.linalg.inv(spread)
    information = precision - precision @ _covariance(inner + precision) @ precision
    return replace(common, weight=mean, weight_spread=spread, weight_error=_error_root(information, learnt))


def _with_mean_weight(readings: Iterable[Readings], common: Hyperparameters) -> Hyperparameters:
    """The same with the mean of the weights by generalised least squares, their spread being as it is."""
    width = len(common.weight)
    precision = np.linalg.inv(common.weight_spread)
    total, explained = np.zeros((0, width, width)), np.zeros(width)
    learnt = width
    for each in readings:
        learnt = width - each.own
        inner, projected = _evidence([each], common)
        shrink = precision @ _covariance(inner + precision)
        information: FloatArray = (precision - shrink @ precision).sum(axis=0)
        total = np.concatenate([total, information[None]])
        explained += (shrink @ projected[:, :, None]).sum(axis=(0, 2))
    if not len(total):
        return common
    whole = total.sum(axis=0) + np.eye(width) / _WEIGHT_VARIANCE
    weight = np.zeros(width)
    weight[:learnt] = np.linalg.solve(whole[:learnt, :learnt], explained[:learnt])
    return replace(common, weight=weight, weight_error=_error_root(total, learnt))


def _error_root(information: NDArray[np.floating], learnt: int) -> FloatArray:
    """Root of the covariance of mean weights, of which the first are learnt; shape (shapes, shapes).

    Args:
        information: that each kernel gives, shape (kernels, shapes, shapes).
        learnt: how many.
    """
    inner = information[:, :learnt, :learnt]
    size, along = np.linalg.eigh(0.5 * (inner + inner.transpose(0, 2, 1)).sum(axis=0))
    root: FloatArray = np.zeros(information.shape[1:])
    root[:learnt, :learnt] = along / np.sqrt(np.maximum(size, 0.0) + 1.0 / _WEIGHT_VARIANCE)
    return root


def _compass_search(
    loss: Callable[[FloatArray], float], begin: FloatArray, least: FloatArray, most: FloatArray, step: float
) -> FloatArray:
    """A minimum to within 0.15 of each logarithm: a step along one axis at a time, shortened once none helps.

    As coarse as the answer needs to be, which no minimiser of SciPy's is in as few evaluations.
    """
    point, value = begin, loss(begin)
    steps = np.full(len(begin), step)
    while steps.max() > 0.15:
        for axis in np.flatnonzero(steps > 0.15):
            for direction in (1.0, -1.0):
                tried = point.copy()
                tried[axis] = np.clip(point[axis] + direction * steps[axis], least[axis], most[axis])
                reached = loss(tried)
                if reached < value - 1e-2:
                    point, value = tried, reached
                    break
            else:
                steps[axis] *= 0.4
    return point
