"""Predicted lengths of answers, with the errors that predictors make.

Nobody knows how long an answer will be when its prompt comes. A regression is off by a factor that scatters log-normally.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError


def log_normal_lengths(output_tokens: IndexArray, *, sigma: float = 0.3, factor: float = 1.0, seed: int = 0) -> FloatArray:
    """Lengths predicted with a log-normal error.

    Args:
        output_tokens: true lengths; shape (requests,).
        sigma: standard deviation of the logarithm of predicted over true: 0.3 is off by 35 % one way or the other for one
            request in three.
        factor: by which all predictions are too long (above 1) or too short.
        seed: of the errors.

    Returns:
        Predicted lengths, at least 1; shape (requests,).

    Raises:
        BadInputError: a spread that is negative or a factor that is not positive.
    """
    if not sigma >= 0 or not factor > 0:
        raise BadInputError(f"`sigma` ({sigma:g}) must be at least 0, and `factor` ({factor:g}) above 0")
    error = np.random.default_rng(seed).normal(0.0, sigma, len(output_tokens))
    return np.asarray(np.maximum(output_tokens * factor * np.exp(error), 1.0))
