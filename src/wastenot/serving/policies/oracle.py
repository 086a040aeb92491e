"""An oracle: a plan of clocks made with all requests to come known, for an engine whose clock takes no time to change.

It shows what steering could save at most, near enough: a beam search over the engine's own steps, with the true future, that
keeps the best few ways to have come so far. What it finds can be had by nobody, and it is not a bound either: there may be a
better plan. The search is over pairs of clocks for each stretch of 0.1 s, one for steps that only decode and one for steps
that prefill, and over prices of a missed deadline, for the cheapest plan that still attains. Our own policy with a clock
that changes at once and lengths that are known stands for another plan. The search does not model preemption.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.model.compiled import compiled, compiled_inside
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.step_table import USES, StepTable, decode_within, filled_table, mixed_within
from wastenot.serving.policies.chain import prices_of_chain
from wastenot.serving.policies.costs import StepCosts
from wastenot.serving.policies.price import Price
from wastenot.serving.simulation.policy import Choice, Policy, View
from wastenot.serving.simulation.served import Served
from wastenot.serving.simulation.simulate import simulate

STRETCH_S = 0.1
BEAM = 12
MOST_PREFILL_CLOCKS = 6
PRICES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Of a missed deadline, in mean energies of a request, that are tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A policy that follows a plan.

    Attributes:
        settings: of each step, in order; shape (steps,).
        idle: setting while there is nothing to do.
        name: for tables and pictures.
    """

    settings: IndexArray
    idle: int
    name: str = "oracle"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """The setting of the first step."""
        return int(self.settings[0])

    def choose(self, view: View) -> Choice:
        """The setting of the step to come; asks to be asked before each."""
        if not len(view.running_made) and not len(view.waiting_tokens):
            return Choice(self.idle)
        return Choice(int(self.settings[min(view.steps, len(self.settings) - 1)]), view.now_s)


def run_oracle(
    requests: Requests, engine: Engine, deadlines: Deadlines, *, share: float = 0.99, at_once: bool = True
) -> tuple[Policy, Served]:
    """The cheapest plan found that attains a share, and its run; where none attains it, the one that attains most.

    The run is simulated as any policy's is, but for a clock that changes at once.

    Args:
        requests: all that will come.
        engine: that serves them.
        deadlines: to be kept.
        share: of the requests that are to keep all deadlines.
        at_once: whether the clock may be another at each step; otherwise it stays for ``switch_s``, and for 0.1 s at
            least. What such a plan saves less is the price of a clock that takes time to change; what a policy saves
            less than that, the price of not knowing what comes.

    Raises:
        BadInputError: the engine does not prefill in chunks.
    """
    if not engine.chunked:
        raise BadInputError("the oracle plans engines that prefill in chunks only; set `chunked`")
    instant = replace(engine, switch_s=0.0)
    best: tuple[tuple[bool, float], Policy, Served] | None = None
    search = _Search(requests, instant, deadlines, 0.0 if at_once else engine.switch_s)
    for price in PRICES:
        name = "oracle" if at_once else "oracle, with the switching time"
        plan: Policy = Planned(search.plan(price), int(np.argmin(engine.tables.idle_power_w)), name)
        served = simulate(requests, instant, plan, deadlines=deadlines)
        attained = served.attainment(deadlines)
        rank = (attained < share, served.total_energy_j if attained >= share else -attained)
        if best is None or rank < best[0]:
            best = rank, plan, served
        if attained >= share + 0.5 * (1 - share):
            break  # a higher price only costs more
    if at_once:
        served = simulate(requests, instant, Price(), deadlines=deadlines)
        attained = served.attainment(deadlines)
        rank = (attained < share, served.total_energy_j if attained >= share else -attained)
        if best is None or rank < best[0]:
            best = rank, Price(name="oracle"), served
    assert best is not None
    return best[1], best[2]


_compiled = partial(compiled, uses=USES)


class _Load(NamedTuple):
    """Requests, and what each may miss, as compiled functions take them."""

    arrival_s: FloatArray
    prompt: IndexArray
    output: IndexArray
    limit_s: FloatArray
    allowed: IndexArray


class _Rules(NamedTuple):
    """What a plan is made by."""

    step_tokens: int
    most_running: int
    overhead_s: float
    tbt_s: float
    idle_w: float
    miss_j: float
    token_j: FloatArray
    prompt_token_j: float
    prompt_token_s: float


