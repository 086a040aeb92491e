"""Smooth surfaces over clocks, which let noisy measurements of one kernel at many settings support each other.

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
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri

from wastenot.core.arrays import FloatArray, IndexArray

LARGEST_FIT = 256  # kernels from which hyperparameters are learnt; of more, a random sample (benchmarks/bench_plan.py)
_WEIGHT_VARIANCE = 4.0  # prior variance of a weight; shapes are scaled so that weights are about 1
_LEAST_KERNELS = 8  # from which weights of other kernels say something about a kernel's
_LARGEST_SEARCH = 48  # kernels on which size and length scales of departures are searched
_LEAST_NOISE = 1e-10  # variance far below any instrument's; keeps matrices regular
_ROUNDS = 25  # of expectation maximisation
_LEAST_SPREAD = 1e-8  # variance of weights over kernels, so that a weight that all kernels share does no harm
_ROUGHNESS = np.array([0.01, 0.1, 0.3, 1.0, 3.0, 10.0])  # factors of a kernel on the variance of departures and roughness
_ROUNDS_OF_ROUGHNESS = 50
_LEAST_LENGTH = 2.0  # of departures, in mean distances between clocks: what is rougher is not smooth
ADDED_NOISE = 0.5  # of the coupled bootstrap, in standard deviations of the noise (their √α)
_ALIKE = np.full(len(_ROUGHNESS), 1.0 / len(_ROUGHNESS))
_LOWEST, _HIGHEST = np.log(_LEAST_NOISE), np.log(10.0)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Measurements of kernels that share their settings.

    Attributes:
        clocks: logarithms of the clocks, auto ones at the highest; shape (settings, dimensions).
        shapes: of which each kernel's surface is made, shape (kernels, settings, shapes).
        value: measured, in a unit in which it is about 1; shape (settings, kernels).
        noise: known variance of ``value``, shape (settings, kernels).
        rest_scale: factor by which the unknown variance is multiplied, shape (settings, kernels).
        more_noise: how much of the unknown variance may be noise, at most; inf where nothing is known of it; shape
            (settings, kernels).
        noise_error: relative standard error of ``noise``.
        offset: what kernels have in common at each setting beside the shapes, shape (settings, kernels).
        offset_error: its standard error.
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

    def evenly_picked(self, kernels: int) -> Readings:
        """Those of so many kernels."""
        pick = np.unique(np.linspace(0, self.value.shape[1] - 1, max(1, kernels)).astype(np.intp))
        names = ("value", "noise", "rest_scale", "more_noise", "offset", "offset_error")
        columns = {name: getattr(self, name)[:, pick] for name in names}
        return replace(self, shapes=self.shapes[pick], **columns)


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
    width = readings[0].shapes.shape[2]
    reach = np.maximum(np.max([np.ptp(each.clocks, axis=0) for each in readings], axis=0), 0.1)
    searched = [each.evenly_picked(_LARGEST_SEARCH // len(readings)) for each in readings[:_LARGEST_SEARCH]]
    separations = [_separation(each.clocks) for each in searched]
    weight, spread = np.zeros(width), _WEIGHT_VARIANCE * np.eye(width)

    def loss(logs: FloatArray) -> float:
        tried = _unpacked(logs, weight, spread)
        return sum(_negative_log_likelihood(each, apart, tried) for each, apart in zip(searched, separations, strict=True))

    logs = np.log(np.concatenate([[1e-5, 1e-5], 0.5 * reach, [3e-5]]))
    levels = np.max([[len(np.unique(clock)) for clock in each.clocks.T] for each in readings], axis=0)
    shortest = reach * np.minimum(_LEAST_LENGTH / np.maximum(levels - 1, 1), 1.0)
    least = np.concatenate([[_LOWEST, _LOWEST], np.log(shortest), [_LOWEST]])
    most = np.concatenate([[_HIGHEST, _HIGHEST], np.log(10.0 * reach), [_HIGHEST]])
    if sum(each.value.shape[1] for each in readings) < _LEAST_KERNELS:
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
    likely = _likelihood_by_roughness(readings, common) * common.roughness
    return np.asarray((likely @ _ROUGHNESS) / likely.sum(axis=1))


def _believed(readings: Readings, common: Hyperparameters, rough: FloatArray) -> _Believed:
    value, noise = readings.value.T, np.maximum(readings.noise.T, _LEAST_NOISE)
    rest = rough[:, None] * common.rest * readings.rest_scale.T
    whole = readings.shapes @ common.weight_spread @ readings.shapes.transpose(0, 2, 1)
    whole += rough[:, None, None] * _departure(_separation(readings.clocks), common)
    each = np.arange(value.shape[1])
    whole[:, each, each] += noise + rest
    perhaps = 0.5 * np.minimum(rest, readings.more_noise.T)
    apart = value - readings.offset.T - readings.shapes @ common.weight
    return _Believed(value, apart, whole, noise + perhaps, perhaps + readings.noise_error * noise)


class Solved(NamedTuple):
    """What is believed of some kernels; ``mean`` to ``common`` of the settings asked for, by kernel.

    Attributes:
        mean: shape (kernels, wanted).
        variance: shape (kernels, wanted).
        with_first: covariance with the first setting, shape (kernels, wanted).
        common: loadings of errors that all kernels have in common, shape (kernels, wanted, shapes + 2): they share the mean
            weights, the offsets, and the doubt about the noise. Were more of the scatter noise, every value would move
            further towards its surface.
        moved: by how much each posterior mean moves with a little more noise; shape (settings, kernels, draws).
        left: independent measurements less that moved mean; shape (settings, kernels, draws).
    """

    mean: FloatArray
    variance: FloatArray
    with_first: FloatArray
    common: FloatArray
    moved: FloatArray
    left: FloatArray


def posterior(
    readings: Readings, common: Hyperparameters, rough: FloatArray, wanted: IndexArray, draws: FloatArray
) -> Solved:
    """Posterior of each kernel's true values after all of its measurements, and its coupled bootstrap.

    Noise added to the measured values, and as much of it, scaled, taken from them, makes two sets whose noises are
    independent (Oliveira, Lei and Tibshirani, Unbiased risk estimation in the normal means problem via coupled bootstrap
    techniques, arXiv:2111.09447, §2). Whatever is chosen by the first set is judged by the second without luck, also where
    the prior is wrong.

    Args:
        readings: of the kernels.
        common: what kernels have in common.
        rough: of each kernel, from :func:`roughness`.
        wanted: the settings whose posterior is asked for, shape (kernels, wanted).
        draws: standard normal, of the bootstrap; shape (settings, kernels, draws).
    """
    believed = _believed(readings, common, rough)
    kernels = len(believed.value)
    noise = believed.noise
    kernel = np.arange(kernels)[:, None]
    added = np.sqrt(noise)[:, :, None] * draws.transpose(1, 0, 2)
    inverse = _inverses(believed.whole)
    pull = (inverse @ believed.apart[:, :, None])[:, :, 0]
    # Written with the noise in front, so that nothing large cancels: value - N W value and N - N W N.
    mean = believed.value - noise * pull
    here = noise[kernel, wanted]
    variance = here - here**2 * inverse[kernel, wanted, wanted]
    first = np.where(wanted == 0, here, 0.0) - here * noise[:, :1] * inverse[kernel, wanted, 0]
    prior = np.concatenate([readings.shapes @ common.weight_error, readings.offset_error.T[:, :, None]], axis=2)
    doubted = (believed.doubt * pull)[kernel, wanted, None]
    loadings = np.concatenate([here[:, :, None] * (inverse @ prior)[kernel, wanted], doubted], axis=2)
    moved = ADDED_NOISE * (added - noise[:, :, None] * (inverse @ added))
    left = (noise * pull)[:, :, None] - moved - added / ADDED_NOISE
    return Solved(mean[kernel, wanted], variance, first, loadings, moved.transpose(1, 0, 2), left.transpose(1, 0, 2))


def _inverses(covariances: FloatArray) -> FloatArray:
    """The inverses of covariances, in their place: by Cholesky, in a third of the operations of a general solver."""
    upper = np.triu(np.ones(covariances.shape[1:], dtype=bool), 1)
    for covariance in covariances:
        factor, failed = dpotrf(covariance.T, lower=1, clean=0)  # the transpose is as LAPACK lays it out
        lower = np.linalg.inv(covariance) if failed else dpotri(factor, lower=1, overwrite_c=1)[0]
        covariance[...] = np.where(upper, lower.T, lower)
    return covariances


class _Separation(NamedTuple):
    """How far settings are from each other and from the highest clocks, by logarithms of clocks."""

    distances: FloatArray  # along each logarithm, shape (dimensions, settings, settings)
    low: FloatArray  # products of two settings' squared distances from the highest clocks, shape (settings, settings)


def _separation(clocks: FloatArray) -> _Separation:
    square = (clocks**2).sum(axis=1)
    return _Separation(np.abs(clocks.T[:, :, None] - clocks.T[:, None, :]), np.outer(square, square))


def _departure(apart: _Separation, common: Hyperparameters) -> FloatArray:
    """Prior covariance of the departures."""
    covariance: FloatArray = common.departure + common.low_departure * apart.low
    for distance, length in zip(apart.distances, common.lengths, strict=True):
        scaled = distance * (np.sqrt(5.0) / length)
        covariance *= (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    return covariance


def _unpacked(logs: FloatArray, weight: FloatArray, spread: FloatArray) -> Hyperparameters:
    departure, low, *lengths, rest = np.exp(logs).tolist()
    return Hyperparameters(departure, low, tuple(lengths), rest, weight, spread, np.zeros_like(spread), _ALIKE)


def _whitened(readings: Readings, apart: _Separation, common: Hyperparameters) -> tuple[FloatArray, FloatArray, float]:
    """Values, shapes in which departures and noise are white, and half the log determinant for it."""
    covariance = _departure(apart, common)
    noise = np.maximum(readings.noise.mean(axis=1), _LEAST_NOISE)
    covariance[np.diag_indices(len(covariance))] += noise + common.rest * readings.rest_scale.mean(axis=1)
    root = np.linalg.cholesky(covariance)
    whiten, _ = dtrtri(root, lower=1)
    return (whiten @ (readings.value - readings.offset)).T, whiten @ readings.shapes, float(np.log(np.diag(root)).sum())


def _negative_log_likelihood(readings: Readings, apart: _Separation, common: Hyperparameters) -> float:
    """Marginal, but for a constant; kernels share a matrix but for their shapes (Woodbury)."""
    try:
        return float(_negative_log_likelihoods(readings, apart, common).sum())
    except np.linalg.LinAlgError:
        return np.inf


def _negative_log_likelihoods(readings: Readings, apart: _Separation, common: Hyperparameters) -> FloatArray:
    """Those of each kernel, shape (kernels,)."""
    value, shapes, log_root = _whitened(readings, apart, common)
    return log_root + _marginal(value - shapes @ common.weight, shapes, np.linalg.inv(common.weight_spread))


def _marginal(value: FloatArray, shapes: FloatArray, precision: NDArray[np.floating]) -> FloatArray:
    """Those of white values, less their mean, given the prior precision of the weights."""
    transposed = shapes.transpose(0, 2, 1)
    inner = transposed @ shapes + precision
    explained = transposed @ value[:, :, None]
    quadratic = (value**2).sum(axis=1) - (explained * np.linalg.solve(inner, explained)).sum(axis=(1, 2))
    logs = np.linalg.slogdet(inner)[1] - float(np.linalg.slogdet(precision)[1])
    return np.asarray(0.5 * (quadratic + logs))


def _likelihood_by_roughness(readings: Readings, common: Hyperparameters) -> FloatArray:
    """Likelihood of each kernel's values by the factor on its departures, relative; shape (kernels, factors)."""
    common_covariance = _departure(_separation(readings.clocks), common)
    common_covariance[np.diag_indices(len(common_covariance))] += common.rest * readings.rest_scale.mean(axis=1)
    # In the basis in which noise is white and departures are independent, every factor has a diagonal covariance.
    scale = 1.0 / np.sqrt(np.maximum(readings.noise.mean(axis=1), _LEAST_NOISE))
    size, along = np.linalg.eigh(scale[:, None] * common_covariance * scale)
    project = along.T * scale
    shapes = project @ readings.shapes
    value = (project @ (readings.value - readings.offset)).T - shapes @ common.weight
    precision = np.linalg.inv(common.weight_spread)
    losses = []
    for factor in _ROUGHNESS.tolist():
        variance = 1.0 + factor * np.maximum(size, 0.0)
        root = np.sqrt(variance)
        losses.append(_marginal(value / root, shapes / root[:, None], precision) + 0.5 * float(np.log(variance).sum()))
    loss = np.stack(losses, axis=1)
    return np.asarray(np.exp(loss.min(axis=1, keepdims=True) - loss))


