"""Smooth surfaces over clocks, by which noisy measurements of one kernel at many settings steady each other.

A kernel's values are a sum of shapes that physics suggests, each with a weight of the kernel's own; of a smooth departure
from them (a Gaussian process with Matérn-5/2 covariance). Mean and spread of the weights
over the kernels, how large departures are and how far they reach is common to all kernels and found by their joint
marginal likelihood (empirical Bayes; Rasmussen and Williams, Gaussian Processes for Machine Learning, §2.7 and §5.4.1).
What is left over is noise, or true roughness where the noise is known from repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.arrays import FloatArray

_WEIGHT_VARIANCE = 4.0  # of weights that nothing is known of; shapes are scaled so that they are about 1
_LEAST_KERNELS = 8  # from which weights of others say something of a kernel's
_LARGEST_SEARCH = 48  # kernels that the search for the hyperparameters looks at
_LEAST_NOISE = 1e-10  # variance far below any instrument's; keeps matrices regular
_ROUNDS = 25  # of expectation and maximisation
_LEAST_SPREAD = 1e-8  # of weights over kernels, so that a weight all kernels share does no harm
_LOWEST, _HIGHEST = np.log(_LEAST_NOISE), np.log(10.0)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What was measured of kernels that share their settings.

    Attributes:
        clocks: logarithms of the clocks, auto ones at the highest; shape (settings, dimensions).
        shapes: that each kernel's surface is made of, shape (kernels, settings, shapes).
        value: what was measured, in a unit in which it is about 1; shape (settings, kernels).
        noise: variance of ``value`` that is known, shape (settings, kernels).
        share: what the variance that is not known is to be multiplied by, shape (settings, kernels).
    """

    clocks: FloatArray
    shapes: FloatArray
    value: FloatArray
    noise: FloatArray
    share: FloatArray

    def some(self, kernels: int) -> Readings:
        """Those of so many kernels, evenly picked."""
        pick = np.unique(np.linspace(0, self.value.shape[1] - 1, max(1, kernels)).astype(np.intp))
        return replace(
            self, shapes=self.shapes[pick], value=self.value[:, pick], noise=self.noise[:, pick], share=self.share[:, pick]
        )


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What kernels have in common.

    Attributes:
        departure: variance of the smooth departure from the shapes.
        low_departure: what is added to it for each fourth power of the distance from the highest clocks, where shapes that
            fit at work may fail.
        lengths: how far it reaches along each logarithm of a clock.
        rest: variance of single values that nothing else explains.
        weight: mean weight of each shape, shape (shapes,).
        weight_spread: covariance of the weights over kernels, shape (shapes, shapes).
        weight_error: root of the covariance that ``weight`` is known to, shape (shapes, shapes).
    """

    departure: float
    low_departure: float
    lengths: tuple[float, ...]
    rest: float
    weight: FloatArray
    weight_spread: FloatArray
    weight_error: FloatArray


def fit_hyperparameters(designs: Sequence[Readings]) -> Hyperparameters:
    """The hyperparameters of greatest marginal likelihood.

    Weights by expectation and maximisation, the others by compass search over their logarithms, in turn.
    """
    width = designs[0].shapes.shape[2]
    reach = np.maximum(np.max([np.ptp(design.clocks, axis=0) for design in designs], axis=0), 0.1)
    searched = [design.some(_LARGEST_SEARCH // len(designs)) for design in designs[:_LARGEST_SEARCH]]
    apart = [_apart(design.clocks) for design in searched]
    weight, spread = np.zeros(width), _WEIGHT_VARIANCE * np.eye(width)

    def unlikeliness(logs: FloatArray) -> float:
        found = _unpacked(logs, weight, spread)
        return sum(_unlikeliness(design, places, found) for design, places in zip(searched, apart, strict=True))

    place = np.log(np.concatenate([[1e-5, 1e-5], 0.5 * reach, [3e-5]]))
    least = np.concatenate([[_LOWEST, _LOWEST], np.log(0.1 * reach), [_LOWEST]])
    most = np.concatenate([[_HIGHEST, _HIGHEST], np.log(10.0 * reach), [_HIGHEST]])
    if sum(design.value.shape[1] for design in designs) < _LEAST_KERNELS:
        return _unpacked(_compass_search(unlikeliness, place, least, most, 1.5), weight, spread)
    for step in (1.5, 0.8, 0.8):
        found = _with_weights(designs, _unpacked(place, weight, spread))
        weight, spread = found.weight, found.weight_spread
        place = _compass_search(unlikeliness, place, least, most, step)
    return _with_weights(designs, _unpacked(place, weight, spread))


def posterior(
    design: Readings, kernel: int, found: Hyperparameters, rest_is_noise: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What is believed of a kernel's true values after all of its measurements.

    Args:
        design: the measurements.
        kernel: column of ``design.value``.
        found: what kernels have in common.
        rest_is_noise: whether what nothing explains is noise; else it is true roughness.

    Returns:
        Mean, shape (settings,); covariance, shape (settings, settings); and loadings of errors that kernels have in common,
        because they share the mean weights, shape (settings, shapes).
    """
    whole = _departure(_apart(design.clocks), found)
    whole += design.shapes[kernel] @ found.weight_spread @ design.shapes[kernel].T
    noise, rest = np.maximum(design.noise[:, kernel], _LEAST_NOISE), found.rest * design.share[:, kernel]
    whole[np.diag_indices(len(whole))] += noise + rest
    if rest_is_noise:
        noise = noise + rest
    inverse = np.linalg.inv(whole)
    # Written with the noise in front, so that nothing large cancels: value - N W value and N - N W N.
    pull = inverse @ (design.value[:, kernel] - design.shapes[kernel] @ found.weight)
    covariance = np.diag(noise) - noise[:, None] * inverse * noise
    common = noise[:, None] * (inverse @ design.shapes[kernel] @ found.weight_error)
    return design.value[:, kernel] - noise * pull, 0.5 * (covariance + covariance.T), common


