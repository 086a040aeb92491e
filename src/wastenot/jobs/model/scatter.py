"""How runs of one batch size scatter about what is expected of them: mostly as the model says, some of them more."""

from __future__ import annotations

from wastenot.core.arrays import FloatArray
from wastenot.jobs.model.normal import chance_below, chances_below

_TAIL_SHARE, _TAIL_WIDTH = 0.1, 3.0  # of runs that scatter more than the model says, and how much more


def ordinary(z: float) -> float:
    """Chance that a run which goes on for so many standard deviations scatters as the model says, and reaches its target."""
    as_said, more = (1.0 - _TAIL_SHARE) * chance_below(-z), _TAIL_SHARE * chance_below(-z / _TAIL_WIDTH)
    return as_said / (as_said + more)


def reached_by(z: FloatArray) -> FloatArray:
    """Fraction of the runs that reach the target ever which have done so, by standard deviations from the middle."""
    return (1.0 - _TAIL_SHARE) * chances_below(z) + _TAIL_SHARE * chances_below(z / _TAIL_WIDTH)
