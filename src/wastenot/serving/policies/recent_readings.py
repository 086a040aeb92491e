"""What has been heard of an instance: recent readings, and the load and latencies that they show."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from wastenot.serving.bench.latency_counts import LatencyCounts
from wastenot.serving.bench.server_reading import ServerReading
from wastenot.serving.cluster.seen_load import SeenLoad
from wastenot.serving.model.engine import Engine

RATE_OVER_S = 10.0
"""Over which requests are counted for their rate: bursts shall show."""
LENGTHS_OVER_S = 120.0
"""Over which lengths are averaged: they change slowly."""
_LEAST_REQUESTS = 5.0  # from which lengths are believed


@dataclass(slots=True)
class Recent:
    """Recent readings of one instance, oldest first, all of one life of its server."""

    readings: deque[tuple[float, ServerReading]] = field(default_factory=deque)
    _prompt_tokens: float | None = None
    _long_prompt_tokens: float | None = None
    _output_tokens: float | None = None

    def add(self, at_s: float, reading: ServerReading) -> bool:
        """Take in a reading; whether the server has begun anew, so that all before is forgotten."""
        anew = bool(self.readings) and reading.began_anew(self.readings[-1][1])
        if anew:
            self.readings.clear()
        self.readings.append((at_s, reading))
        while len(self.readings) > 2 and self.readings[1][0] < at_s - LENGTHS_OVER_S:
            self.readings.popleft()
        return anew

    @property
    def latest(self) -> ServerReading | None:
        """The last one."""
        return self.readings[-1][1] if self.readings else None

    def load(self, engine: Engine) -> SeenLoad | None:
        """The load of the last seconds, on the safe side of chance; ``None`` until enough has been seen."""
        if len(self.readings) < 2:
            return None
        now, first = self.readings[-1][1], self.readings[0][1]
        if now.ttft is None or first.ttft is None:
            return None
        come, over_s = self.come(RATE_OVER_S)
        self._see_lengths()
        if self._prompt_tokens is None or self._output_tokens is None:
            return None
        mean = self._prompt_tokens
        return SeenLoad(
            rate_per_s=(come + 2.0 * math.sqrt(come) + 1.0) / over_s / now.engines,
            prompt_tokens=mean,
            long_prompt_tokens=mean if self._long_prompt_tokens is None else max(self._long_prompt_tokens, mean),
            output_tokens=self._output_tokens,
            context=max(mean + self._output_tokens / 2.0, self._context(now, engine)),
        )

    def come(self, seconds: float) -> tuple[float, float]:
        """How many requests came lately, on all engines of the server, and over what time they were counted."""
        (then_s, then), (now_s, now) = self.since(seconds), self.readings[-1]
        if now.ttft is None or then.ttft is None or now_s <= then_s:
            return 0.0, seconds
        return now.ttft.total - then.ttft.total + max(now.waiting - then.waiting, 0.0), now_s - then_s

    def since(self, seconds: float) -> tuple[float, ServerReading]:
        """The last reading at least so long before the latest, or the first."""
        now_s = self.readings[-1][0]
        found = self.readings[0]
        for each in self.readings:
            if each[0] > now_s - seconds:
                break
            found = each
        return found

    def _see_lengths(self) -> None:
        now, then = self.readings[-1][1], self.readings[0][1]
        assert now.ttft is not None and then.ttft is not None
        count = now.ttft.total - then.ttft.total
        if count < _LEAST_REQUESTS:
            return
        if now.prompt_tokens is not None and then.prompt_tokens is not None and now.prompt_tokens > then.prompt_tokens:
            self._prompt_tokens = (now.prompt_tokens - then.prompt_tokens) / count
        if now.output_tokens is not None and then.output_tokens is not None and now.output_tokens > then.output_tokens:
            self._output_tokens = (now.output_tokens - then.output_tokens) / count
        passed = None if now.prompts is None or then.prompts is None else now.prompts.since(then.prompts)
        longest = None if passed is None else passed.quantile(0.99)
        if longest is not None and math.isfinite(longest):
            self._long_prompt_tokens = longest

    def _context(self, now: ServerReading, engine: Engine) -> float:
        """Tokens in the cache of a request, as the cache in use says; 0 where it does not."""
        if now.cache_used is None or now.running < 1.0:
            return 0.0
        tokens = now.cache_tokens or float(engine.cache_blocks * engine.block_tokens)
        return now.cache_used * tokens / now.running


def quantile_since(now: LatencyCounts | None, then: LatencyCounts | None, share: float) -> tuple[float, float | None]:
    """How many latencies there were between two readings, and the one that a share of them does not exceed."""
    if now is None or then is None:
        return 0.0, None
    passed = now.since(then)
    return (0.0, None) if passed is None else (passed.total, passed.quantile(share))
