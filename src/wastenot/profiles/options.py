"""How a profile is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wastenot.core.errors import BadInputError

_MIN_RUNS, _MAX_OUTLIERS = 10, 20  # that may be asked for


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to profile.

    Attributes:
        runs: instead of the number that the kernel's time calls for.
        margin: width of the bin of execution times as a fraction of the time, instead of the one the time calls for.
        outliers: 0 for the runs that are most alike, 1 for the next bin of execution times, and so on.
        executions: (or groups of them) in a run, instead of the search for steady power.
        budget_s: device time after which no more is collected.
        longest_run_s: at which the search for steady power gives up.
        rest_s: shortest rest before a run.
        check: compare with the energy counter in the end.
        seed: of rests between runs.
    """

    runs: int | None = None
    margin: float | None = None
    outliers: int = 0
    executions: int | None = None
    budget_s: float = 240.0
    longest_run_s: float = 4.0
    rest_s: float = 0.01
    check: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.runs is not None and self.runs < _MIN_RUNS:
            raise BadInputError(f"`runs` {self.runs}: must be at least {_MIN_RUNS}")
        if self.margin is not None and not 0.0 < self.margin < 1.0:
            raise BadInputError(f"`margin` {self.margin:g}: must be a fraction above 0 and below 1, such as 0.05")
        if not 0 <= self.outliers <= _MAX_OUTLIERS:
            raise BadInputError(f"`outliers` {self.outliers}: must be from 0, the fullest bin, to {_MAX_OUTLIERS}")
        if self.executions is not None and self.executions < 1:
            raise BadInputError(f"`executions` {self.executions}: must be at least 1")
        if not (math.isfinite(self.budget_s) and self.budget_s > 0.0):
            raise BadInputError(f"`budget_s` {self.budget_s:g}: must be a number of seconds above 0")
        if self.seed < 0:
            raise BadInputError(f"`seed` {self.seed}: must be at least 0")
