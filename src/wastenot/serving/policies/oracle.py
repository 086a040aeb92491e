"""An oracle: a plan of clocks made with all requests to come known, for an engine whose clock takes no time to change.

It shows what steering could save at most, near enough: a beam search over runs of the simulator, with the true future, that
keeps the best few ways to have come so far. What it finds can be had by nobody, and it is not a bound either: there may be a
better plan. The search is over pairs of clocks for each stretch of 0.1 s, one for an engine that only decodes and one while
prompts wait or are prefilled, and over prices of a missed deadline, for the cheapest plan that still attains. Another plan
is that of the price policy with a clock that changes at once and lengths that are known. There is no second model of the
engine: ways are states of the one compiled core, copied and resumed, so that plans foresee preemptions, too::

    ways that were kept, copies of a run ── each with each pair of clocks to the end of the next stretch ──► ways tried
             ▲                                                                                               │
             └──── the best, by energy so far, deadlines missed, and what is still to be done ◄──────────────┘
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.simulation.compiling import compiled, inside
from wastenot.serving.cluster.simulation.core import run_until
from wastenot.serving.cluster.simulation.instances import cut
from wastenot.serving.cluster.simulation.records import BACKLOGS, LOW, OUTSIDE, SLOTS, State
from wastenot.serving.cluster.simulation.requests import ttft_s_of
from wastenot.serving.cluster.simulation.ways import keep_way, resume_way, room_for_ways
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.step_costs import StepCosts, inlined
from wastenot.serving.policies.chain import batches_of, mean_context, prices_of_chain
from wastenot.serving.policies.price import Price
from wastenot.serving.simulation.policy import Choice, Policy, View
from wastenot.serving.simulation.served import Served
from wastenot.serving.simulation.simulate import before_first_step, simulate

# By hand. How far results depend on the first two, on 20 s of 4 requests/s (8 billion parameters, simulated H200): 4 ways
# find a plan of 0.2 % more energy and 36 ways one of 0.5 % less; stretches of 0.05 s one of 0.2 % more and those of 0.2 s
# one of 1.2 % less, as ways that differ are kept for longer. Time rises in proportion to ways and stretches.

STRETCH_S = 0.1
"""For which a pair of clocks is kept."""
BEAM = 12
"""Ways that are kept at the end of each stretch."""
MOST_PREFILL_CLOCKS = 6
"""That are tried while prompts wait, evenly spread from the lowest that light batches decode at to the greatest."""
DECODE_CLOCKS = 3
"""That are tried while none waits: the one that the chain chooses for the batch, and its neighbours."""
PRICES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Of a missed deadline, in mean energies of a request, that are tried: from less than what serving it costs, in steps of
about √10."""


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A policy that follows a plan.

    Attributes:
        clocks: of each stretch of time, the setting without prompts and that with them; shape (stretches, 2).
        ends_s: of each stretch, the next beginning there; the last lasts on; shape (stretches,).
        idle: setting while there is nothing to do.
        energy_j: that the plan takes until the last answer.
        name: for tables and pictures.
    """

    clocks: IndexArray
    ends_s: FloatArray
    idle: int
    energy_j: float
    name: str = "oracle"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """The setting of an idle engine."""
        return self.idle

    def choose(self, view: View) -> Choice:
        """The setting of the stretch; asks to be asked at its end."""
        if not len(view.running_made) and not len(view.waiting_tokens):
            return Choice(self.idle)
        stretch = min(bisect_right(self.ends_s, view.now_s), len(self.ends_s) - 1)
        return Choice(int(self.clocks[stretch, min(len(view.waiting_tokens), 1)]), float(self.ends_s[stretch]))


def run_oracle(requests: Requests, engine: Engine, deadlines: Deadlines, *, share: float = 0.99) -> tuple[Policy, Served]:
    """The cheapest plan found that attains a share, and its run; where none attains it, the one that attains most.

    The run is simulated as any policy's is, but for a clock that changes at once.

    Args:
        requests: all that will come.
        engine: that serves them.
        deadlines: to be kept.
        share: of the requests that are to keep all deadlines.

    Raises:
        BadInputError: the engine does not prefill in chunks.
    """
    if not engine.chunked:
        raise BadInputError("the oracle only plans engines with chunked prefill; set `chunked`")
    instant = replace(engine, switch_s=0.0)
    search = _Search(requests, instant, deadlines)
    ran: list[tuple[tuple[bool, float], Policy, Served]] = []

    def attainment_of(policy: Policy) -> float:
        served = simulate(requests, instant, policy, deadlines=deadlines)
        attained = served.attainment(deadlines)
        ran.append(((attained < share, served.total_energy_j if attained >= share else -attained), policy, served))
        return attained

    for price in PRICES:
        if attainment_of(search.plan(price)) >= share + 0.5 * (1 - share):
            break  # a higher price only costs more
    attainment_of(Price(name="oracle"))
    _, policy, served = min(ran, key=itemgetter(0))
    return policy, served


class _Worth(NamedTuple):
    """What is still to come, in energy."""

    miss_j: float  # a missed deadline
    token_j: FloatArray  # a token to be made, by requests that are there
    prompt_token_j: float  # a token to be prefilled
    prompt_token_s: float  # the time that it takes


class _Clocks(NamedTuple):
    """The clocks that are tried."""

    idle: int  # while there is nothing to do
    # settings without and with prompts, by requests that decode, first all ``DECODE_CLOCKS`` with the lowest one with
    # prompts, and so on; without is -1 in pairs that are none; shape (states, pairs, 2)
    pairs: IndexArray


class _Tried(NamedTuple):
    """Ways that were tried in a stretch."""

    origin: IndexArray  # the way that was kept before from which each came
    clocks: IndexArray  # the pair in the stretch; shape (ways, 2)
    score: FloatArray  # the less, the better
    spent_j: FloatArray  # at the end of the last step
    left: IndexArray  # requests that are not answered


class _Search:
    """Plans for one load, by the price of a missed deadline."""

    def __init__(self, requests: Requests, engine: Engine, deadlines: Deadlines) -> None:
        self.requests, self.engine = requests, engine
        self.deadlines = replace(deadlines, share=deadlines.share - 1e-12)  # one late token of ten is allowed
        self.slots = 64  # for requests that are there at once; more once they do not suffice
        costs = StepCosts(engine.tables)
        tables = engine.tables
        prompt, output = (each.astype(float) for each in (requests.prompt_tokens, requests.output_tokens))
        rate = len(requests) / max(float(requests.arrival_s[-1]), 1.0)
        whole_s, whole_j = costs.prefill(np.minimum(prompt, engine.most_step_tokens), np.zeros(len(prompt)))
        per_token = np.maximum(prompt / engine.most_step_tokens, 1.0)
        prompt_token_s = float((whole_s[-1] * per_token).sum() / prompt.sum())
        prompt_token_j = float((whole_j * per_token).sum(axis=1).min() / prompt.sum())
        busy = min(rate * prompt_token_s * float(prompt.mean()), 0.9)
        context, mean = mean_context(prompt, output), float(output.mean())
        batch, time_s, energy_j, leave = batches_of(engine, costs, context, mean, 1 - busy)
        states = len(batch)
        power_w = np.where(batch > 0, energy_j / time_s, float(tables.idle_power_w.min()))
        slow = (time_s > deadlines.tbt_s) & (batch > 0)
        chain = prices_of_chain(rate, leave, power_w + slow * 10 * power_w.max())
        worth = np.concatenate([[0.0], np.cumsum(chain.request)])
        worth[1:] /= np.arange(1, states) * mean
        self.worth = _Worth(float(chain.cost_rate) / rate, worth, prompt_token_j, prompt_token_s)
        settings = len(tables.settings)
        low = int(chain.choice[1 : max(states // 4, 2)].min())
        prefill = np.unique(np.linspace(low, settings - 1, min(MOST_PREFILL_CLOCKS, settings - low)).round()).astype(
            np.int64
        )
        decode = chain.choice.astype(np.int64)[:, None] + np.arange(DECODE_CLOCKS) - DECODE_CLOCKS // 2
        decode[0], pairs = decode[1], np.empty((states, len(prefill), DECODE_CLOCKS, 2), dtype=np.int64)
        pairs[..., 0], pairs[..., 1] = np.where(decode < settings, decode, -1)[:, None, :], prefill[:, None]
        self.clocks = _Clocks(int(np.argmin(tables.idle_power_w)), pairs.reshape(states, -1, 2))

    def plan(self, price: float) -> Planned:
        """The best plan found at a price of a missed deadline, in mean energies of a request."""
        worth = self.worth._replace(miss_j=price * self.worth.miss_j)
        one = before_first_step(self.requests, self.engine, self.deadlines, self.slots)
        most = BEAM * self.clocks.pairs.shape[1]
        none, never = np.zeros(most, dtype=np.int64), np.zeros(most)
        tried = _Tried(none, np.zeros((most, 2), dtype=np.int64), never, never.copy(), none + 1)
        here, there, best = room_for_ways(one, BEAM), room_for_ways(one, BEAM), none[:1].copy()
        plan: list[tuple[IndexArray, IndexArray]] = []
        ends_s = [0.0]
        while tried.left[best].any():
            ends_s.append(len(ends_s) * STRETCH_S)
            found = _try_clocks(one, there, here, best, worth, self.clocks, ends_s[-2], ends_s[-1], tried)
            if found < 0:
                self.slots *= 2
                return self.plan(price)
            if not found:  # the tables cover no way to go on, as the run of the plan will say
                plan.append((best[:1] * 0, self.clocks.pairs[0, 1:2]))
                break
            best = np.unique(tried.score[:found], return_index=True)[1][:BEAM]  # those with the same score are the same
            plan.append((tried.origin[best], tried.clocks[best]))
            here, there = there, here
        way, clocks = 0, []
        for origin, pairs in reversed(plan):
            clocks.append(pairs[way])
            way = int(origin[way])
        return Planned(np.array(clocks[::-1]), np.array(ends_s[1:]), self.clocks.idle, float(tried.spent_j[best[0]]))


@inlined
def _spent(numbers: Any) -> float:
    """Energy so far."""
    return numbers.prefill_j + numbers.decode_j + numbers.mixed_j + numbers.idle_j  # type: ignore[no-any-return]


@compiled
def _try_clocks(
    one: State, before: State, here: State, best: IndexArray, worth: _Worth, clocks: _Clocks, now_s: float, until_s: float,
    tried: _Tried,
) -> int:  # fmt: skip
    """Keep the best ways that were tried until now, and take them to the end of the next stretch with each pair of clocks.

    Few ways are kept, so that it is faster to run those once more than to copy all that were tried.

    Returns how many ways were tried, without those that the tables do not cover; -1 where a run has too few slots.
    """
    for to in range(len(best)):
        resume_way(before, tried.origin[best[to]], one)
        _go_on(one, clocks.idle, tried.clocks[best[to], 0], tried.clocks[best[to], 1], now_s)
        keep_way(one, 0, here, to)
    found = 0
    for origin in range(len(best)):
        numbers, instance = here.numbers[origin], here.instances[origin]
        pairs, score = clocks.pairs[min(instance.running, len(clocks.pairs) - 1)], np.nan
        tries = len(pairs)
        if instance.waiting_tokens == instance.step_tokens and (
            numbers.next == numbers.requests or one.arrival_s[numbers.next] > until_s
        ):
            tries = DECODE_CLOCKS
        for pair in range(tries):
            if pairs[pair, 0] < 0:
                continue
            resume_way(here, origin, one)
            why = _go_on(one, clocks.idle, pairs[pair, 0], pairs[pair, 1], until_s)
            if why == SLOTS:
                return -1
            if why == OUTSIDE:
                continue
            tried.spent_j[found], tried.left[found] = _spent(one.numbers[0]), one.numbers[0].left
            last, score = score, _score(one, worth, until_s)
            if score == last:  # these clocks made no difference
                continue
            tried.origin[found], tried.score[found] = origin, score
            tried.clocks[found, 0], tried.clocks[found, 1] = pairs[pair, 0], pairs[pair, 1]
            found += 1
    return found


@inside
def _go_on(one: State, idle: int, decode: int, prefill: int, until_s: float) -> int:
    """Take a run to the end of a stretch, where its clock is looked up again; why it stopped."""
    prompts = len(one.rules) - BACKLOGS
    for at in range(len(one.rules)):
        one.rules[at] = decode if at < prompts else prefill
    one.rules[0] = idle
    why = run_until(one, until_s)
    cut(one, 0, until_s)
    return why


@inside
def _score(one: State, worth: _Worth, until_s: float) -> float:
    """Energy until then, with a price on what was missed, on what will be as it seems, and on what is still to be done.

    The step under way is finished first, as what it makes late is certain: its prompts are prefilled, and of its energy and
    its decoded tokens the share before ``until_s`` counts.
    """
    numbers, instance = one.numbers[0], one.instances[0]
    spent_j, tokens, begin_s = _spent(numbers), instance.tokens_left - instance.waiting_tokens, instance.now_s
    run_until(one, np.nextafter(instance.end_s, np.inf))
    ahead = (instance.now_s - until_s) / (instance.now_s - begin_s) if instance.now_s > until_s else 0.0
    spent_j = ahead * spent_j + (1 - ahead) * _spent(numbers)
    tokens = ahead * tokens + (1 - ahead) * (instance.tokens_left - instance.waiting_tokens)
    missed = 0.0
    for kind in range(len(one.kinds)):
        missed += one.kinds[kind].missed
    for place in range(instance.running):
        request = one.slots[one.ends[place] & LOW]
        late, allowed = request.late + instance.late - request.late_before, numbers.late_share * (request.output - 1)
        if late > allowed or request.first_s - request.arrival_s > ttft_s_of(one, request):
            missed += 1.0
        else:
            missed += 0.3 * late / (allowed + 1.0)
    first_s = instance.now_s
    for first in (instance.first_prefilling, instance.head):
        slot = first
        while slot >= 0:
            request = one.slots[slot]
            first_s += (request.to_prefill - request.prefilled) * worth.prompt_token_s
            if request.made == 0 and first_s - request.arrival_s > ttft_s_of(one, request):
                missed += 1.0
            slot = request.after
    token_j = worth.token_j[min(instance.requests, len(worth.token_j) - 1)]
    return float(spent_j + worth.miss_j * missed + token_j * tokens + worth.prompt_token_j * instance.waiting_tokens)
