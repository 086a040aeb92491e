"""What a run of a job costs: a weighted sum of its energy and time, or one of them under a bound on the other."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.tables.records import JobTerms
from wastenot.planning.objective_kinds import JOBS, JobKind, JobObjectiveKind


def objective_of(terms: JobTerms) -> JobKind:
    """What of the list of objectives a job's terms ask for."""
    name: JobObjectiveKind = "weighted"
    if terms.within_s is not None:
        name = "energy within a time"
    elif terms.power_budget_w is not None:
        name = "time within a power"
    elif terms.eta == 1.0:
        name = "energy"
    elif terms.eta == 0.0 and terms.max_power_w is None:
        name = "time"
    return JOBS[name]


def cost(terms: JobTerms, time_s: FloatArray | float, energy_j: FloatArray | float) -> FloatArray:
    """Cost of runs, which is to be as low as can be.

    Args:
        terms: of the job.
        time_s: time to the target, any shape.
        energy_j: energy to the target, same shape.

    Returns:
        In joules, or in seconds where time alone counts. Same shape.
    """
    time_s, energy_j = np.asarray(time_s, dtype=np.float64), np.asarray(energy_j, dtype=np.float64)
    return np.asarray(objective_of(terms).cost(terms, time_s, energy_j))
