"""How far a profile's times and energies can be off, and what of that its instructions have in common.

A kernel measured once serves every layer of every stage, and an instruction's error at a setting is the same for all of its
micro-batches: what a plan gets wrong it gets wrong everywhere. So errors are kept as loadings: a way's time is its expected
time plus a weighted sum of independent standard normal errors, and ways that rest on one measurement share its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.pipelines.model.kernel_table import KernelTable
from wastenot.pipelines.model.ways import InstructionWays
from wastenot.planning.noise.posteriors import Posterior
from wastenot.planning.planner import Planner


@dataclass(frozen=True, slots=True, eq=False)
class Loadings:
    """Errors of numbers as weights of independent errors of variance 1; shape (..., errors).

    Attributes:
        time_s: of times.
        energy_j: of energies.
        doubt_s: by how much more times may be expected too low, for the luck of a choice.
    """

    time_s: FloatArray
    energy_j: FloatArray
    doubt_s: FloatArray

    def at(self, way: int) -> Loadings:
        """Those of one way."""
        return Loadings(self.time_s[way], self.energy_j[way], self.doubt_s[way])


@dataclass(frozen=True, slots=True, eq=False)
class ProfileErrors:
    """Errors of a profile.

    Attributes:
        ways: by (stage, instruction), of each way as the profile's choice lists them; arrays of shape (ways, errors).
        baseline: by (stage, instruction), at the default clocks; arrays of shape (errors,).
    """

    ways: Mapping[tuple[int, str], Loadings]
    baseline: Mapping[tuple[int, str], Loadings]

    def deviation_s(self, key: tuple[int, str]) -> FloatArray:
        """Standard deviation of how much slower each way is than the default clocks than it seems; shape (ways,)."""
        return np.asarray(np.sqrt(np.square(self.ways[key].time_s - self.baseline[key].time_s).sum(axis=1)))

    def charge_s(self, key: tuple[int, str], margin: float) -> FloatArray:
        """By how much slower each way may be: a multiple of these, and what is expected too low; 0 at a margin of 0."""
        deviation_s = self.deviation_s(key)
        return margin * deviation_s + self.ways[key].doubt_s if margin > 0.0 else np.zeros(len(deviation_s))


@dataclass(frozen=True, slots=True, eq=False)
class KernelErrors:
    """Errors of a table of kernels.

    Each kernel has an error at its baseline, and one that its other settings share: what is left of their errors is taken to
    be one and the same, the worst that it can be. Errors that all kernels have in common come after these.

    Attributes:
        time_s: shape (settings, kernels, errors).
        energy_j: likewise.
        doubt_s: shape (settings, kernels).
    """

    time_s: FloatArray
    energy_j: FloatArray
    doubt_s: FloatArray

    @classmethod
    def of(cls, planner: Planner, table: KernelTable, too_low: float, expected: float = 0.5) -> Self:
        """The errors of a sweep that says how noisy it is.

        Args:
            planner: of the sweep.
            table: of its kernels, corrected for noise.
            too_low: fraction by which times that were chosen may be expected too low.
            expected: how much of that is taken to be so; half of it is doubted.
        """
        posteriors = planner.posteriors
        assert posteriors is not None
        rows = posteriors.index(np.maximum(table.rows, 0))
        time = _loadings(posteriors.time_s, rows)
        energy = _loadings(posteriors.energy_j, rows)
        chosen = np.where(rows == rows[:1], 0.0, too_low * posteriors.time_s.mean[rows])
        time = np.concatenate([time, 0.5 * chosen[:, :, None]], axis=2)
        return cls(time, energy, expected * chosen)

    def of_runs(self, runs: FloatArray) -> Loadings:
        """Errors of a sum of kernels at settings, run so often; shape (settings, kernels)."""
        return Loadings(
            np.einsum("sk,ske->e", runs, self.time_s),
            np.einsum("sk,ske->e", runs, self.energy_j),
            np.einsum("sk,sk->", runs, self.doubt_s),
        )

    def of_ways(self, ways: InstructionWays) -> Loadings:
        """Errors of all ways of an instruction."""
        each = [self.of_runs(ways.runs(index)) for index in range(len(ways))]
        return Loadings(*(np.stack([getattr(one, name) for one in each]) for name in Loadings.__slots__))


def _loadings(posterior: Posterior, rows: IndexArray) -> FloatArray:
    settings, kernels = rows.shape
    base = posterior.variance[rows[0]]
    with np.errstate(divide="ignore", invalid="ignore"):
        with_base = np.where(base > 0.0, posterior.with_baseline[rows] / np.sqrt(base), 0.0)
    own = np.sqrt(np.maximum(posterior.variance[rows] - with_base**2, 0.0))
    common = posterior.common[rows]
    loadings = np.zeros((settings, kernels, 2 * kernels + common.shape[2]))
    each = np.arange(kernels)
    loadings[:, each, each] = with_base
    loadings[:, each, kernels + each] = own
    loadings[:, :, 2 * kernels :] = common
    return loadings