def _with_roughness(readings: Sequence[Readings], common: Hyperparameters) -> Hyperparameters:
    """The same with how kernels differ in roughness, by expectation maximisation from half a kernel at each factor."""
    likelihood = np.concatenate([_likelihood_by_roughness(each, common) for each in readings])
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
        value, shapes, _ = _whitened(each, _separation(each.clocks), common)
        precisions.append(shapes.transpose(0, 2, 1) @ shapes)
        explained.append((value[:, None] @ shapes)[:, 0])
    return np.concatenate(precisions), np.concatenate(explained)


def _with_weights(readings: Iterable[Readings], common: Hyperparameters) -> Hyperparameters:
    """The same with mean and spread of the weights over kernels, by expectation maximisation."""
    inner, explained = _evidence(readings, common)
    mean, spread = common.weight, common.weight_spread
    least = _LEAST_SPREAD * np.eye(len(mean))
    for _ in range(_ROUNDS):
        precision = np.linalg.inv(spread)
        covariance = np.linalg.inv(inner + precision)
        weight = (covariance @ (explained + precision @ mean)[:, :, None])[:, :, 0]
        mean = weight.mean(axis=0)
        apart = weight - mean
        spread = (covariance.sum(axis=0) + apart.T @ apart) / max(1, len(weight) - 1) + least
    precision = np.linalg.inv(spread)
    information = precision - precision @ np.linalg.inv(inner + precision) @ precision
    return replace(common, weight=mean, weight_spread=spread, weight_error=_error_root(information))


