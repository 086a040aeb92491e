"""What users may expect: deadlines of the time to the first token and between tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.documents import Positive
from wastenot.serving.model.requests import Requests


class Answered(Protocol):
    """What became of requests; each of shape (requests,)."""

    @property
    def first_token_s(self) -> FloatArray:
        """When each had its first token."""

    @property
    def finish_s(self) -> FloatArray:
        """When each had its last; not finite where it had none."""

    @property
    def late_tokens(self) -> IndexArray:
        """Tokens of each that came later than the bound after the one before."""


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

    def kept(self, requests: Requests, answered: Answered) -> BoolArray:
        """Whether each request kept all of them; those that were never answered did not; shape (requests,)."""
        good = answered.first_token_s - requests.arrival_s <= self.ttft_of(requests.prompt_tokens)
        good &= answered.late_tokens <= self.late_allowed(requests.output_tokens)
        good &= np.isfinite(answered.finish_s)
        if self.end_to_end_s is not None:
            good &= answered.finish_s - requests.arrival_s <= self.end_to_end_s
        return np.asarray(good)


LITERATURE = Deadlines()
"""As DynamoLLM has them (HPCA'25): P99 within 250, 400 or 2,000 ms by prompt length, and 100 ms between tokens."""
