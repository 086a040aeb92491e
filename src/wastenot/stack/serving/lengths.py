"""Predicted lengths of answers, with the errors that predictors make.

Nobody knows how long an answer will be when its prompt comes. A regression is off by a factor that scatters log-normally; a
classifier says short, medium or long, mistakes one for another now and then, and leaves the length within the class open.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.errors import BadInputError

OUTPUT_BELOW = (100, 350)
"""Answers of class S are shorter than the first, of class M than the second (DynamoLLM, HPCA'25)."""

CONFUSED: tuple[tuple[float, ...], ...] = ((0.85, 0.12, 0.03), (0.10, 0.80, 0.10), (0.03, 0.12, 0.85))
"""A classifier that is right five times in six and rarely takes short for long; an example, not a measured one."""


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


def class_lengths(
    output_tokens: IndexArray,
    *,
    below: Sequence[int] = OUTPUT_BELOW,
    confusion: Sequence[Sequence[float]] = CONFUSED,
    lengths: Sequence[float] | None = None,
    seed: int = 0,
) -> FloatArray:
    """Lengths as a classifier predicts them: the mean of the class that it says.

    Args:
        output_tokens: true lengths; shape (requests,).
        below: answers of class ``i`` have fewer tokens than this; one fewer than classes, ascending.
        confusion: probability that an answer of the row's class is taken for one of the column's; rows add up to 1.
        lengths: predicted for each class; by default the mean of the true lengths in it.
        seed: of the errors.

    Returns:
        Predicted lengths; shape (requests,).

    Raises:
        BadInputError: a confusion matrix that does not fit the classes or whose rows do not add up to 1.
    """
    mistaken, classes = np.asarray(confusion, dtype=float), len(below) + 1
    if mistaken.shape != (classes, classes) or (mistaken < 0).any() or not np.allclose(mistaken.sum(axis=1), 1.0):
        raise BadInputError(f"`confusion` must be {classes} rows of {classes} probabilities that add up to 1")
    true = np.searchsorted(below, output_tokens, side="right")
    drawn = np.random.default_rng(seed).random(len(output_tokens))
    said = np.minimum((drawn[:, None] >= np.cumsum(mistaken, axis=1)[true]).sum(axis=1), classes - 1)
    if lengths is None:
        edges = (1, *below, 2 * below[-1])
        lengths = [
            float(output_tokens[true == each].mean()) if (true == each).any() else (edges[each] + edges[each + 1]) / 2
            for each in range(classes)
        ]
    predicted: FloatArray = np.asarray(lengths, dtype=float)[said]
    return predicted
