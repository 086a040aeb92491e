"""What a load asks for, in tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from wastenot.serving.model.requests import Requests


@dataclass(frozen=True, slots=True)
class Work:
    """What a load asks for, whenever it comes; may be added up over its parts.

    Attributes:
        requests: how many.
        prompts: tokens to prefill.
        answers: tokens to decode.
        contexts: tokens in the cache, summed over those to decode.
    """

    requests: int = 0
    prompts: float = 0.0
    answers: float = 0.0
    contexts: float = 0.0

    @classmethod
    def of(cls, requests: Requests) -> Work:
        """Of requests."""
        more = (requests.output_tokens - 1).astype(np.float64)
        cached = 0 if requests.cached_tokens is None else requests.cached_tokens.sum()
        contexts = float(more @ (requests.prompt_tokens + requests.output_tokens / 2))
        return cls(len(requests), float(requests.prompt_tokens.sum() - cached), float(more.sum()), contexts)

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))
