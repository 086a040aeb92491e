"""Prefill and decode apart: one engine reads prompts, another one writes answers, each at a clock of its own.

    arrival ──► prefill engine ──first token──► link ──cache──► decode engine ──► last token

The link carries the cache of one prompt after the other, in the order of their first tokens. What the decode engine has no
room for yet waits outside both engines' caches (in the memory of a host, say), and the prefill engine never waits for it. A
request that the decode engine preempts is prefilled again there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Policy
from wastenot.serving.simulation.served import Served
from wastenot.serving.simulation.simulate import simulate


@dataclass(frozen=True, slots=True)
class Link:
    """What carries caches from one engine to another.

    Attributes:
        tokens_per_s: of the cache: bytes a second divided by the bytes of a token, of keys and values in all layers.
        latency_s: of each transfer, before its first byte.
    """

    tokens_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.tokens_per_s > 0 or not self.latency_s >= 0:
            raise BadInputError("a link must carry more than 0 tokens/s, with a latency of at least 0 s")

    def arrival_s(self, ready_s: FloatArray, tokens: IndexArray) -> FloatArray:
        """When caches have come, one after the other, of which the times at which they are ready do not fall."""
        lasts_s = self.latency_s + tokens / self.tokens_per_s
        # Each begins when it is ready or the one before has come: end = max(ready, end before) + its time.
        until_s = np.cumsum(lasts_s)
        return np.asarray(np.maximum.accumulate(ready_s - until_s + lasts_s) + until_s)


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """A run of two engines.

    Attributes:
        requests: that came.
        prefill: the run of the engine that reads prompts; each of its requests is answered with one token.
        decode: the run of the other one, of the requests with more tokens than one, in the order in which their caches came;
            ``None`` if there are none.
        cache_s: when the cache of each request came to the second engine, or its only token was made; shape (requests,).
        finish_s: when each had its last token; shape (requests,).
        late_tokens: as of :class:`Served`; a request's second token waits for the transfer, too; shape (requests,).
        longest_gap_s: likewise; shape (requests,).
        idle_energy_j: of the engine that is done first, until the other one is.
    """

    requests: Requests
    prefill: Served
    decode: Served | None
    cache_s: FloatArray
    finish_s: FloatArray
    late_tokens: IndexArray
    longest_gap_s: FloatArray
    idle_energy_j: float

    @property
    def first_token_s(self) -> FloatArray:
        """When each had its first token; shape (requests,)."""
        return self.prefill.first_token_s

    @property
    def end_s(self) -> float:
        """Of the last step of both."""
        return max(self.prefill.end_s, self.decode.end_s if self.decode else 0.0)

    @property
    def total_energy_j(self) -> float:
        """Of both engines, from the beginning to the end of the last one."""
        return self.prefill.total_energy_j + (self.decode.total_energy_j if self.decode else 0.0) + self.idle_energy_j

    @property
    def energy_per_token_j(self) -> float:
        """Energy of the run for each token made."""
        return self.total_energy_j / float(self.requests.output_tokens.sum())

    def attainment(self, deadlines: Deadlines) -> float:
        """Share of the requests that kept all of their deadlines."""
        return float(deadlines.kept(self.requests, self).mean())


def simulate_apart(
    requests: Requests,
    prefill: tuple[Engine, Policy],
    decode: tuple[Engine, Policy],
    link: Link,
    *,
    deadlines: Deadlines = LITERATURE,
    predicted_tokens: FloatArray | None = None,
) -> Apart:
    """Run two engines, one for prompts and one for answers, until all requests are answered.

    Args:
        requests: the load.
        prefill: the engine that reads prompts, and what steers its clock.
        decode: the engine that writes answers, and what steers its clock.
        link: between them.
        deadlines: that the policies are told, and that late tokens are counted by.
        predicted_tokens: answers' lengths as the policies are told; by default the true ones.

    Raises:
        BadInputError: a request that can never fit into a cache.
        OutsideProfileError: a step that the tables do not cover.
    """
    predicted = requests.output_tokens.astype(np.float64) if predicted_tokens is None else predicted_tokens
    firsts = replace(requests, output_tokens=np.ones_like(requests.output_tokens))
    first = simulate(firsts, *prefill, deadlines=deadlines, predicted_tokens=predicted)
    cache_s, finish_s = first.first_token_s.copy(), first.finish_s.copy()
    late, longest_s = np.zeros(len(requests), dtype=np.intp), np.zeros(len(requests))
    goes_on = np.flatnonzero(requests.output_tokens > 1)
    goes_on = goes_on[np.argsort(first.first_token_s[goes_on], kind="stable")]
    second, spare_j = None, 0.0
    if len(goes_on):
        cache_s[goes_on] = link.arrival_s(first.first_token_s[goes_on], requests.prompt_tokens[goes_on])
        rest = Requests(cache_s[goes_on], requests.prompt_tokens[goes_on], requests.output_tokens[goes_on])
        second = simulate(
            rest, *decode, deadlines=deadlines, predicted_tokens=predicted[goes_on],
            first_token_s=first.first_token_s[goes_on],
        )  # fmt: skip
        finish_s[goes_on], late[goes_on], longest_s[goes_on] = second.finish_s, second.late_tokens, second.longest_gap_s
        earlier, engine = (first, prefill[0]) if first.end_s < second.end_s else (second, decode[0])
        spare_j = float(engine.tables.idle_power_w[earlier.last_setting]) * abs(second.end_s - first.end_s)
    return Apart(requests, first, second, cache_s, finish_s, late, longest_s, spare_j)
