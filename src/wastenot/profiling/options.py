"""How a kernel is to be profiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How to profile.

    Attributes:
        runs: instead of the guidance's.
        margin: of the bins, instead of the guidance's.
        bin_rank: 1 for the fullest bin of outliers, 2 for the next.
        units: executions (or groups) in a run; instead of the search for SSP.
        budget_s: of device time, where a sensor's averaging makes readings dear.
        longest_run_s: after which the search for SSP gives up.
        rest_s: least time at rest before a run.
        check: compare with the energy counter in the end.
        seed: of rests.
    """

    runs: int | None = None
    margin: float | None = None
    bin_rank: int = 0
    units: int | None = None
    budget_s: float = 240.0
    longest_run_s: float = 4.0
    rest_s: float = 0.01
    check: bool = True
    seed: int = 0
