"""The requests of a serving load: when they come, how long prompts and answers are, and lengths as they are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.errors import BadInputError


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Requests in the order in which they come.

    Attributes:
        arrival_s: since the beginning, not falling; shape (requests,).
        prompt_tokens: at least 1; shape (requests,).
        output_tokens: at least 1; shape (requests,).
        cached_tokens: of the prompt, in a cache of prefixes when the request comes: they are not prefilled, but take their
            place; fewer than the prompt's; ``None`` where nothing is cached; shape (requests,).

    Raises:
        BadInputError: requests that are not like this.
    """

    arrival_s: FloatArray
    prompt_tokens: IndexArray
    output_tokens: IndexArray
    cached_tokens: IndexArray | None = None

    def __post_init__(self) -> None:
        if not len(self.arrival_s) == len(self.prompt_tokens) == len(self.output_tokens):
            raise BadInputError(
                f"{len(self.arrival_s)} arrivals with {len(self.prompt_tokens)} prompts and {len(self.output_tokens)} "
                "answers; give each request all three"
            )
        if len(self.arrival_s) == 0:
            return
        if not (np.isfinite(self.arrival_s).all() and self.arrival_s[0] >= 0):
            raise BadInputError("`arrival_s` must be seconds since the start, from 0")
        earlier = np.flatnonzero(np.diff(self.arrival_s) < 0)
        if len(earlier):
            raise BadInputError(f"request {earlier[0] + 2} arrives before the previous one; sort requests by arrival")
        for name, tokens in (("prompt_tokens", self.prompt_tokens), ("output_tokens", self.output_tokens)):
            if not np.issubdtype(np.asarray(tokens).dtype, np.integer) or tokens.min() < 1:
                raise BadInputError(f"`{name}` must be whole numbers of at least 1")

        cached = self.cached_tokens
        if cached is not None and not (
            len(cached) == len(self.prompt_tokens) and cached.min() >= 0 and (cached < self.prompt_tokens).all()
        ):
            raise BadInputError("`cached_tokens` must be from 0 to fewer than those of the prompt, one for each request")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def part(self, begin_s: float, end_s: float) -> Requests:
        """Those that come from ``begin_s`` on and before ``end_s``, their arrivals counted from ``begin_s``."""
        first, last = np.searchsorted(self.arrival_s, (begin_s, end_s), side="left")
        part = self.only(slice(first, last))
        return replace(part, arrival_s=part.arrival_s - begin_s)

    def only(self, which: IndexArray | BoolArray | slice) -> Requests:
        """Some of them, by their places in rising order, or by whether they are wanted."""
        cached = None if self.cached_tokens is None else self.cached_tokens[which]
        return Requests(self.arrival_s[which], self.prompt_tokens[which], self.output_tokens[which], cached)


def joined(parts: Sequence[Requests]) -> Requests:
    """Parts of a load, one after the other, as one."""
    cached = [each.cached_tokens for each in parts if each.cached_tokens is not None]
    return Requests(
        np.concatenate([each.arrival_s for each in parts]),
        np.concatenate([each.prompt_tokens for each in parts]).astype(np.intp),
        np.concatenate([each.output_tokens for each in parts]).astype(np.intp),
        np.concatenate(cached) if cached else None,
    )


def log_normal_lengths(output_tokens: IndexArray, *, sigma: float = 0.3, factor: float = 1.0, seed: int = 0) -> FloatArray:
    """Lengths predicted with a log-normal error: off by a factor, as those of a regression are.

    Nobody knows how long an answer will be when its prompt comes.

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
