"""What the runs of a job are to cost as little as can be of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobGoal:
    """What is minimised, over the runs of a job.

    Attributes:
        eta: weight of energy against time, from 0 (time alone) to 1 (energy alone); by default 0.5, or 0 where no energy is
            measured; a weight below 1 is then 0 as well, and a line says so.
        within_s: least energy of runs that take at most so long, in place of the weighted cost.
        power_budget_w: least time of runs whose mean power is at most this, in place of the weighted cost.
    """

    eta: float | None = None
    within_s: float | None = None
    power_budget_w: float | None = None
