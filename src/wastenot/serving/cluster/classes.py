"""Classes of requests by the lengths of their prompts and answers, as DynamoLLM has them (HPCA'25, section III)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

_SIZES = "SML"


@dataclass(frozen=True, slots=True)
class RequestClasses:
    """Three kinds of prompts by three of answers; class ``3 * i + o`` has prompts of kind ``i``, answers of kind ``o``.

    Attributes:
        prompt_below: prompts of kinds 0 and 1 have fewer tokens than these.
        output_below: answers of kinds 0 and 1 likewise.
    """

    prompt_below: tuple[int, int] = (256, 1024)
    output_below: tuple[int, int] = (100, 350)

    def of(self, prompt_tokens: IndexArray, output_tokens: IndexArray | FloatArray) -> IndexArray:
        """The class of each request; with predicted lengths of answers, the one it is taken for."""
        prompt = np.searchsorted(self.prompt_below, prompt_tokens, side="right")
        output = np.searchsorted(self.output_below, output_tokens, side="right")
        return (3 * prompt + output).astype(np.intp)


CLASSES = RequestClasses()
COUNT = 9
NAMES: tuple[str, ...] = tuple(prompt + output for prompt in _SIZES for output in _SIZES)
"""``SS`` has short prompts and short answers, ``SL`` short prompts and long answers."""


def dominates(larger: int, smaller: int) -> bool:
    """Whether what serves one class may serve the other: neither prompts nor answers are longer there."""
    return larger // 3 >= smaller // 3 and larger % 3 >= smaller % 3
