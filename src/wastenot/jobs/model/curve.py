"""A positive quantity by batch size (epochs to the target, cost of an epoch), learned across batch sizes.

Its logarithm is a curve over log2 of the batch size: one of a few shapes that theory expects, plus a smooth deviation,
plus one of each batch size's own. Everything is Gaussian but for the shapes, how rough the curve is and how much runs
scatter; these are a finite mixture, weighted by the evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.model.scatter import chance_below

_ALIKE = 3.0  # degrees of freedom: how alike batch sizes are in how much their runs scatter
_LEVEL_SD = 5.0  # of the logarithm of the whole curve: nothing is known of it


@dataclass(frozen=True, slots=True)
class Roughness:
    """How far a curve strays from its shape.

    Attributes:
        smooth: standard deviation of the smooth deviation.
        own: standard deviation of each batch size's own.
    """

    smooth: float
    own: float


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What was observed of a curve, by batch size.

    Attributes:
        count: observations; shape (batch sizes,).
        mean: of their logarithms, anything where there are none; same shape.
        scatter: sum of squared distances of the logarithms from that mean; same shape.
        site_precision: of what bounds tell of the curve, zero where there are none; same shape.
        site_mean: at which these centre; same shape.
    """

    count: FloatArray
    mean: FloatArray
    scatter: FloatArray
    site_precision: FloatArray
    site_mean: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """What is believed of a curve.

    Attributes:
        mean: of the logarithm; shape (batch sizes,).
        covariance: of it; shape (batch sizes, batch sizes).
        noise: standard deviations of the logarithm from run to run, as a mixture; shape (levels,).
        weights: of these; same shape.
        noise_variance: of the logarithm from run to run, expected of each batch size; shape (batch sizes,).
    """

    mean: FloatArray
    covariance: FloatArray
    noise: FloatArray
    weights: FloatArray
    noise_variance: FloatArray


