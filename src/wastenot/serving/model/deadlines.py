"""What users may expect: deadlines of the time to the first token and between tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.documents import Positive


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Bounds on the latencies of requests, each to be kept by a share of them.

    Attributes:
        ttft_s: bound on the time to the first token of each class of prompt lengths.
        prompt_below: prompts of class ``i`` have fewer tokens than this; one fewer than classes, ascending.
        tbt_s: bound on the time between two tokens.
        share: of the tokens of a request that are to keep ``tbt_s``, and of the requests that are to keep all.
        end_to_end_s: bound on the time from arrival to the last token; ``None`` for none.

    Raises:
        ValueError: classes that are none.
    """

    ttft_s: tuple[Positive, ...] = (0.250, 0.400, 2.000)
    prompt_below: tuple[Annotated[int, Field(ge=1)], ...] = (256, 1024)
    tbt_s: Positive = 0.100
    share: Annotated[float, Field(gt=0, le=1)] = 0.99
    end_to_end_s: Positive | None = None

    def __post_init__(self) -> None:
        if len(self.ttft_s) != len(self.prompt_below) + 1:
            raise ValueError("ttft_s: needs one more deadline than prompt_below has limits")
        if list(self.prompt_below) != sorted(set(self.prompt_below)):
            raise ValueError("prompt_below: is not ascending")

    def ttft_of(self, prompt_tokens: IndexArray) -> FloatArray:
        """The bound on the time to the first token of each request."""
        return np.asarray(self.ttft_s)[np.searchsorted(self.prompt_below, prompt_tokens, side="right")]

    def late_allowed(self, output_tokens: IndexArray | FloatArray | float) -> FloatArray:
        """How many tokens of each request may come later than ``tbt_s`` after the one before."""
        # 1 - 0.9 is a little less than 0.1, and one late token of ten is allowed
        allowed: FloatArray = np.floor((1 - self.share) * (output_tokens - 1) + 1e-9)
        return allowed


LITERATURE = Deadlines()
"""As DynamoLLM has them (HPCA'25): P99 within 250, 400 or 2,000 ms by prompt length, and 100 ms between tokens."""
