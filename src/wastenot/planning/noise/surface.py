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

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray

LEAST_NOISE = 1e-10  # variance far below any instrument's; keeps matrices regular
ADDED_NOISE = 0.5
"""Of the coupled bootstrap, in standard deviations of the noise (their √α), by hand: the smaller, the nearer the choice is
to the one that is judged, but the independent set has 1 / 0.5² times the noise's variance more."""

_SMALL_TRIANGLE = 7, 26  # size of many triangles or of one that are inverted without halving them further
_TOGETHER = 1 << 18  # numbers of the matrices that are inverted at once: what fits into a core's cache


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
        roughness: fraction of the kernels whose departures have each factor of :data:`.hyperparameters.ROUGHNESS`.
    """

    departure: float
    low_departure: float
    lengths: tuple[float, ...]
    rest: float
    weight: FloatArray
    weight_spread: FloatArray
    weight_error: FloatArray
    roughness: FloatArray


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


def _believed(readings: Readings, common: Hyperparameters, departure: FloatArray, rough: FloatArray) -> _Believed:
    value, noise = readings.value, np.maximum(readings.noise, LEAST_NOISE)
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
        rough: of each kernel, from :func:`.hyperparameters.roughness`.
        draws: standard normal, of the bootstrap; shape (kernels, settings, draws).
    """
    departure = departure_covariance(separation(readings.clocks), common)
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
        return inverse_triangles(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:  # hardly any noise
        size, along = np.linalg.eigh(covariances)
        return np.asarray(along.transpose(0, 2, 1) / np.sqrt(np.maximum(size, LEAST_NOISE))[:, :, None])


def inverse_triangles(lower: NDArray[np.floating]) -> FloatArray:
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


class Separation(NamedTuple):
    """How far settings are from each other and from the highest clocks, by logarithms of clocks.

    Attributes:
        distances: along each logarithm those that there are, shape (distances,), and which of them is between two settings,
            shape (settings, settings): of settings on a grid few differ.
        low: products of two settings' squared distances from the highest clocks, shape (settings, settings).
    """

    distances: list[tuple[FloatArray, IndexArray]]
    low: FloatArray


def separation(clocks: FloatArray) -> Separation:
    """How far settings are apart, from their clocks as :class:`Readings` has them."""
    square = (clocks**2).sum(axis=1)
    distances = []
    for column in clocks.T:
        apart, which = np.unique(np.abs(column[:, None] - column), return_inverse=True)
        distances.append((apart, which.reshape(len(column), -1)))
    return Separation(distances, np.outer(square, square))


def departure_covariance(apart: Separation, common: Hyperparameters) -> FloatArray:
    """Prior covariance of the departures."""
    covariance: FloatArray = common.departure + common.low_departure * apart.low
    for (distance, which), length in zip(apart.distances, common.lengths, strict=True):
        scaled = distance * (np.sqrt(5.0) / length)
        covariance *= ((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)).take(which)
    return covariance
