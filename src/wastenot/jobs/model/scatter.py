"""How runs of one batch size scatter about what is expected of them: mostly as the model says, some of them more.

The normal distribution is computed without SciPy, which takes longer to import than all else that a job needs.
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray

_TAIL_SHARE, _TAIL_WIDTH = 0.1, 3.0  # of runs that scatter more than the model says, and how much more


def chance_below(z: float) -> float:
    """Chance of a value below a number of standard deviations above the mean; exact also where it is tiny."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


_each = np.vectorize(chance_below, otypes=[float])


def chances_below(z: FloatArray) -> FloatArray:
    """The same for each of several."""
    return np.asarray(_each(z))


def ordinary(z: float) -> float:
    """Chance that a run which continues for some standard deviations scatters as modelled, and reaches its target."""
    as_said, more = (1.0 - _TAIL_SHARE) * chance_below(-z), _TAIL_SHARE * chance_below(-z / _TAIL_WIDTH)
    return as_said / (as_said + more) if more > 0.0 else 0.0  # so far out that neither can be told from nothing


def reached_by(z: FloatArray) -> FloatArray:
    """Fraction of the runs that reach the target ever which have done so, by standard deviations from the middle."""
    return (1.0 - _TAIL_SHARE) * chances_below(z) + _TAIL_SHARE * chances_below(z / _TAIL_WIDTH)