def _whitened(design: Readings, apart: _Apart, found: Hyperparameters) -> tuple[FloatArray, FloatArray, float]:
    """Values and shapes in which departures and noise are white, and half the log determinant for it."""
    spread = _departure(apart, found)
    noise = np.maximum(design.noise.mean(axis=1), _LEAST_NOISE)
    spread[np.diag_indices(len(spread))] += noise + found.rest * design.share.mean(axis=1)
    root = np.linalg.cholesky(spread)
    whiten = np.linalg.inv(root)
    value = (whiten @ design.value).T
    return value, whiten @ design.shapes, float(np.log(np.diag(root)).sum())


def _unlikeliness(design: Readings, apart: _Apart, found: Hyperparameters) -> float:
    """Minus the log likelihood, but for a constant; kernels share a matrix but for their shapes (Woodbury)."""
    try:
        value, shapes, log_root = _whitened(design, apart, found)
    except np.linalg.LinAlgError:
        return np.inf
    value = value - shapes @ found.weight
    precision = np.linalg.inv(found.weight_spread)
    inner = shapes.transpose(0, 2, 1) @ shapes + precision
    explained = np.einsum("ksw,ks->kw", shapes, value)
    quadratic = float((value**2).sum() - (explained * np.linalg.solve(inner, explained[:, :, None])[:, :, 0]).sum())
    logs = float(np.linalg.slogdet(inner)[1].sum()) - len(value) * float(np.linalg.slogdet(precision)[1])
    return len(value) * log_root + 0.5 * (quadratic + logs)


def _with_weights(designs: Sequence[Readings], found: Hyperparameters) -> Hyperparameters:
    """The same with the weights' mean and spread over kernels, by expectation and maximisation."""
    white = [_whitened(design, _apart(design.clocks), found) for design in designs]
    inner = np.concatenate([shapes.transpose(0, 2, 1) @ shapes for _, shapes, _ in white])
    explained = np.concatenate([np.einsum("ksw,ks->kw", shapes, value) for value, shapes, _ in white])
    mean, spread = found.weight, found.weight_spread
    least = _LEAST_SPREAD * np.eye(len(mean))
    for _ in range(_ROUNDS):
        precision = np.linalg.inv(spread)
        covariance = np.linalg.inv(inner + precision)
        weight = np.einsum("kvw,kw->kv", covariance, explained + precision @ mean)
        mean = weight.mean(axis=0)
        apart = weight - mean
        spread = (covariance.sum(axis=0) + apart.T @ apart) / max(1, len(weight) - 1) + least
    precision = np.linalg.inv(spread)
    told = precision - precision @ np.linalg.inv(inner + precision) @ precision
    size, along = np.linalg.eigh(0.5 * (told + told.transpose(0, 2, 1)).sum(axis=0))
    error = along / np.sqrt(np.maximum(size, 0.0) + 1.0 / _WEIGHT_VARIANCE)
    return replace(found, weight=mean, weight_spread=spread, weight_error=error)


@dataclass(frozen=True, slots=True, eq=False)
class _Apart:
    """How far settings are from each other, and how far from the highest clocks, by logarithms of clocks.

    Attributes:
        distances: along each logarithm, shape (dimensions, settings, settings).
        low: products of two settings' squared distances from the highest clocks, shape (settings, settings).
    """

    distances: FloatArray
    low: FloatArray


def _apart(clocks: FloatArray) -> _Apart:
    square = (clocks**2).sum(axis=1)
    return _Apart(np.abs(clocks.T[:, :, None] - clocks.T[:, None, :]), np.outer(square, square))


def _unpacked(logs: FloatArray, weight: FloatArray, spread: FloatArray) -> Hyperparameters:
    departure, low, *lengths, rest = np.exp(logs).tolist()
    return Hyperparameters(departure, low, tuple(lengths), rest, weight, spread, np.zeros_like(spread))


def _departure(apart: _Apart, found: Hyperparameters) -> FloatArray:
    """Prior covariance of the departures."""
    covariance: FloatArray = found.departure + found.low_departure * apart.low
    for distance, length in zip(apart.distances, found.lengths, strict=True):
        scaled = distance * (np.sqrt(5.0) / length)
        covariance *= (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    return covariance


def _compass_search(
    worth: Callable[[FloatArray], float], begin: FloatArray, least: FloatArray, most: FloatArray, step: float
) -> FloatArray:
    """The place of the least value, found by trying a step along each axis in turn, shorter once none helps."""
    place, value = begin, worth(begin)
    steps = np.full(len(begin), step)
    while steps.max() > 0.15:
        for axis in np.flatnonzero(steps > 0.15):
            for direction in (1.0, -1.0):
                tried = place.copy()
                tried[axis] = np.clip(place[axis] + direction * steps[axis], least[axis], most[axis])
                found = worth(tried)
                if found < value - 1e-2:
                    place, value = tried, found
                    break
            else:
                steps[axis] *= 0.4
    return place
