"""The standard normal distribution without SciPy, which takes longer to import than all else that a job needs."""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray


def chance_below(z: float) -> float:
    """Chance of a value below so many standard deviations above the mean; exact also where it is tiny."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


_each = np.vectorize(chance_below, otypes=[float])


def chances_below(z: FloatArray) -> FloatArray:
    """The same for each of several."""
    return np.asarray(_each(z))
