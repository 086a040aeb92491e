"""What a server says of itself while it is measured: requests running and waiting, cache in use, tokens made.

A server that has none of these is measured without.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.bench.replies import text_of
from wastenot.serving.bench.server_metrics import METRIC_NAMES, METRIC_PATHS, NAMES, Quantity, by_name, named_values, samples

_EVERY_S = 1.0
_MEAN_OVER_LABELS = frozenset({"cache_used"})


class Rise(NamedTuple):
    """Of a counter, between two moments by the clock of ``time.perf_counter``."""

    begin_s: float
    end_s: float
    by: float


@dataclass(slots=True)
class Scraped:
    """Samples of a server's metrics.

    Attributes:
        at_s: when, by the clock of ``time.perf_counter``.
        values: of each sample.
        names: that the server has for them.
    """

    at_s: list[float] = field(default_factory=list)
    values: list[dict[Quantity, float]] = field(default_factory=list)
    names: dict[Quantity, str] = field(default_factory=dict)

    def mean(self, quantity: Quantity, begin_s: float, end_s: float) -> float | None:
        """Mean of a gauge over a window; ``None`` where the server does not have it."""
        _, values = self._within(quantity, begin_s, end_s)
        return float(values.mean()) if len(values) else None

    def rise(self, quantity: Quantity, begin_s: float = -np.inf, end_s: float = np.inf) -> Rise | None:
        """By how much a counter rose between the first and the last sample of a window; ``None`` where that is not known."""
        times, values = self._within(quantity, begin_s, end_s)
        if len(times) < 2 or np.any(np.diff(values) < 0.0):
            return None
        return Rise(float(times[0]), float(times[-1]), float(values[-1] - values[0]))

    def cached_share(self) -> float | None:
        """Of all prompts' tokens so far, those that came from the server's prefix cache; ``None`` where it does not say."""
        cached, looked_up = self.rise("cached_tokens"), self.rise("looked_up_tokens") or self.rise("prompt_tokens")
        return None if cached is None or looked_up is None or not looked_up.by else cached.by / looked_up.by

    def _within(self, quantity: Quantity, begin_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        found = [
            (at, sample[quantity])
            for at, sample in zip(self.at_s, self.values, strict=True)
            if begin_s <= at <= end_s and quantity in sample
        ]
        pairs = np.asarray(found, dtype=float).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


def read_metrics(text: str) -> dict[Quantity, tuple[str, float]]:
    """The quantities in a page of Prometheus metrics, each with the name it has there; summed over engines."""
    series, found = by_name(samples(text, METRIC_NAMES)), dict[Quantity, tuple[str, float]]()
    for quantity in NAMES:
        name, values = named_values(series, quantity)
        if values:
            found[quantity] = name, sum(values) / (len(values) if quantity in _MEAN_OVER_LABELS else 1)
    return found


async def scrape(session: Any, url: str, headers: Mapping[str, str], into: Scraped) -> None:
    """Read a server's metrics about once a second until cancelled; end at once where it has none.

    Not at even intervals, with which requests that take the same time would be seen in the same phase each time.
    """
    for path in METRIC_PATHS:
        if await _once(session, url + path, headers, into):
            break
    else:
        return
    due, phase = time.perf_counter(), random.Random(0)
    while True:
        due = max(due + _EVERY_S * phase.uniform(0.5, 1.5), time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())
        await _once(session, url + path, headers, into)


async def busy_before(session: Any, url: str, headers: Mapping[str, str], patience_s: float) -> float:
    """Requests that a server still runs before any is sent, after waiting for them; 0 where it does not say.

    Requests of a measurement that was stopped just before run on for a moment on some servers.
    """
    until_s = time.perf_counter() + patience_s
    while True:
        before = Scraped()
        for path in METRIC_PATHS:
            if await _once(session, url + path, headers, before):
                break
        running = before.values[0].get("running", 0.0) if before.values else 0.0
        if running == 0.0 or time.perf_counter() > until_s:
            return running
        await asyncio.sleep(_EVERY_S / 4.0)


async def _once(session: Any, address: str, headers: Mapping[str, str], into: Scraped) -> bool:
    try:
        async with session.get(address, headers=headers) as reply:
            text = await text_of(reply) if reply.status == 200 else ""
    except Exception:  # a server without metrics is measured without
        return False
    values = read_metrics(text)
    if not values:
        return False
    into.at_s.append(time.perf_counter())
    into.values.append({quantity: value for quantity, (_, value) in values.items()})
    into.names.update({quantity: name for quantity, (name, _) in values.items()})
    return True
