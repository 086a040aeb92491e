"""What kernels have in common at a setting beside their shapes: a clock that is not quite the one that was asked for, say.

Errors of surfaces that are independent between kernels cancel over many kernels; these do not. What the shapes leave of
each kernel is averaged over the kernels at each setting. How much of these averages is common to the kernels follows from
how large they are against the scatter between kernels, by maximum likelihood.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.planning.costs import Costs

_LEAST_KERNELS = 4  # at a setting, for its average to be one
_LEAST_SETTINGS = 3  # with such an average, without which their spread says nothing
_TRIED = np.concatenate([[0.0], np.logspace(-3.0, 1.0, 41)])  # variance in common over variance between kernels
_WITHIN = 0.5  # of the best log-likelihood: the largest ratio within it is taken, one standard error on the safe side
_OUTLYING = 25.0  # squared standard errors of an average beyond which it counts no more
_LEAST_VARIANCE = 1e-30  # between kernels that are equal to the last digit, so as not to divide by 0


def common_pattern(costs: Costs, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The pattern and its standard error at each row; none at auto.

    Args:
        costs: whose rows these are.
        left: what shapes leave of a quantity, shape (rows,).
    """
    setting = costs.setting_index
    number = np.bincount(setting)
    many = number >= _LEAST_KERNELS
    if many.sum() < _LEAST_SETTINGS:
        return np.zeros(len(left)), np.zeros(len(left))
    mean = np.bincount(setting, left) / number
    between = np.bincount(setting, (left - mean[setting]) ** 2) / np.maximum(1, number - 1)
    between = np.maximum(between, _LEAST_VARIANCE)
    score = np.minimum(mean**2 / between, _OUTLYING / number)[many]
    whole = _TRIED[:, None] + 1.0 / number[many]
    loss = 0.5 * (np.log(whole) + score / whole).sum(axis=1)
    ratio = float(_TRIED[loss <= loss.min() + _WITHIN].max())
    shrunk = np.where(many, ratio / (ratio + 1.0 / number), 0.0)
    error = np.sqrt(between * shrunk / number)
    automatic = setting == 0
    return np.where(automatic, 0.0, (shrunk * mean)[setting]), np.where(automatic, 0.0, error[setting])
