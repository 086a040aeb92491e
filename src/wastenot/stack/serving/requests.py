"""The requests of a serving load: when they come, how long their prompts are, how many tokens they are answered with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.errors import BadInputError


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Requests in the order in which they come.

    Attributes:
        arrival_s: since the beginning, not falling; shape (requests,).
        prompt_tokens: at least 1; shape (requests,).
        output_tokens: at least 1; shape (requests,).

    Raises:
        BadInputError: requests that are not like this.
    """

    arrival_s: FloatArray
    prompt_tokens: IndexArray
    output_tokens: IndexArray

    def __post_init__(self) -> None:
        if not len(self.arrival_s) == len(self.prompt_tokens) == len(self.output_tokens):
            raise BadInputError(
                f"{len(self.arrival_s)} arrivals with {len(self.prompt_tokens)} prompts and {len(self.output_tokens)} "
                "answers; give each request all three"
            )
        if len(self.arrival_s) == 0:
            return
        if not (np.isfinite(self.arrival_s).all() and self.arrival_s[0] >= 0):
            raise BadInputError("`arrival_s` must be seconds since the beginning, from 0")
        earlier = np.flatnonzero(np.diff(self.arrival_s) < 0)
        if len(earlier):
            raise BadInputError(f"request {earlier[0] + 2} comes before the one before it; sort requests by their arrival")
        for name, tokens in (("prompt_tokens", self.prompt_tokens), ("output_tokens", self.output_tokens)):
            if not np.issubdtype(np.asarray(tokens).dtype, np.integer) or tokens.min() < 1:
                raise BadInputError(f"`{name}` must be whole numbers of at least 1")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def part(self, begin_s: float, end_s: float) -> Requests:
        """Those that come from ``begin_s`` on and before ``end_s``, their arrivals counted from ``begin_s``."""
        first, last = np.searchsorted(self.arrival_s, (begin_s, end_s), side="left")
        return Requests(self.arrival_s[first:last] - begin_s, self.prompt_tokens[first:last], self.output_tokens[first:last])
