"""Loads to keep on a server: lengths that are drawn, a trace, or a file of requests; with the name that a study keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.serving.bench.load_requests import Ask, Lengths, asks_of_lengths, asks_of_trace, read_asks
from wastenot.serving.bench.prompts import Prompts
from wastenot.serving.bench.server import Api
from wastenot.serving.model.requests import Requests


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load.

    Attributes:
        name: that a study keeps it under.
        closed: requests for a closed loop.
        opened: requests with arrivals at so many a second for an open one; with those they have, where that is ``None``.
        api: that its requests need; ``None`` for either.
        arrives: whether requests have arrivals of their own.
    """

    name: str
    closed: Callable[[Prompts], Iterator[Ask]]
    opened: Callable[[Prompts, float | None], Iterator[Ask]]
    api: Api | None = None
    arrives: bool = False


def load_of_lengths(prompt: Lengths, output: Lengths, *, seed: int = 0) -> LoadPlan:
    """Requests of random lengths, without end; Poisson arrivals in an open loop."""

    def opened(prompts: Prompts, rate_per_s: float | None) -> Iterator[Ask]:
        if rate_per_s is None:
            raise BadInputError("`rate`: requests of random lengths arrive at a rate; give one")
        return asks_of_lengths(prompts, prompt, output, rate_per_s=rate_per_s, seed=seed)

    name = f"{prompt.label} in, {output.label} out"
    return LoadPlan(name, lambda prompts: asks_of_lengths(prompts, prompt, output, seed=seed), opened)


def load_of_trace(name: str, trace: Requests) -> LoadPlan:
    """The requests of a trace with made-up prompts of their lengths; begun again at its end in a closed loop.

    In an open loop at a rate, times between arrivals are scaled.
    """

    def opened(prompts: Prompts, rate_per_s: float | None) -> Iterator[Ask]:
        return asks_of_trace(prompts, _scaled(trace, rate_per_s))

    return LoadPlan(name, lambda prompts: asks_of_trace(prompts, trace, repeated=True), opened, arrives=True)


def load_of_file(path: Path, *, repeated: bool = False, seed: int = 0) -> LoadPlan:
    """The requests of a file of JSON lines; Poisson arrivals in an open loop at a rate.

    Args:
        path: of the file.
        repeated: begin again at its end, in a closed loop; a server's prefix cache may then save work.
        seed: of arrivals.

    Raises:
        BadInputError: it cannot be read.
    """
    asks = read_asks(path)
    arrivals = [ask.arrival_s for ask in asks if ask.arrival_s is not None]
    if arrivals != sorted(arrivals):
        raise BadInputError(f"{path}: requests must stand in the order of their 'arrival_s'")
    chat = any(not isinstance(ask.content, str) for ask in asks)

    def opened(prompts: Prompts, rate_per_s: float | None) -> Iterator[Ask]:
        if rate_per_s is not None:
            gaps = np.random.default_rng(seed).exponential(1.0 / rate_per_s, len(asks))
            return (ask.at(float(arrival)) for ask, arrival in zip(asks, np.cumsum(gaps), strict=True))
        if len(arrivals) < len(asks):
            raise BadInputError(f"{path}: its requests have no 'arrival_s'; give a `rate`")
        return iter(asks)

    return LoadPlan(
        path.name, lambda prompts: cycle(asks) if repeated else iter(asks), opened, "chat" if chat else None,
        arrives=len(arrivals) == len(asks),
    )  # fmt: skip


def _scaled(trace: Requests, rate_per_s: float | None) -> Requests:
    """A trace at another rate: its times between arrivals are multiplied by one number."""
    if rate_per_s is None or len(trace) < 2:
        return trace
    own = (len(trace) - 1) / float(trace.arrival_s[-1] - trace.arrival_s[0])
    return Requests(trace.arrival_s * (own / rate_per_s), trace.prompt_tokens, trace.output_tokens)
