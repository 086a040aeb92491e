"""How two ways to run a job compare, by pairs of neighbouring stretches: an estimate with its interval, from two pairs on.

    plan         ▮▮▮▮┊▮▮▮▮▮▮▮▮▮▮┊▮▮▮▮    ▮▮▮▮┊▮▮▮▮▮▮▮┊▮▮▮▮
    default                          ▮▮▮▮                  ▮▮▮▮
    pair                        └──────────┘

A pair is a stretch at the default clocks against the mean of the plan's right before and right after it, on a logarithmic
scale: what drifts at a constant rate cancels. No stretch belongs to two pairs, so that they are as good as independent, and
Student's t holds for their mean. The interval is that of one look; whoever decides again and again needs wider ones
(:func:`boundary`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wastenot.control.status import Estimate

# Student's t at 97.5 %, by degrees of freedom from 1.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
    2.101, 2.093, 2.086,
)  # fmt: skip
_TIGHTEST = 8.0  # values, at which the bound is about the tightest


def student_t(freedom: int) -> float:
    """Student's t at 97.5 %, which bounds a 95 % interval on either side."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)


@dataclass(frozen=True, slots=True)
class LogMean:
    """A mean of logarithms of ratios, and half the length of its 95 % interval."""

    mean: float
    half: float

    @property
    def change(self) -> Estimate:
        """The ratio − 1."""
        low, middle, high = (math.expm1(self.mean + side * self.half) for side in (-1.0, 0.0, 1.0))
        return Estimate(value=middle, low=low, high=high)


def log_mean(values: Sequence[float]) -> LogMean | None:
    """The mean of independent values with its interval; ``None`` of fewer than two."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return LogMean(mean, student_t(count - 1) * math.sqrt(variance / count))


def boundary(count: float, chance: float) -> float:
    """How far a mean of ``n`` values may be off at any of endless looks but for a chance, in its standard errors.

    The normal mixture bound (Robbins 1970; Howard et al. 2021, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences", eq. 14), one-sided.

    Args:
        count: of values so far.
        chance: that it is ever exceeded.
    """
    ratio = (count + _TIGHTEST) / count
    return math.sqrt(ratio * 2.0 * math.log(math.sqrt((count + _TIGHTEST) / _TIGHTEST) / (2.0 * chance) + 1.0))


@dataclass(slots=True)
class Noise:
    """How iterations of a stretch differ from each other, learned from neighbours.

    Attributes:
        variance: of the logarithm of an iteration's time; what is assumed until some were seen.
    """

    variance: float = 1e-4
    seen: int = 0

    def learn(self, before_s: float, after_s: float) -> None:
        """Take note of two iterations that followed each other in a stretch."""
        half = 0.5 * math.log(after_s / before_s) ** 2
        self.seen += 1
        weight = max(0.02, 1.0 / (self.seen + 4.0))
        # Single outliers must not hide what comes after them.
        self.variance += weight * (min(half, 16.0 * self.variance) - self.variance)

    def of_mean(self, count: int) -> float:
        """Variance of the mean over neighbouring iterations, as if neighbours were correlated by 0.3.

        Differences of neighbours then show 1 − 0.3 of the variance, and means keep (1 + 0.3)/(1 − 0.3) times as much.
        """
        return self.variance * 1.3 / 0.7**2 / count
