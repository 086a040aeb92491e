"""What ``wastenot serve control`` would have saved: its policy, on readings that Prometheus kept. Nothing is set.

    scrapes ──▶ Instance, as it controls a server ──▶ a setting until the next scrape ──▶ its power, by the profile
                                                  and the default clock's power at the same rate of tokens

What the history cannot tell: what happened between two scrapes, and what latencies would have been at other clocks than
those that were set then. Both powers are the profile's, at the rate at which tokens were made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.result import HasDocument, HasPage
from wastenot.serving.bench.server_metrics import LatencyCounts, ServerReading
from wastenot.serving.cluster.seen_load import carried
from wastenot.serving.control.history import History, plain
from wastenot.serving.control.instance import Instance, Rules
from wastenot.serving.control.sources import Heard
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, core_clocks_mhz

_PATIENCE = 2.5
"""Scrape intervals without a reading from which on the clocks are the driver's, where that is longer than ``stale_s``."""


_MOST_STRETCHES = 400  # that are told of a server


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the time that is counted.

    Attributes:
        at_s: its begin, in Unix time.
        lasted_s: how long it was.
        core_mhz: mean of the clocks that would have been set; the default ones count as the profile's highest. ``None``
            where the profile has no clocks.
        tokens_per_s: that the server made.
        running: requests in the batch of its fullest engine, on average.
    """

    at_s: float
    lasted_s: float
    core_mhz: float | None
    tokens_per_s: float
    running: float


@dataclass(frozen=True, slots=True)
class ReplayedServer:
    """One server's history. Energies, and times between tokens but for the measured one, are predicted by the profile.

    Attributes:
        instance: its label in Prometheus.
        job: the same.
        begin_unix_s: of its first scrape.
        end_unix_s: of its last one.
        scrape_s: median time between two scrapes.
        scrapes: of it.
        unreadable: scrapes whose values cannot be.
        gaps: times without a scrape that were too long to say anything about.
        restarts: of its counters.
        covered_s: what is counted: time between two scrapes of the same life of the server.
        requests: that had their first token then.
        output_tokens: made then.
        default_energy_j: at the default clocks.
        energy_j: at the clocks that would have been set.
        default_tbt_s: mean time between tokens at the default clocks; ``None`` where no token was made.
        tbt_s: the same at the clocks that would have been set.
        measured_tbt_s: median of what the server measured, at the clocks that were set then; ``None`` where it does not say.
        kept_s: time in which the profile says that the share of requests asked for meets the deadlines at those clocks.
        clocks: time at each, by core clock in MHz; 0 stands for the default clocks.
        changes: of the clocks: when (Unix time), and to which core clock, ``None`` for the default clocks.
        steps_up: most settings above the profile's choice, because measured latencies missed the deadlines.
        why_default: times that the clocks were left to the driver, by reason.
        timeline: clock and load over the time that is counted.
    """

    instance: str
    job: str
    begin_unix_s: float
    end_unix_s: float
    scrape_s: float
    scrapes: int
    unreadable: int
    gaps: int
    restarts: int
    covered_s: float
    requests: float
    output_tokens: float
    default_energy_j: float
    energy_j: float
    default_tbt_s: float | None
    tbt_s: float | None
    measured_tbt_s: float | None
    kept_s: float
    clocks: Mapping[str, float]
    changes: tuple[tuple[float, float | None], ...]
    steps_up: int
    why_default: Mapping[str, int]
    timeline: tuple[Stretch, ...] = ()

    @property
    def saved(self) -> float:
        """Of the energy at the default clocks."""
        return 1.0 - self.energy_j / self.default_energy_j if self.default_energy_j > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Replay(HasDocument, HasPage):
    """What controlling the clocks would have saved.

    Attributes:
        model: of the profile.
        device: the same.
        evidence: of the profile's steps.
        hours: looked back.
        deadlines: that were to be kept.
        headroom: share of each that was to be left over.
        servers: by instance.
        prometheus: host and port of it.
        engine: file of the profile; empty where it has none.
    """

    kind: ClassVar[str] = "serve-replay"
    drawn_by: ClassVar[str] = "wastenot.serving.page.replay_page:replay_page"

    model: str
    device: str
    evidence: Literal["measured", "simulated", "forecast"]
    hours: float
    deadlines: Deadlines
    headroom: float
    servers: tuple[ReplayedServer, ...]
    prometheus: str = ""
    engine: str = ""

    @property
    def saved(self) -> float:
        """Of the energy of all servers at the default clocks."""
        default_j = sum(each.default_energy_j for each in self.servers)
        return 1.0 - sum(each.energy_j for each in self.servers) / default_j if default_j > 0.0 else 0.0

    def document(self) -> dict[str, Any]:
        """The result as JSON values (``wastenot.serve-replay/1``)."""
        found = super(Replay, self).document()
        for values, each in zip(found["servers"], self.servers, strict=True):
            values["saved"] = each.saved
        return {**found, "saved": self.saved}


def replayed(history: History, engine: Engine, rules: Rules) -> ReplayedServer:
    """What a controller would have done with one server.

    Args:
        history: of it.
        engine: what its steps cost.
        rules: as live; nothing is set whatever they say.

    Raises:
        BadInputError: the history is too short, or there were no requests in it.
    """
    good = [each for each in history.scrapes if each.reading is not None]
    name = plain(history.instance)
    if len(good) < 3:
        why = next((f": {plain(each.why)}" for each in history.scrapes if each.why), "")
        raise BadInputError(f"{name}: Prometheus has {len(good)} usable scrapes of it in this time, too few{why}")
    scrape_s = float(np.median(np.diff([each.at_s for each in good])))
    rules = replace(rules, dry_run=True, stale_s=max(rules.stale_s, _PATIENCE * scrape_s))
    account = _Account(engine, rules)
    _play(history, engine, rules, account)
    if not account.answered:
        raise BadInputError(f"{name}: answered no requests in this time; look back further with --hours")
    if not account.covered_s > 0.0:
        raise BadInputError(
            f"{name}: too few requests in this time to say what they are like; look back further with --hours"
        )
    return account.of(history, good, scrape_s)


def _play(history: History, engine: Engine, rules: Rules, account: _Account) -> None:
    """Let a controller hear each scrape at its time, and account for the time until the next."""
    instance = Instance(history.instance, (), engine, rules, account.tell)
    before: tuple[float, ServerReading] | None = None
    for scrape in history.scrapes:
        at_s, reading = scrape.at_s, scrape.reading
        account.now_s = at_s
        if before is not None and reading is not None:
            gap = at_s - before[0] >= rules.stale_s
            anew = reading.began_anew(before[1])
            if gap:
                account.gaps += 1
                instance.check(at_s)
            elif anew:
                account.restarts += 1
            else:
                account.count(before, (at_s, reading), instance)
        instance.hear(scrape, at_s)
        account.unreadable += reading is None
        before = None if reading is None else (at_s, reading)


@dataclass(slots=True)
class _Account:
    """Adds up what both clocks cost between scrapes."""

    engine: Engine
    rules: Rules
    now_s: float = 0.0
    gaps: int = 0
    restarts: int = 0
    unreadable: int = 0
    covered_s: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    energy_j: float = 0.0
    default_j: float = 0.0
    kept_s: float = 0.0
    steps_up: int = 0
    token_s: float = 0.0
    default_token_s: float = 0.0
    answered: bool = False
    clocks: dict[str, float] = field(default_factory=dict)
    why: Counter[str] = field(default_factory=Counter)
    changes: list[tuple[float, float | None]] = field(default_factory=list)
    measured: list[LatencyCounts] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)

    def tell(self, event: Any) -> None:
        """Keep what the controller tells."""
        if event.kind == "clock":
            self.changes.append((self.now_s, event.values["core_mhz"]))
        elif event.kind == "default":
            self.why[str(event.values["why"])] += 1
            if self.changes and self.changes[-1][1] is not None:
                self.changes.append((self.now_s, None))

    def count(self, before: tuple[float, ServerReading], now: tuple[float, ServerReading], instance: Instance) -> None:
        """Account for the time between two readings, at the clock that was chosen at the first."""
        (then_s, then), (now_s, reading) = before, now
        over_s, made, load = now_s - then_s, 0.0, instance.policy.load
        if reading.output_tokens is not None and then.output_tokens is not None:
            made = max(reading.output_tokens - then.output_tokens, 0.0)
        self.answered = self.answered or made > 0.0
        if made > 0.0 and load is None:
            return  # too few requests so far to say what they are like
        top, at = len(self.engine.tables.settings) - 1, instance.index
        core = None if at == top else self.engine.tables.settings[at].core_mhz
        name = "0" if core is None else f"{core:g}"
        self.clocks[name] = self.clocks.get(name, 0.0) + over_s
        self.steps_up = max(self.steps_up, instance.policy.feedback.steps)
        self.covered_s += over_s
        self.tokens += made
        if reading.ttft is not None and then.ttft is not None:
            self.requests += reading.ttft.total - then.ttft.total
        passed = None if reading.tbt is None or then.tbt is None else reading.tbt.since(then.tbt)
        self.measured += [] if passed is None else [passed]
        if made > 0.0 and load is not None:
            rate_per_s = made / load.output_tokens / over_s / reading.engines
            state = carried(load, self.engine, self.rules.deadlines, headroom=0.0, rate_per_s=np.array([rate_per_s]))
            power_w, token_s = state.power_w[:, 0], state.tbt_s[:, 0]
            kept = bool(state.kept[at, 0] >= self.rules.deadlines.share)
        else:
            power_w, token_s, kept = self.engine.tables.idle_power_w, np.zeros(top + 1), True
        self.energy_j += float(power_w[at]) * over_s * reading.engines
        self.default_j += float(power_w[top]) * over_s * reading.engines
        self.token_s += made * float(token_s[at])
        self.default_token_s += made * float(token_s[top])
        self.kept_s += over_s * kept
        clocks = core_clocks_mhz(self.engine)
        mhz, running = None if clocks is None else float(clocks[at]), 0.5 * (then.running + reading.running)
        self.stretches.append(Stretch(then_s, over_s, mhz, made / over_s, running))

    def of(self, history: History, good: Sequence[Heard], scrape_s: float) -> ReplayedServer:
        """All of it."""
        return ReplayedServer(
            history.instance,
            history.job,
            good[0].at_s,
            good[-1].at_s,
            scrape_s,
            len(history.scrapes),
            self.unreadable,
            self.gaps,
            self.restarts,
            self.covered_s,
            self.requests,
            self.tokens,
            self.default_j,
            self.energy_j,
            self.default_token_s / self.tokens if self.tokens > 0.0 else None,
            self.token_s / self.tokens if self.tokens > 0.0 else None,
            self._measured_tbt_s(),
            self.kept_s,
            {name: seconds for name, seconds in sorted(self.clocks.items(), key=lambda each: float(each[0])) if seconds > 0},
            tuple(self.changes),
            self.steps_up,
            dict(self.why),
            tuple(_joined(self.stretches)),
        )

    def _measured_tbt_s(self) -> float | None:
        if not self.measured:
            return None
        alike = [each for each in self.measured if each.edges == self.measured[0].edges]
        counts = tuple(float(sum(each)) for each in zip(*(one.counts for one in alike), strict=True))
        found = LatencyCounts(alike[0].edges, counts).quantile(0.5)
        return None if found is None or math.isinf(found) else found


def _joined(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """At most ``_MOST_STRETCHES``, each the mean of some that follow each other without a gap."""
    together = -(-len(stretches) // _MOST_STRETCHES)
    some: list[Stretch] = []
    for each in stretches:
        if some and (len(some) == together or each.at_s - some[-1].at_s > some[-1].lasted_s + 1e-3):
            yield _mean(some)
            some = []
        some.append(each)
    if some:
        yield _mean(some)


def _mean(some: Sequence[Stretch]) -> Stretch:
    lasted = [each.lasted_s for each in some]

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=lasted))

    clocks = [each.core_mhz for each in some if each.core_mhz is not None]
    return Stretch(
        some[0].at_s,
        sum(lasted),
        mean(clocks) if clocks else None,
        mean([each.tokens_per_s for each in some]),
        mean([each.running for each in some]),
    )