class Curve:
    """Learns a curve over log2 of the batch size.

    Args:
        shapes: of the curve's logarithm that theory expects; shape (shapes, batch sizes).
        likely: how likely each is beforehand; shape (shapes,).
        octaves: log2 of the batch sizes, ascending.
        roughness: that the curve may have.
        noise: standard deviations of the logarithm that runs may have.
        length: over which the smooth deviation stays alike, in octaves.
        base: covariance that every curve has on top, about shapes that were learned; shape (batch sizes, batch sizes).
        level: standard deviation of the logarithm of the whole curve.
        likely: each shape, a priori, in any unit; shape (shapes,).
    """

    def __init__(
        self,
        shapes: FloatArray,
        octaves: FloatArray,
        *,
        roughness: tuple[Roughness, ...],
        noise: tuple[float, ...],
        length: float,
        base: FloatArray | None = None,
        level: float = _LEVEL_SD,
        likely: FloatArray | None = None,
    ) -> None:
        distance = np.abs(octaves[:, None] - octaves[None, :]) / length
        matern = (1.0 + math.sqrt(5.0) * distance + 5.0 / 3.0 * distance**2) * np.exp(-math.sqrt(5.0) * distance)
        self._shapes = shapes - shapes.mean(axis=1, keepdims=True) if base is None else shapes
        likely = np.ones(len(shapes)) if likely is None else likely
        self._likely: FloatArray = likely / likely.sum()
        own = np.eye(octaves.size)
        always = level**2 + (0.0 if base is None else base)
        kernels = [always + each.smooth**2 * matern + each.own**2 * own for each in roughness]
        self._levels = np.array(noise)
        self._kernels = np.repeat(np.array(kernels), len(noise), axis=0)
        self._variance = np.tile(self._levels**2, len(roughness))

    def learn(self, seen: Seen, own: float = 0.0) -> Belief:
        """What is believed after what was seen.

        Args:
            seen: observations by batch size.
            own: standard deviation of a further deviation of each batch size, such as from rounding.
        """
        variance = self._variance + own**2  # rounding moves runs, too
        scattered, likely = self._scattered(seen, variance)
        precision = seen.count / scattered + seen.site_precision
        at = np.flatnonzero(precision[0] > 0.0)
        levels = self._levels.size
        if at.size == 0:
            covariance = self._kernels.mean(axis=0) + _spread(self._shapes, self._likely)
            noise = self._variance.mean() * np.ones(seen.count.size)
            return Belief(self._likely @ self._shapes, covariance, self._levels, np.full(levels, 1.0 / levels), noise)
        count, mean, sites = seen.count[at], seen.mean[at], seen.site_precision[at]
        precision = precision[:, at]
        value = (count * mean / scattered[:, at] + sites * seen.site_mean[at]) / precision
        inner = self._kernels[:, at[:, None], at]
        diagonal = np.arange(at.size)
        inner[:, diagonal, diagonal] += 1.0 / precision + own**2
        across = self._kernels[:, :, at]
        if own > 0.0:
            across[:, at, diagonal] += own**2
        root = np.linalg.inv(np.linalg.cholesky(inner))  # a few dozen rows at most, and well conditioned by the noise
        white = root @ (value[:, None, :] - self._shapes[:, at]).transpose(0, 2, 1)  # (mixture, observed, shapes)
        gain = across @ root.transpose(0, 2, 1)  # (mixture, batch sizes, observed)
        evidence = (
            -0.5 * (white**2).sum(axis=1)
            + (np.log(root[:, diagonal, diagonal]).sum(axis=1))[:, None]
            + np.log(self._likely)
            + likely[:, None]
        )
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        means = self._shapes + (gain @ white).transpose(0, 2, 1)  # (mixture, shapes, batch sizes)
        each = weights.sum(axis=1)
        flat = means.reshape(-1, means.shape[-1])
        middle = weights.ravel() @ flat
        covariance = np.tensordot(each, self._kernels - gain @ gain.transpose(0, 2, 1), axes=1)
        covariance += _spread(flat, weights.ravel())
        if own > 0.0:
            covariance[np.diag_indices_from(covariance)] += own**2
        noise = each @ self._variances(seen, self._variance)
        return Belief(middle, covariance, self._levels, each.reshape(-1, levels).sum(axis=0), noise)

    def _variances(self, seen: Seen, variance: FloatArray) -> FloatArray:
        """Variance from run to run of each batch size, between that of all and that of its own runs; (mixture, sizes)."""
        more = np.maximum(seen.count - 1.0, 0.0)
        if self._levels.size == 1:
            return np.broadcast_to(variance[:, None], (variance.size, more.size))
        own: FloatArray = (_ALIKE * variance[:, None] + seen.scatter) / (_ALIKE + more)
        return own

    def _scattered(self, seen: Seen, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Variance of a run, as far as it is known, and the log-likelihood of how much runs of a batch size scatter.

        The variance of each batch size is one over a gamma variable about what all have in common, so that runs follow
        Student's t: a lone run that lies far off says less than its distance (Gelman et al. 2013, section 17.2).

        Returns:
            Shapes (mixture, batch sizes) and (mixture,).
        """
        more = np.maximum(seen.count - 1.0, 0.0)
        variances = self._variances(seen, variance)
        if self._levels.size == 1:
            return variances, np.zeros(variance.size)
        freedom = _ALIKE + more
        likely = -0.5 * more * np.log(variance[:, None])
        likely -= 0.5 * freedom * np.log1p(seen.scatter / (_ALIKE * variance[:, None])) * (more > 0.0)
        return variances * freedom / (freedom - 2.0), likely.sum(axis=1)


def _spread(means: FloatArray, weights: FloatArray) -> FloatArray:
    """Covariance of the means of a mixture."""
    away = means - weights @ means
    spread: FloatArray = (away * weights[:, None]).T @ away
    return spread


def survival_site(mean: float, variance: float, noise: float, bound: float) -> tuple[float, float]:
    """What a value that lies above a bound tells of the curve at its batch size, as a Gaussian that does the same.

    Moments of a normal that is truncated in a noisy copy of itself (Rasmussen & Williams 2006, section 3.6).

    Args:
        mean: believed, of the logarithm.
        variance: believed, of the logarithm.
        noise: variance from run to run.
        bound: logarithm that the value is above.

    Returns:
        Precision and mean of the site.
    """
    total = math.sqrt(variance + noise)
    z = (mean - bound) / total
    hazard = -z - 1.0 / z if z < -6.0 else math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / chance_below(z)
    shrink = hazard * (hazard + z) * variance / total**2
    moved = mean + variance * hazard / total
    left = variance * max(1.0 - shrink, 1e-6)
    precision = 1.0 / left - 1.0 / variance
    if precision <= 1e-9 / variance:
        return 0.0, mean
    return precision, (moved / left - mean / variance) / precision
