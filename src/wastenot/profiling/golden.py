"""Golden runs: those whose execution times fall into the fullest bin. FinGraV's step 5."""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray, IndexArray


def fullest_bin(time_s: FloatArray, margin: float, rank: int = 0) -> IndexArray:
    """Indices of the times in the fullest bin, whose ends are no more than the margin apart.

    Args:
        time_s: execution time of each run; shape (runs,).
        margin: width of the bin as a share of its lower end.
        rank: 0 for the fullest; 1 for the fullest of what that leaves over, and so on: outliers have profiles too.

    Returns:
        Indices in rising order, none where no run is left.
    """
    left = np.arange(len(time_s))
    for _ in range(rank + 1):
        if not len(left):
            return left
        order = left[np.argsort(time_s[left], kind="stable")]
        rising = time_s[order]
        ends = np.searchsorted(rising, rising * (1.0 + margin), side="right")
        first = int(np.argmax(ends - np.arange(len(rising))))
        chosen = np.sort(order[first : ends[first]])
        left = np.setdiff1d(left, chosen)
    return chosen