class _State(NamedTuple):
    """Ways to have come so far, the first index; what an engine would look like then.

    ``number`` holds the time, energy and misses; ``counts`` the first request that is not prefilled, its tokens that are,
    the batch, tokens in its cache, steps and late steps; the other three, of each request of the batch, which it is, the
    step that ends it, and the late steps before it began.
    """

    number: FloatArray
    counts: IndexArray
    which: IndexArray
    ends: IndexArray
    before: IndexArray


class _Search:
    """Plans for one load, by the price of a missed deadline."""

    def __init__(self, requests: Requests, engine: Engine, deadlines: Deadlines, stays_s: float) -> None:
        self.engine, self.deadlines = engine, deadlines
        self.stretch_s, self.together = max(STRETCH_S, stays_s), stays_s > 0
        costs = StepCosts(engine.tables)
        tables = engine.tables
        self.tables = filled_table(tables)
        prompt, output = (np.asarray(each, dtype=np.int64) for each in (requests.prompt_tokens, requests.output_tokens))
        self.load = _Load(
            np.asarray(requests.arrival_s, dtype=float),
            prompt,
            output,
            requests.arrival_s + deadlines.ttft_of(prompt),
            deadlines.late_allowed(output).astype(np.int64),
        )
        rate = len(requests) / max(float(requests.arrival_s[-1]), 1.0)
        context = float(prompt.mean() + (output.astype(float) ** 2).mean() / output.mean() / 2)
        states = int(min(engine.most_running, tables.batches[-1])) + 1
        batch = np.arange(states, dtype=float)
        time_s, energy_j = costs.decode(batch, np.full(states, context))
        time_s = time_s + engine.overhead_s
        whole_s, whole_j = costs.prefill(np.minimum(prompt, engine.most_step_tokens).astype(float), np.zeros(len(prompt)))
        per_token = np.maximum(prompt / engine.most_step_tokens, 1.0)
        self.prompt_token_s = float((whole_s[-1] * per_token).sum() / prompt.sum())
        self.prompt_token_j = float((whole_j * per_token).sum(axis=1).min() / prompt.sum())
        power_w = np.where(batch > 0, energy_j / time_s, float(tables.idle_power_w.min()))
        busy = min(rate * self.prompt_token_s * float(prompt.mean()), 0.9)
        leave = np.where(batch > 0, batch / (output.mean() * time_s) * (1 - busy), 1.0)
        slow = (time_s > deadlines.tbt_s) & (batch > 0)
        chain = prices_of_chain(rate, leave, power_w + slow * 10 * power_w.max())
        worth = np.concatenate([[0.0], np.cumsum(chain.request)])
        worth[1:] /= np.arange(1, states) * output.mean()
        self.token_j, self.choice = worth, chain.choice.astype(np.int64)
        self.request_j = float(chain.cost_rate) / rate
        settings = len(tables.settings)
        low = int(self.choice[1 : max(states // 4, 2)].min())
        count = min((2 if self.together else 1) * MOST_PREFILL_CLOCKS, settings - low)
        self.prefill_clocks = np.unique(np.linspace(low, settings - 1, count).round()).astype(np.int64)

    def plan(self, price: float) -> IndexArray:
        """The setting of each step at a price of a missed deadline."""
        engine, load = self.engine, self.load
        rules = _Rules(
            engine.most_step_tokens, engine.most_running, engine.overhead_s, self.deadlines.tbt_s,
            float(engine.tables.idle_power_w.min()), price * self.request_j,
            self.token_j, self.prompt_token_j, self.prompt_token_s,
        )  # fmt: skip
        stretches = math.ceil((float(load.arrival_s[-1]) + 60.0) / self.stretch_s)
        while True:
            parent, decode, prefill, last = _search(
                self.tables,
                load,
                rules,
                self.choice,
                self.prefill_clocks,
                stretches,
                self.stretch_s,
                BEAM,
                self.together,
            )
            if last >= 0:
                break
            stretches *= 2
        way, at = np.zeros((last + 1, 2), dtype=np.int64), 0
        for stretch in range(last, -1, -1):
            way[stretch] = decode[stretch, at], prefill[stretch, at]
            at = int(parent[stretch, at])
        return np.asarray(_settings(self.tables, load, rules, way, self.stretch_s))


@compiled_inside
def _step(table: StepTable, setting: int, tokens: float, past: float, batch: int, context: float) -> tuple[float, float]:
    """Time and energy of a step of any kind."""
    if tokens > 0:
        return mixed_within(table, setting, float(tokens), past, float(batch), context)
    return decode_within(table, setting, float(batch), context)


@compiled_inside
def _advance(  # noqa: PLR0912, PLR0915 - the simulator's loop
    tables: StepTable, load: _Load, rules: _Rules, state: _State, k: int, until_s: float, decode: int, prefill: int,
    settings: IndexArray,
) -> tuple[bool, bool, float, float]:  # fmt: skip
    """Run an engine to the end of a stretch, and note the setting of each step where there is room for it.

    Returns whether it decoded only, whether it prefilled, and the power and tokens per second of the last step.
    """
    now, energy, missed = state.number[k, 0], state.number[k, 1], state.number[k, 2]
    head, part, batch, context, steps, late = (
        state.counts[k, 0], state.counts[k, 1], state.counts[k, 2],
        state.counts[k, 3], state.counts[k, 4], state.counts[k, 5],
    )  # fmt: skip
    total = len(load.arrival_s)
    decoded, prefilled, power, rate = False, False, 0.0, 0.0
    while now < until_s and (head < total or batch > 0):
        if batch == 0 and load.arrival_s[head] > now:
            end = min(until_s, load.arrival_s[head])
            energy += rules.idle_w * (end - now)
            now, power, rate = end, 0.0, 0.0
            continue
        room, tokens, attention, last, joined = rules.step_tokens - batch, 0, 0.0, head, 0
        while last < total and load.arrival_s[last] <= now and room > 0 and batch + joined < rules.most_running:
            done = part if last == head else 0
            chunk = min(room, load.prompt[last] - done)
            attention += chunk * (done + chunk / 2)
            tokens, room, joined = tokens + chunk, room - chunk, joined + 1
            if done + chunk < load.prompt[last]:
                break
            last += 1
        rest = 0
        if tokens > 0:
            filled = 0
            for index in range(head, last):
                filled += load.prompt[index] - (part if index == head else 0)
            rest = tokens - filled + (part if last == head else 0)
        setting = prefill if tokens > 0 else decode
        if tokens > 0:
            prefilled = True
        else:
            decoded = True
        past = max(attention / tokens - tokens / 2, 0.0) if tokens > 0 else 0.0
        time_s, energy_j = _step(tables, setting, tokens, past, batch, context / batch if batch else 0.0)
        if steps < len(settings):
            settings[steps] = setting
        time_s += rules.overhead_s
        energy += energy_j + rules.overhead_s * rules.idle_w
        now += time_s
        power, rate = energy_j / time_s, batch / time_s
        steps += 1
        context += batch
        if time_s > rules.tbt_s:
            late += 1
            for x in range(batch):
                if late - state.before[k, x] == load.allowed[state.which[k, x]] + 1:
                    missed += 1.0
        kept = 0
        for x in range(batch):
            index = state.which[k, x]
            if state.ends[k, x] <= steps:
                context -= load.prompt[index] + load.output[index] - 1
            else:
                state.which[k, kept], state.ends[k, kept], state.before[k, kept] = (
                    index,
                    state.ends[k, x],
                    state.before[k, x],
                )
                kept += 1
        batch = kept
        for index in range(head, last):
            lost = now > load.limit_s[index]
            if lost:
                missed += 1.0
            if load.output[index] > 1:
                state.which[k, batch], state.ends[k, batch] = index, steps + load.output[index] - 1
                state.before[k, batch] = late + (1 << 40 if lost else 0)
                batch += 1
                context += load.prompt[index]
        head, part = last, rest
    state.number[k, 0], state.number[k, 1], state.number[k, 2] = now, energy, missed
    state.counts[k, 0], state.counts[k, 1], state.counts[k, 2] = head, part, batch
    state.counts[k, 3], state.counts[k, 4], state.counts[k, 5] = context, steps, late
    return decoded, prefilled, power, rate


@compiled_inside
def _score(load: _Load, rules: _Rules, state: _State, k: int, until_s: float, power: float, rate: float) -> float:
    """Energy so far, with a price on what was missed, will be missed, and is still to be done."""
    now, head, batch, steps = state.number[k, 0], state.counts[k, 0], state.counts[k, 2], state.counts[k, 4]
    left, hurt = 0.0, 0.0
    late = state.counts[k, 5]
    for x in range(batch):
        left += state.ends[k, x] - steps
        had = late - state.before[k, x]
        if had > 0:
            hurt += 0.3 * min(had / (load.allowed[state.which[k, x]] + 1.0), 1.0)
    waiting, prompts, lost, at = 0, 0.0, 0.0, now
    index = head
    while index < len(load.arrival_s) and load.arrival_s[index] <= now:
        todo = load.prompt[index] - (state.counts[k, 1] if index == head else 0)
        at += todo * rules.prompt_token_s
        if at > load.limit_s[index]:
            lost += 1.0
        prompts += todo
        left += load.output[index]
        waiting += 1
        index += 1
    ahead = max(now - until_s, 0.0)
    token_j = rules.token_j[min(batch + waiting, len(rules.token_j) - 1)]
    return float(
        state.number[k, 1] - ahead * power
        + rules.miss_j * (state.number[k, 2] + lost + hurt)
        + token_j * (left + ahead * rate)
        + rules.prompt_token_j * prompts
    )  # fmt: skip


@compiled_inside
def _copy(source: _State, i: int, target: _State, k: int) -> None:
    for column in range(3):
        target.number[k, column] = source.number[i, column]
    for column in range(6):
        target.counts[k, column] = source.counts[i, column]
    for x in range(source.counts[i, 2]):
        target.which[k, x], target.ends[k, x], target.before[k, x] = (
            source.which[i, x],
            source.ends[i, x],
            source.before[i, x],
        )


@compiled_inside
def _empty(ways: int, most: int) -> _State:
    return _State(
        np.zeros((ways, 3)),
        np.zeros((ways, 6), dtype=np.int64),
        np.zeros((ways, most), dtype=np.int64),
        np.zeros((ways, most), dtype=np.int64),
        np.zeros((ways, most), dtype=np.int64),
    )


@_compiled
def _search(  # noqa: PLR0912 - one loop over stretches, ways and clocks
    tables: StepTable, load: _Load, rules: _Rules, choice: IndexArray, prefill_clocks: IndexArray, stretches: int,
    stretch_s: float, beam: int, together: bool,
) -> tuple[IndexArray, IndexArray, IndexArray, int]:  # fmt: skip
    """The best ways through the load: where each came from, its clocks, by stretch; and the last stretch, -1 if too few."""
    total, highest = len(load.arrival_s), len(tables.idle_power_w) - 1
    most = beam * 3 * len(prefill_clocks)
    here, there = _empty(beam, rules.most_running), _empty(most, rules.most_running)
    parent, decode, prefill = (
        np.zeros((stretches, beam), dtype=np.int64),
        np.zeros((stretches, beam), dtype=np.int64),
        np.zeros((stretches, beam), dtype=np.int64),
    )
    scores, origin, low, high = np.zeros(most), np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    unused, ways = np.zeros(0, dtype=np.int64), 1
    for stretch in range(stretches):
        until, found, finished = (stretch + 1) * stretch_s, 0, True
        for k in range(ways):
            head, batch, now = here.counts[k, 0], here.counts[k, 2], here.number[k, 0]
            only = now >= until or (head >= total and batch == 0)
            quiet = head >= total or load.arrival_s[head] > until
            centre = choice[min(batch, len(choice) - 1)] if batch > 0 else choice[1]
            for d in range(3):
                clock = centre + d - 1
                if ((only or together) and d != 1) or clock < 0 or clock > highest:
                    continue
                for m in range(len(prefill_clocks)):
                    if m > 0 and (only or (quiet and not together)):
                        break
                    if together:
                        clock = prefill_clocks[m]
                    _copy(here, k, there, found)
                    _, prefilled, power, rate = _advance(
                        tables, load, rules, there, found, until, clock, prefill_clocks[m], unused
                    )
                    scores[found] = _score(load, rules, there, found, until, power, rate)
                    origin[found], low[found], high[found] = k, clock, prefill_clocks[m]
                    if there.counts[found, 0] < total or there.counts[found, 2] > 0:
                        finished = False
                    found += 1
                    if not prefilled and not together:
                        break
        order = np.argsort(scores[:found])
        ways = 0
        for index in order:
            same = False
            for k in range(ways):
                if (
                    abs(here.number[k, 1] - there.number[index, 1]) < 1e-9
                    and abs(here.number[k, 0] - there.number[index, 0]) < 1e-12
                ):
                    same = True
                    break
            if same:
                continue
            _copy(there, index, here, ways)
            parent[stretch, ways], decode[stretch, ways], prefill[stretch, ways] = origin[index], low[index], high[index]
            ways += 1
            if ways == beam:
                break
        if finished:
            return parent, decode, prefill, stretch
    return parent, decode, prefill, -1


@_compiled
def _settings(tables: StepTable, load: _Load, rules: _Rules, way: IndexArray, stretch_s: float) -> IndexArray:
    """The setting of each step along a way."""
    state = _empty(1, rules.most_running)
    settings = np.zeros(load.output.sum() + load.prompt.sum(), dtype=np.int64)
    for stretch in range(len(way)):
        _advance(tables, load, rules, state, 0, (stretch + 1) * stretch_s, way[stretch, 0], way[stretch, 1], settings)
    return settings[: state.counts[0, 4]]
