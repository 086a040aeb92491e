"""How long requests take, from a window that cuts some of them off at both ends."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.serving.tables.records import Percentiles

_SHARES = (0.50, 0.90, 0.95, 0.99)


def percentiles(values: FloatArray) -> Percentiles:
    """Mean and percentiles of values that are all known."""
    if len(values) == 0:
        return Percentiles()
    p50, p90, p95, p99 = (float(value) for value in np.percentile(values, [100.0 * share for share in _SHARES]))
    return Percentiles(float(values.mean()), p50, p90, p95, p99)


def lifetimes(entered: FloatArray, left: FloatArray, ended: BoolArray) -> Percentiles:
    """Mean and percentiles of lifetimes, some of which were watched from some age on, or only up to some age.

    The product-limit estimate (Kaplan and Meier 1958) with delayed entry: at each age at which some ended, the share of
    those watched at that age that ended then. Counting only those that ended in the window would find them too short.

    Args:
        entered: age from which each was watched; 0 for those that began in the window.
        left: age up to which it was.
        ended: whether it ended then, rather than went on unwatched.

    Returns:
        What is known: percentiles that too few lived to see are ``None``, as is a mean that some outlived.
    """
    watched = left > entered
    entered, left, ended = entered[watched], left[watched], ended[watched]
    if not ended.any():
        return Percentiles()
    if ended.all() and not entered.any():
        return percentiles(left)
    ages, deaths = np.unique(left[ended], return_counts=True)
    at_risk = len(entered) - np.searchsorted(np.sort(left), ages, side="left") - (
        len(entered) - np.searchsorted(np.sort(entered), ages, side="left")
    )  # fmt: skip
    surviving = np.cumprod(1.0 - deaths / at_risk)
    # All of a few early ones ended: nothing is known of later ages.
    if surviving[-1] > 1e-12 or np.any(surviving[:-1] <= 1e-12):
        mean = None
        surviving = np.where(np.minimum.accumulate(surviving) <= 1e-12, np.nan, surviving)
    else:
        mean = float(np.sum(np.diff(ages, prepend=0.0) * np.concatenate([[1.0], surviving[:-1]])))
    known = [ages[surviving <= 1.0 - share + 1e-12] for share in _SHARES]
    return Percentiles(mean, *(float(each[0]) if len(each) else None for each in known))
