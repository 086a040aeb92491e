"""What a run of a job costs: a weighted sum of its energy and time, or one of them under a bound on the other."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.tables.records import JobTerms

_BEYOND = 1e3  # times as bad as what keeps the bound, so that of those that break it the least bad is chosen


def cost(terms: JobTerms, time_s: FloatArray | float, energy_j: FloatArray | float) -> FloatArray:
    """Cost of runs, which is to be as low as can be.

    By default η·E + (1 − η)·P·t, with P the greatest power of the device (Zeus, NSDI 2023, section 3.1, equation 2).

    Args:
        terms: of the job.
        time_s: time to the target, any shape.
        energy_j: energy to the target, same shape.

    Returns:
        In joules; in seconds under a power budget. Same shape.
    """
    time_s, energy_j = np.asarray(time_s, dtype=np.float64), np.asarray(energy_j, dtype=np.float64)
    if terms.within_s is not None:
        late = np.maximum(time_s / terms.within_s, 1.0)
        return np.where(late > 1.0, energy_j * _BEYOND * late, energy_j)
    if terms.power_budget_w is not None:
        power_w = energy_j / time_s
        above = np.maximum(power_w / terms.power_budget_w, 1.0)
        return np.where(above > 1.0, time_s * _BEYOND * above, time_s)
    price_w = 1.0 if terms.max_power_w is None else terms.max_power_w
    if terms.eta == 0.0:
        return price_w * time_s  # also where nothing measures energy
    return terms.eta * energy_j + (1.0 - terms.eta) * price_w * time_s


def needs_energy(terms: JobTerms) -> bool:
    """Whether a cost says nothing where no energy is known."""
    return terms.eta > 0.0 or terms.within_s is not None or terms.power_budget_w is not None


def in_seconds(terms: JobTerms) -> bool:
    """Whether costs are seconds rather than joules."""
    return terms.power_budget_w is not None or (terms.within_s is None and terms.eta == 0.0 and terms.max_power_w is None)
