"""Posteriors of true values: what is believed of them after a sweep, with the errors that they have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray


@dataclass(frozen=True, slots=True, eq=False)
class Loadings:
    """Loadings of errors that all kernels have in common, by row: products with factors wait until rows are asked for.

    Attributes:
        parts: a factor of each row, shape (rows,), and the loadings that it multiplies, shape (rows, errors).
    """

    parts: tuple[tuple[FloatArray, FloatArray], ...]

    @classmethod
    def of(cls, loadings: FloatArray) -> Loadings:
        """Loadings as they are, shape (rows, errors)."""
        return cls(((np.ones(len(loadings)), loadings),))

    def __getitem__(self, rows: IndexArray | slice) -> FloatArray:
        """Those of some rows, shape (..., errors)."""
        if not isinstance(rows, slice) and len(rows) == len(self.parts[0][0]) and np.array_equal(rows, np.arange(len(rows))):
            rows = slice(None)  # all of them, which need not be picked one by one
        found = [factor[rows][..., None] * loadings[rows] for factor, loadings in self.parts]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=-1)

    def times(self, factor: FloatArray | float) -> Loadings:
        """The same with rows multiplied."""
        return Loadings(tuple((factor * own, loadings) for own, loadings in self.parts))

    def beside(self, others: Loadings) -> Loadings:
        """These errors, then others."""
        return Loadings(self.parts + others.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """True values of one call of each kernel at each setting, as believed; arrays by the rows of :class:`Costs`.

    Attributes:
        mean: expected value.
        variance: of the true value around it.
        with_baseline: covariance with the kernel's baseline, its variance at the baseline itself.
        common: loadings of further errors that all kernels have in common, each of variance 1.
    """

    mean: FloatArray
    variance: FloatArray
    with_baseline: FloatArray
    common: Loadings

    def times(self, other: Posterior, first: IndexArray, correlation: float = 0.0) -> Posterior:
        """The product with other values, whose errors correlate with these; ``first`` is the baseline row of each row.

        Of X = x + a and Y = y + b with normal errors a and b, and X' and Y' at another row,

            Cov(XY, X'Y') = x x' Cov(b, b') + y y' Cov(a, a') + Cov(a, a') Cov(b, b') + x y' Cov(b, a') + y x' Cov(a, b')

        but for Cov(a, b') Cov(b, a'), which is left out. Of the cross covariances only the correlation is known: they are
        taken to be as large as the geometric mean of the other two times that, with the sign of ours.
        """

        def moment(ours: FloatArray, theirs: FloatArray, ends: IndexArray) -> FloatArray:
            mean, other_mean = self.mean, other.mean
            both = correlation * np.sign(ours) * np.sqrt(np.abs(ours * theirs))
            together = both * (mean * other_mean[ends] + mean[ends] * other_mean)
            return np.asarray(mean * mean[ends] * theirs + other_mean * other_mean[ends] * ours + ours * theirs + together)

        here = np.arange(len(first))
        return Posterior(
            self.mean * other.mean,
            moment(self.variance, other.variance, here),
            moment(self.with_baseline, other.with_baseline, first),
            self.common.times(other.mean).beside(other.common.times(self.mean)),
        )

    def exponential(self, first: IndexArray) -> Posterior:
        """Values of whose logarithms this is believed (log-normal); ``first`` is the baseline row of each row.

        With logarithms of mean m, variance v and covariance c: E = exp(m + v / 2), Cov = E E' (exp(c) − 1).
        """
        value = np.exp(self.mean + 0.5 * self.variance)
        variance, with_baseline = np.expm1(self.variance), np.expm1(self.with_baseline)
        return Posterior(value, value**2 * variance, value * value[first] * with_baseline, self.common.times(value))

    def widened(self, factor: float) -> Posterior:
        """The same with errors scaled by a factor."""
        square = factor**2
        return Posterior(self.mean, square * self.variance, square * self.with_baseline, self.common.times(factor))

    def with_common(self, loadings: FloatArray) -> Posterior:
        """The same with further errors that all kernels have in common, as fractions of the mean; shape (rows, errors)."""
        if not loadings.any():
            return self
        return replace(self, common=self.common.beside(Loadings.of(loadings).times(self.mean)))

    def scaled(self, factor: float) -> Posterior:
        """The same in another unit."""
        return replace(self.widened(factor), mean=factor * self.mean)


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Posteriors of times and energies; apart from common errors, kernels are independent of each other.

    Attributes:
        rows: of :class:`Costs` that they are of, ascending, each kernel's baseline among them.
        time_s: of times, by ``rows``.
        energy_j: of energies, by ``rows``.
    """

    rows: IndexArray
    time_s: Posterior
    energy_j: Posterior

    def index(self, rows: IndexArray) -> IndexArray:
        """Where some rows of :class:`Costs` are in these arrays."""
        return np.searchsorted(self.rows, rows)
