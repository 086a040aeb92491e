"""Hyperparameters of smooth surfaces, from the joint marginal likelihood of all kernels; see :mod:`.surface`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray
from wastenot.planning.noise.surface import (
    LEAST_NOISE,
    Hyperparameters,
    Readings,
    Separation,
    departure_covariance,
    inverse_triangles,
    separation,
)

LARGEST_FIT = 256  # kernels from which hyperparameters are learnt; of more, a random sample (benchmarks/bench_plan.py)
_WEIGHT_VARIANCE = 4.0  # prior variance of a weight; shapes are scaled so that weights are about 1
_LEAST_KERNELS = 8  # from which weights of other kernels say something about a kernel's
_LARGEST_SEARCH = 48  # kernels on which size and length scales of departures are searched
_ROUNDS = 25  # of expectation maximisation, each time after the other hyperparameters have changed
_LEAST_SPREAD = 1e-8  # variance of weights over kernels, so that a weight that all kernels share does no harm
ROUGHNESS = np.array([0.01, 0.1, 0.3, 1.0, 3.0, 10.0])  # factors of a kernel on the variance of departures and roughness
_ROUNDS_OF_ROUGHNESS = 50
_LEAST_LENGTH = 2.0  # of departures, in mean distances between clocks: what is rougher is not smooth
_GUARD = 1e-9  # of a square, far above rounding
_EQUAL = np.full(len(ROUGHNESS), 1.0 / len(ROUGHNESS))
_LOWEST, _HIGHEST = np.log(LEAST_NOISE), np.log(10.0)


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


def roughness(readings: Readings, common: Hyperparameters) -> FloatArray:
    """By what factor each kernel's departures are larger than usual, expected after its measurements; shape (kernels,)."""
    likely = _Alike.of(readings).likelihood_by_roughness(common) * common.roughness
    return np.asarray((likely @ ROUGHNESS) / likely.sum(axis=1))


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
    apart: Separation
    noise: FloatArray
    rest_scale: FloatArray

    @classmethod
    def of(cls, readings: Readings) -> _Alike:
        """Kernels of the same settings."""
        rows = np.concatenate([readings.shapes, (readings.value - readings.offset)[:, None]], axis=1)
        noise = np.maximum(readings.noise.mean(axis=0), LEAST_NOISE)
        return cls(rows, separation(readings.clocks), noise, readings.rest_scale.mean(axis=0))

    def whitened(self, common: Hyperparameters) -> tuple[FloatArray, float]:
        """The rows where departures and noise are white, and half the log determinant for it."""
        covariance = departure_covariance(self.apart, common)
        covariance[np.diag_indices(len(covariance))] += self.noise + common.rest * self.rest_scale
        root = np.linalg.cholesky(covariance)
        return _by_setting(self.rows, inverse_triangles(root).T), float(np.log(np.diag(root)).sum())

    def negative_log_likelihood(self, common: Hyperparameters) -> float:
        """Marginal, but for a constant; kernels share a matrix but for their shapes (Woodbury)."""
        try:
            white, log_root = self.whitened(common)
            return float((log_root + _marginal(_less_mean(white, common), np.linalg.inv(common.weight_spread))).sum())
        except np.linalg.LinAlgError:
            return np.inf

    def likelihood_by_roughness(self, common: Hyperparameters) -> FloatArray:
        """Likelihood of each kernel's values by the factor on its departures, relative; shape (kernels, factors)."""
        covariance = departure_covariance(self.apart, common)
        covariance[np.diag_indices(len(covariance))] += common.rest * self.rest_scale
        # In the basis in which noise is white and departures are independent, every factor has a diagonal covariance.
        scale = 1.0 / np.sqrt(self.noise)
        size, along = np.linalg.eigh(scale[:, None] * covariance * scale)
        rows = _less_mean(_by_setting(self.rows, scale[:, None] * along), common)
        precision = np.linalg.inv(common.weight_spread)
        losses = []
        for factor in ROUGHNESS.tolist():
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
