"""What a simulated run was like: each request's latencies, and what the engine used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.requests import Requests


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A run by bins of time, for pictures.

    Attributes:
        bin_s: width of a bin; the first begins at 0.
        energy_j: in each; shape (bins,).
        core_mhz: ceiling of the core clock, on average; 0 where no setting has one; shape (bins,).
        running: requests that decode, on average; shape (bins,).
        waiting: other requests that are there, on average; shape (bins,).
        tokens: made; shape (bins,).
        longest_gap_s: between two tokens, of those made in the bin; shape (bins,).
        lasted_s: of each, within the run; shape (bins,).
    """

    bin_s: float
    energy_j: FloatArray
    core_mhz: FloatArray
    running: FloatArray
    waiting: FloatArray
    tokens: IndexArray
    longest_gap_s: FloatArray
    lasted_s: FloatArray

    @property
    def power_w(self) -> FloatArray:
        """Mean of each bin."""
        return self.energy_j / self.lasted_s


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One run.

    Attributes:
        requests: that came.
        first_token_s: when each had its first token; shape (requests,).
        finish_s: when each had its last; shape (requests,).
        late_tokens: tokens of each after the first that came later than the bound after the one before; shape (requests,).
        preemptions: of each; shape (requests,).
        end_s: of the last step.
        energy_j: by what it was used for: ``prefill``, ``decode``, ``mixed`` steps, ``idle`` (waiting for requests, host).
        time_s: likewise.
        steps: of each kind.
        setting_s: time at each setting; shape (settings,).
        switches: of the clock.
        gap_counts: tokens by the gap before them, in :data:`GAP_EDGES_S`; shape (edges + 1,).
        timeline: where one was asked for.
    """

    requests: Requests
    first_token_s: FloatArray
    finish_s: FloatArray
    late_tokens: IndexArray
    preemptions: IndexArray
    end_s: float
    energy_j: dict[str, float]
    time_s: dict[str, float]
    steps: dict[str, int]
    setting_s: FloatArray
    switches: int
    gap_counts: IndexArray
    timeline: Timeline | None = None

    @property
    def total_energy_j(self) -> float:
        """Of the whole run."""
        return sum(self.energy_j.values())

    @property
    def energy_per_token_j(self) -> float:
        """Energy of the run for each token made."""
        return self.total_energy_j / float(self.requests.output_tokens.sum())

    def attainment(self, deadlines: Deadlines) -> float:
        """Share of the requests that kept all of their deadlines."""
        return float(deadlines.kept(self.requests, self).mean())


GAP_EDGES_S: FloatArray = np.geomspace(1e-4, 10.0, 501)
"""Edges of the bins of gaps between tokens: 2.3 % wide."""


def gap_percentile_s(gap_counts: IndexArray, share: float) -> float:
    """A time between two tokens that a share of all does not exceed: the upper edge of its bin; 0 where there are none.

    Args:
        gap_counts: tokens by the gap before them, in :data:`GAP_EDGES_S`; shape (edges + 1,).
        share: of the tokens.
    """
    within = np.cumsum(gap_counts)
    if not within[-1]:
        return 0.0
    return float(GAP_EDGES_S[min(int(np.searchsorted(within, share * within[-1])), len(GAP_EDGES_S) - 1)])
