"""Classes of requests by the lengths of their prompts and answers, as DynamoLLM has them (HPCA'25, section III)."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

_SIZES = "SML"


PROMPT_BELOW, OUTPUT_BELOW = (256, 1024), (100, 350)
"""Tokens that short and middle prompts and answers have fewer of."""
COUNT = 9
NAMES: tuple[str, ...] = tuple(prompt + output for prompt in _SIZES for output in _SIZES)
"""``SS`` has short prompts and short answers, ``SL`` short prompts and long answers."""


def class_of(prompt_tokens: IndexArray, output_tokens: IndexArray | FloatArray) -> IndexArray:
    """The class of each request, ``3 * i + o`` for prompts of kind ``i`` and answers of kind ``o``.

    Args:
        prompt_tokens: shape (requests,).
        output_tokens: likewise; with predicted lengths, the class is the one that a request is taken for.
    """
    prompt = np.searchsorted(PROMPT_BELOW, prompt_tokens, side="right")
    return (3 * prompt + np.searchsorted(OUTPUT_BELOW, output_tokens, side="right")).astype(np.intp)


def dominates(larger: int, smaller: int) -> bool:
    """Whether what serves one class may serve the other: neither prompts nor answers are longer there."""
    return larger // 3 >= smaller // 3 and larger % 3 >= smaller % 3
