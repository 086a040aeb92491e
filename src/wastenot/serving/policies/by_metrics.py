"""The clock of least power that carries the load which an engine's metrics show: what ``wastenot serve control`` runs.

It sees no request, only what a server says of itself from time to time (:class:`ServerReading`). Two readings tell it the
load (:class:`Recent`); the profile says which clock carries that at least power, by batch (``cluster/seen_load.py``);
measured latencies raise the clock where they miss the deadlines, quickly, and lower it again slowly (:class:`Feedback`). A
higher clock is asked for at once, a lower one after three readings in a row that want it.

    a server       readings ──▶ hear ──▶ setting ──▶ clocks of its GPUs
    a simulator    view ──▶ choose, each period ──▶ its reading ──▶ hear ──▶ setting
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from wastenot.serving.bench.server_metrics import LatencyCounts, ServerReading
from wastenot.serving.cluster.seen_load import SeenLoad, bound_s, rule_of
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.simulation.policy import Choice, View

RATE_OVER_S = 10.0
"""Over which a change of the rate is looked for: requests so counted are believed where chance does not explain them."""
LENGTHS_OVER_S = 120.0
"""Over which lengths are averaged, and the usual rate: they change slowly."""
_LEAST_REQUESTS = 5.0  # from which lengths are believed: the mean of 5 lengths has an error of half their spread


@dataclass(slots=True)
class Recent:
    """Recent readings of one instance, oldest first, all of one life of its server."""

    readings: deque[tuple[float, ServerReading]] = field(default_factory=deque)
    _prompt_tokens: float | None = None
    _long_prompt_tokens: float | None = None
    _output_tokens: float | None = None

    def add(self, at_s: float, reading: ServerReading) -> bool:
        """Take in a reading; whether the server has restarted, so that all before is forgotten."""
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
        self._see_lengths()
        if self._prompt_tokens is None or self._output_tokens is None:
            return None
        most = float(engine.cache_blocks * engine.block_tokens)  # no request is longer, whatever its server says
        mean, output = min(self._prompt_tokens, most), min(self._output_tokens, most)
        longest = mean if self._long_prompt_tokens is None else max(self._long_prompt_tokens, mean)
        return SeenLoad(
            rate_per_s=safely_per_s(self.come(RATE_OVER_S), self.come(LENGTHS_OVER_S)) / now.engines,
            prompt_tokens=mean,
            long_prompt_tokens=min(longest, most),
            output_tokens=output,
            context=min(max(mean + output / 2.0, self._context(now, engine)), most),
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


def safely_per_s(lately: tuple[float, float], usually: tuple[float, float]) -> float:
    """The rate of requests that came, on the safe side of the chance of their count alone.

    Of N that came usually, N + 2 √N + 1 are assumed, two standard deviations of a Poisson count; the same of what came
    lately only where that is over two standard deviations away. How requests bunch together by chance is no part of their
    rate: the profile's chain of batches and the margin of each batch have it (``cluster/seen_load.py``).

    Args:
        lately: requests, and the seconds over which they were counted.
        usually: the same over a longer time.
    """
    (few, few_s), (many, many_s) = lately, usually
    expected = few_s * many / many_s
    come, over_s = lately if abs(few - expected) > 2.0 * math.sqrt(expected) else usually
    return (come + 2.0 * math.sqrt(come) + 1.0) / over_s


def quantile_since(now: LatencyCounts | None, then: LatencyCounts | None, share: float) -> tuple[float, float | None]:
    """How many latencies there were between two readings, and the one that a share of them does not exceed."""
    if now is None or then is None:
        return 0.0, None
    passed = now.since(then)
    return (0.0, None) if passed is None else (passed.total, passed.quantile(share))


JUDGED_OVER_S = 5.0
"""Over which latencies are judged, or since the last change where that is later."""
_LEAST_TOKENS, _LEAST_FIRST = 100.0, 20.0  # latencies that make a window worth judging; 100 are the fewest with a P99
_SLACK = 0.9  # of a deadline, below which there is slack
_SLACK_S = 30.0  # that it has to last


@dataclass(slots=True)
class Feedback:
    """Settings above the one that the profile asks for.

    Attributes:
        steps: how many.
    """

    steps: int = 0
    _since: tuple[float, ServerReading] | None = None

    def see(
        self,
        at_s: float,
        now: ServerReading,
        lately: tuple[float, ServerReading],
        deadlines: Deadlines,
        ttft_s: float,
        most: int,
    ) -> None:
        """Judge the latest latencies.

        Args:
            at_s: when they were read.
            now: the latest reading.
            lately: the reading from which on they are judged.
            deadlines: to be kept.
            ttft_s: bound on the first token that the prompts have.
            most: steps up from the setting that the profile asks for to the maximum clock. More would change nothing now,
                and each takes half a minute to be taken back (anti-windup).
        """
        if self._since is None:
            self._since = at_s, now
            return
        since_s, changed = self._since
        if _late(now, lately[1] if lately[0] > since_s else changed, deadlines, ttft_s):
            self.steps = max(self.steps, min(2 * self.steps + 1, most))
            self._since = at_s, now
        elif at_s - since_s >= _SLACK_S:
            if _slack(now, changed, deadlines, ttft_s):
                self.steps = max(self.steps - 1, 0)
            self._since = at_s, now

    def restart(self) -> None:
        """Forget what was measured: of another server, or at the default clocks."""
        self.steps, self._since = 0, None


def _late(now: ServerReading, then: ServerReading, deadlines: Deadlines, ttft_s: float) -> bool:
    """Whether enough latencies have been counted to say that they miss a deadline."""
    tokens, tbt_s = quantile_since(now.tbt, then.tbt, deadlines.share)
    first, first_s = quantile_since(now.ttft, then.ttft, deadlines.share)
    return (tokens >= _LEAST_TOKENS and tbt_s is not None and tbt_s > deadlines.tbt_s) or (
        first >= _LEAST_FIRST and first_s is not None and first_s > ttft_s
    )


def _slack(now: ServerReading, then: ServerReading, deadlines: Deadlines, ttft_s: float) -> bool:
    """Whether all that has been counted is well within the deadlines."""
    _, tbt_s = quantile_since(now.tbt, then.tbt, deadlines.share)
    _, first_s = quantile_since(now.ttft, then.ttft, deadlines.share)
    return (tbt_s is None or tbt_s <= _SLACK * deadlines.tbt_s) and (first_s is None or first_s <= _SLACK * ttft_s)


LEAST_READINGS = 2
"""Before a clock is chosen: from one, no rate follows."""
_LOWER_AFTER = 3  # readings in a row that want a lower clock; a higher one is asked for at once


@dataclass(slots=True)
class ByMetrics:
    """Chooses by what an engine says of itself.

    Attributes:
        headroom: share of each deadline that is to be left over, as the profile predicts it.
        period_s: between two readings of a simulated engine.
        name: for tables and pictures.
        recent: what was heard.
        load: that was last seen; ``None`` where it is not known.
        feedback: of measured latencies.
    """

    headroom: float = 0.15
    period_s: float = 1.0
    name: str = "metrics policy"
    recent: Recent = field(default_factory=Recent)
    load: SeenLoad | None = None
    feedback: Feedback = field(default_factory=Feedback)
    _engine: Engine = field(init=False, repr=False)
    _deadlines: Deadlines = field(init=False, repr=False)
    _wanted: deque[int] = field(default_factory=lambda: deque(maxlen=_LOWER_AFTER), repr=False)
    _setting: int = field(default=0, init=False, repr=False)
    _heard: int = field(default=0, init=False, repr=False)
    _due_s: float = field(default=-math.inf, init=False, repr=False)

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """Forget what was heard; begins at the maximum clock."""
        self._engine, self._deadlines = engine, deadlines
        self.recent, self.load, self._due_s = Recent(), None, -math.inf
        self.restart()
        self._setting = len(engine.tables.settings) - 1
        return self._setting

    def restart(self) -> None:
        """Forget what was chosen and measured at it: the clocks were left to the driver, until two more readings."""
        self.feedback.restart()
        self._wanted.clear()
        self._heard = 0

    @property
    def ready(self) -> bool:
        """Whether enough has been heard, since it began or restarted, to decide by."""
        return self._heard >= LEAST_READINGS

    def choose(self, view: View) -> Choice:
        """As if the simulated engine were a server whose metrics are read once each period."""
        if view.now_s >= self._due_s:
            assert view.reading is not None, "metrics of a simulated engine come from the simulator"
            self._due_s = view.now_s + self.period_s
            self.hear(view.now_s, view.reading())
            if self.ready:
                self._setting = self.decide()
        return Choice(self._setting, self._due_s)

    def hear(self, at_s: float, reading: ServerReading) -> None:
        """Take in a reading; where the server has restarted, all before is forgotten."""
        if self.recent.add(at_s, reading):
            self.restart()
        self._heard += 1

    def decide(self) -> int:
        """The setting that follows from what was heard."""
        at_s, reading = self.recent.readings[-1]
        engine, deadlines, top = self._engine, self._deadlines, len(self._engine.tables.settings) - 1
        self.load = self.recent.load(engine)
        waiting = reading.waiting / reading.engines
        rule = rule_of(self.load, engine, deadlines, waiting=waiting, headroom=self.headroom)
        ttft_s = deadlines.ttft_s[-1] if self.load is None else bound_s(deadlines, self.load.long_prompt_tokens)
        chosen = int(rule.by_batch[min(round(reading.running), len(rule.by_batch) - 1)])
        if waiting > 0.0:
            chosen = max(chosen, rule.prompts)
        self.feedback.see(at_s, reading, self.recent.since(JUDGED_OVER_S), deadlines, ttft_s, top - chosen)
        self._wanted.append(min(chosen + self.feedback.steps, top))
        return max(self._wanted)