def _with_mean_weight(readings: Iterable[Readings], common: Hyperparameters) -> Hyperparameters:
    """The same with the mean of the weights by generalised least squares, their spread being as it is."""
    width = len(common.weight)
    precision = np.linalg.inv(common.weight_spread)
    total, explained = np.zeros((0, width, width)), np.zeros(width)
    for each in readings:
        inner, projected = _evidence([each], common)
        shrink = precision @ np.linalg.inv(inner + precision)
        information: FloatArray = (precision - shrink @ precision).sum(axis=0)
        total = np.concatenate([total, information[None]])
        explained += (shrink @ projected[:, :, None]).sum(axis=(0, 2))
    if not len(total):
        return common
    weight = np.linalg.solve(total.sum(axis=0) + np.eye(width) / _WEIGHT_VARIANCE, explained)
    return replace(common, weight=weight, weight_error=_error_root(total))


def _error_root(information: NDArray[np.floating]) -> FloatArray:
    """Root of the covariance of mean weights, by the information that each kernel gives; shape (kernels, shapes, shapes)."""
    size, along = np.linalg.eigh(0.5 * (information + information.transpose(0, 2, 1)).sum(axis=0))
    root: FloatArray = along / np.sqrt(np.maximum(size, 0.0) + 1.0 / _WEIGHT_VARIANCE)
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
