"""Our policy: the clock that costs least at the prices of the moment, missed deadlines included.

What a request more in the batch costs from then on comes from the engine's own frontier and the load seen so far: the batch
is a birth-death chain that the clock steers, solved again as the load changes (``chain.py``). A missed deadline has a price,
too, which rises as the share that may be missed is used up (``misses.py``). At these prices:

    every 5 s      rate, prompts and answers seen lately ──► chain, risks ──► prices      (`renewed`)
    each look      no prompt waits:  watts of each clock with this batch                   (`quiet_w`)
                   prompts wait:     joules of each clock until none waits, as a power     (`with_queue`, `of_projection`)
                   ──► the cheapest clock that is not below what a growing batch needs     (`floor`)

A look is at each step while prompts wait, else when a request came, began to decode or went, or a second later.

- While no prompt waits, each clock costs its power, less what the requests it answers in a second are worth, plus what the
  next prompt may spoil that comes upon it (``risks.py``): a clock takes ``switch_s`` to change, so the first steps of a
  prompt run at the one it meets. How much a late token matters depends on how many each running request may still have.
- While prompts wait, the engine's next steps are known: each clock is projected, from the moment it would be in effect,
  until all prompts are prefilled, and costs its energy and the deadlines missed on the way, of first and of later tokens.
- While the batch grows towards what the engine holds and the lowest clock answers fewer requests than come, low clocks are
  left out: once full, it keeps prompts waiting long after a burst. The price of a miss rises slowly, as a raised clock
  saves few of those that a burst brings. While nearly as many are missed as may be, the latest requests are simulated at
  each clock, and those are left out that would have missed more of them than the maximum clock.

Where prompts are prefilled whole, in steps of their own, prompts that come while others are prefilled prolong the wait of
those that decode more than is projected, and about one request in fifty may miss its deadlines.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaincc, gammaln

from wastenot.core.arrays import FloatArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.step_costs import StepCosts
from wastenot.serving.policies.chain import ChainPrices, batches_of, mean_context, prices_of_chain
from wastenot.serving.policies.load import Load
from wastenot.serving.policies.misses import Misses
from wastenot.serving.policies.risks import WITHIN, Risks
from wastenot.serving.simulation.policy import Choice, Fixed, View
from wastenot.serving.simulation.simulate import simulate

# Chosen by hand while the policy was tried on the first ten minutes of Azure's trace of November 2023; how results depend on
# each was not recorded. `docs/judged-serving.md` judges on the other fifty minutes.

RENEW_S = 5.0
"""After which prices are computed anew: short beside the minute over which the rate of arrivals is averaged
(``load.py``)."""
FIRST_REQUESTS = 5
"""Requests that are served at the maximum clock, while the load is not known. The relative error of a rate from n arrivals
is 1 / √n, here not half; prices are renewed soon, and at the maximum clock each request costs a quarter more."""
MOST_STEPS = 64
"""That are projected; a longer queue is prefilled at the maximum clock. It bounds the time of a decision, as each step is a
pass over all clocks. 64 full steps of about 50 ms (8 billion parameters on an H200, 2,048 tokens) are 3.2 s, more than any
prompt may wait for its first token by default: the last of so long a queue are late at any clock."""
GROWTH_S = 10.0
"""Over which the batch is averaged: the average of one that grows steadily lags so far behind it."""
CROWDED = (0.75, 0.95)
"""Of the requests that an engine can have in its batch, as there are after twice ``GROWTH_S`` if it grows on: from the first
on low clocks are left out, at the second all but the greatest. On a ramp (seed 1) 97 to 98 % of the requests kept their
deadlines from 0.95 on, or where all clocks that answer as many as come were left; so 99.4 %."""
NEARLY = 0.95
"""Of the same: the batch with which a clock is to answer as many as come, as a full one has no room for chance."""
NEARLY_USED = 0.85
"""Of the deadlines that may be missed: beyond, clocks are left out that would have missed more of the latest requests than
the maximum clock (``find_safe``)."""
MORE = 1.1
"""Times the requests begun, after which such clocks are looked for again: a tenth of them says little more. By hand."""
ENOUGH = 0.002
"""Of the mean cost of a second: a clock that costs so little less is not switched to."""


@dataclass(slots=True)
class Price:
    """Chooses the clock that costs least at the prices of the moment.

    Attributes:
        name: for tables and pictures.
    """

    name: str = "price policy"
    _steering: _Steering | None = field(default=None, init=False, repr=False)

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """Forget earlier runs; begins at the maximum clock."""
        self._steering = _Steering(engine, deadlines)
        return self._steering.greatest

    def choose(self, view: View) -> Choice:
        """The clock that costs least now."""
        assert self._steering is not None, "call `begin` before a run"
        return self._steering.choose(view)


@dataclass(frozen=True, slots=True, eq=False)
class _Prices:
    """What holds until prices are computed again."""

    risks: Risks  # of arrivals
    chain: ChainPrices  # of the batch
    output: float  # tokens of an answer, on average
    decoding: float  # share of the time that is left for decoding
    request_j: float  # mean energy of a request
    most: float  # requests that fit into the batch
    first_tokens: FloatArray  # deadlines that an arrival puts at risk; shape (settings, states)
    late: dict[tuple[int, int], FloatArray]  # what an arrival brings by batch and context, as far as asked for
    busy: FloatArray  # share of the time that prompts take, by setting; shape (settings,)
    shared_s: FloatArray  # that a prompt waits for others in its steps, by setting; shape (settings,)
    whole_s: FloatArray  # time to prefill prompts like those seen lately at the maximum clock; shape (prompts,)
    limit_s: FloatArray  # bound on the time to the first token of these; shape (prompts,)
    full_per_s: FloatArray  # requests that a batch nearly full answers in a second; shape (settings,)

    def worth(self, batch: float) -> float:
        """What it is worth that one request of a batch is done."""
        return float(self.chain.request[min(int(batch), len(self.chain.request)) - 1]) if batch >= 1 else 0.0

    def arrival(self, batch: float, context: float) -> FloatArray:
        """Late steps that an arrival brings, by setting.

        Looked up once for batches of the same first four binary digits (at most 1/8 apart) and contexts of the same 128
        tokens.
        """
        near = 2 ** max(math.floor(math.log2(batch)) - 3, 0)
        key = int(batch // near * near), int(context / 128)
        if key not in self.late:
            self.late[key] = self.risks.arrival(np.array([float(key[0])]), context)[:, 0]
        return self.late[key]


class _Steering:
    """One run of the policy."""

    def __init__(self, engine: Engine, deadlines: Deadlines) -> None:
        self.engine, self.deadlines = engine, deadlines
        self.greatest = len(engine.tables.settings) - 1
        self.costs, self.load, self.misses = StepCosts(engine.tables), Load(), Misses(deadlines)
        self.renew_s, self.effective_s = -math.inf, -math.inf
        self.seen_s, self.sum_batch, self.sum_one = 0.0, 0.0, 0.0  # the batch averaged, and what was averaged of 1
        self.safe, self.safe_until = self.greatest, 0.0  # requests
        self.prices: _Prices | None = None

    def choose(self, view: View) -> Choice:
        self.load.see(view)
        self.misses.see(view, self.load)
        if self.misses.begun < FIRST_REQUESTS:
            return Choice(self.greatest, view.now_s if len(view.waiting_tokens) else view.now_s + 1.0)
        if self.prices is None or view.now_s >= self.renew_s:
            self.prices, self.renew_s = self.renewed(view.now_s), view.now_s + RENEW_S
        waits = len(view.waiting_tokens) > 0
        if waits:
            cost = self.with_queue(view, self.prices)
        else:
            batch = len(view.running_made)
            context = float(view.running_context.mean()) if batch else 0.0
            cost = self.quiet_w(view, self.prices, float(batch), context)[0]
        cost[: self.floor(view, self.prices)] = np.inf
        best = int(np.argmin(cost))
        if cost[view.asked] <= cost[best] + ENOUGH * abs(self.prices.chain.cost_rate):
            best = view.asked
        if best != view.asked:
            self.effective_s = view.now_s + (self.engine.switch_s if best != view.setting else 0.0)
        return Choice(best, view.now_s if waits else view.now_s + 1.0)

    def renewed(self, now_s: float) -> _Prices:
        """Prices at the load seen so far.

        The chain's state is the batch (:func:`batches_of <wastenot.serving.policies.chain.batches_of>`). A second costs

            power + λ · price of a miss · (first tokens + requests spoilt that one arrival brings) + a penalty for slow steps

        The penalty, the highest power and ten misses for each arrival, keeps the chain from settings whose plain decode
        steps break the time between tokens.
        """
        engine, load, rate = self.engine, self.load, self.load.rate(now_s)
        prompts, outputs = _some(load.prompts, 48, 1024.0), np.maximum(_some(load.outputs, 32, 128.0) * load.ratio, 1.0)
        output, context = float(outputs.mean()), mean_context(prompts, outputs)
        risks = Risks(engine, self.deadlines, self.costs, prompts, rate, context)
        whole_s = risks.whole_s()
        busy = risks.busy()
        # At 1 nothing would ever leave, and the chain could not be solved; 0.9 by hand.
        decoding = 1 - min(rate * float(whole_s.mean()), 0.9)
        batch, time_s, energy_j, leave = batches_of(engine, self.costs, context, output, decoding)
        states = len(batch)
        power_w = np.where(batch > 0, energy_j / time_s, engine.tables.idle_power_w[:, None])
        typical = min(8, states - 1)  # where energy per token is read off; by hand, and only the price of a miss uses it
        request_j = float(risks.whole_j().mean() + output * energy_j[self.greatest, typical] / typical)
        price_j = self.misses.price_j(request_j)
        # Risks, slow to compute, are found at batches of 0, 1, 2, 4 … 1,024 and interpolated linearly.
        knots = np.unique(np.minimum([0.0, *2.0 ** np.arange(11)], states - 1.0))
        first = np.stack([np.interp(batch, knots, row) for row in risks.first_tokens(knots)])
        spoilt = self.spoilt(risks.arrival(knots), outputs, time_s[:, knots.astype(np.intp)], rate) * (knots > 0)
        misses = first + np.stack([np.interp(batch, knots, row) for row in spoilt])
        slow = (time_s > WITHIN * self.deadlines.tbt_s) & (batch > 0)
        most = min(engine.most_running, engine.cache_blocks * engine.block_tokens / context)
        cost_w = power_w + rate * price_j * misses + slow * (10 * rate * price_j + power_w.max())
        return _Prices(
            risks, prices_of_chain(rate, leave, cost_w), output, decoding, request_j, most, first, {}, busy,
            risks.shared_s(), whole_s, self.deadlines.ttft_of(prompts.astype(np.intp)), self.full_per_s(rate, most, context),
        )  # fmt: skip

    def full_per_s(self, rate: float, most: float, context: float) -> FloatArray:
        """Requests that a batch nearly full answers in a second beside the prompts that come; shape (settings,)."""
        engine, load, batch = self.engine, self.load, NEARLY * most
        prompt, output = float(np.mean(load.prompts)), max(float(np.mean(load.outputs)) * load.ratio, 1.0)
        tokens, beside = min(prompt, float(engine.most_step_tokens)), batch if engine.chunked else 0.0
        decode_s = self.costs.decode(batch, context)[0]
        adds_s = self.costs.mixed_s(tokens, 0.0, beside, context) - (decode_s if engine.chunked else 0.0)
        left = 1 - np.minimum(rate * adds_s * prompt / tokens, 0.95)  # of the time for decoding; 0.95 by hand
        return np.asarray(batch / (output * (decode_s + engine.overhead_s)) * left)

    def spoilt(self, late: FloatArray, outputs: FloatArray, step_s: FloatArray, rate: float) -> FloatArray:
        """Share of the requests that get more late tokens than they may have, at a clock kept for good.

        Late tokens of a request are Poisson with m = arrivals while it decodes × late steps of each; the regularised gamma
        function Q(k + 1, m) is the chance of at most k of them.
        """
        allowed = self.deadlines.late_allowed(outputs)
        expected = rate * late[..., None] * outputs * step_s[..., None]
        return np.asarray((1 - gammaincc(allowed + 1, np.maximum(expected, 1e-12))).mean(axis=-1))

    def spoilt_now(self, view: View, late: FloatArray, step_s: FloatArray) -> FloatArray:
        """Running requests that a late token spoils at each clock: all that will have used up theirs without it.

        One with k late tokens left is spoilt by this one if exactly k more come: a Poisson probability, e^−m m^k / k!.
        """
        expected = self.load.rate(view.now_s) * (late * step_s)[:, None] * view.running_left * self.load.ratio
        expected = np.maximum(expected, 1e-12)
        left = self.misses.left
        some = left.clip(0)
        return np.asarray((np.exp(some * np.log(expected) - expected - gammaln(some + 1)) * (left >= 0)).sum(axis=1))

    def find_safe(self) -> None:
        """The lowest clock that would have missed no more deadlines of the latest requests than the maximum clock.

        Each is simulated with them (milliseconds), as the misses of the maximum clock cannot be told from those of others.
        """
        requests = self.load.requests(self.engine.cache_blocks * self.engine.block_tokens)

        def kept(setting: int) -> float:
            return simulate(requests, self.engine, Fixed(setting), deadlines=self.deadlines).attainment(self.deadlines)

        self.safe, self.safe_until = self.greatest, MORE * self.misses.begun
        with suppress(OutsideProfileError):  # a lower clock's batch may be larger than the profile knows
            least = max(kept(self.greatest), 0.5)  # it is overloaded where it keeps fewer
            while self.safe and kept(self.safe - 1) >= least:
                self.safe -= 1

    def floor(self, view: View, prices: _Prices) -> int:
        """The lowest clock that is left: a safe one where nearly as many are missed as may be, else one that keeps up.

        A batch that is full admits a prompt only where an answer ends, and after a burst it stays full for minutes.
        """
        batch = len(view.running_made)
        kept = math.exp((self.seen_s - view.now_s) / GROWTH_S)
        self.sum_batch, self.sum_one = kept * self.sum_batch + (1 - kept) * batch, kept * self.sum_one + 1 - kept
        self.seen_s = view.now_s
        ahead = batch + 2 * max(batch - self.sum_batch / max(self.sum_one, 1e-9), 0.0)
        least = 0
        if self.misses.used() > NEARLY_USED:
            if self.misses.begun >= self.safe_until:
                self.find_safe()
            least = self.safe
        if prices.full_per_s[0] >= self.load.latest_per_s(view.now_s):
            return least
        return max(least, round(float(np.interp(ahead / prices.most, CROWDED, (0.0, 1.0))) * self.greatest))

    def quiet_w(self, view: View, prices: _Prices, batch: float, context: float) -> tuple[FloatArray, FloatArray]:
        """Watts of each clock with a batch and no prompt waiting: in all, and for all but deadlines.

        The first is the improvement step of the chain (``chain.py``) with the batch and the context that there are: power,
        less requests that leave in a second × worth of one, plus what the next prompt puts at risk: first and later tokens.
        """
        miss_w = prices.risks.rate_per_s * self.misses.price_j(prices.request_j)
        risk_w = miss_w * prices.first_tokens[:, min(int(batch), prices.first_tokens.shape[1] - 1)]
        if not batch:
            idle_w = self.engine.tables.idle_power_w
            return idle_w + risk_w, idle_w
        step_s, step_j = self.costs.decode(batch, context)
        step_s = step_s + self.engine.overhead_s
        late = prices.arrival(batch, context)
        late_w = miss_w * late * self.spoilt_now(view, late, step_s)
        slow = step_s > WITHIN * self.deadlines.tbt_s
        if self.deadlines.end_to_end_s is not None and len(view.running_made):
            left_s = view.running_arrival_s + self.deadlines.end_to_end_s - view.now_s
            lost = (step_s[:, None] * view.running_left * self.load.ratio * math.exp(self.load.spread) > left_s).sum(axis=1)
            slow |= lost > lost[self.greatest]
        slow[self.greatest] = False
        power_w = step_j / step_s
        energy_w = power_w - batch / (prices.output * step_s) * prices.decoding * prices.worth(batch)
        # 1e9 W: out of the question, yet finite, so that the maximum clock (never slow) is left where all others are.
        return energy_w + risk_w + late_w + slow * 1e9, energy_w

    def with_queue(self, view: View, prices: _Prices) -> FloatArray:
        """What each clock costs until no prompt waits, above what the time is worth otherwise; as a power.

        All clocks are projected side by side, one entry of each array for each; the batch and the prompts in a step are the
        same for all, only times differ:

            now     effective_s                                no prompt waits
             │ steps at the clock of now │ steps at the one asked for │
             ├──────┬──────┬──────┬──────┼────┬────┬────┬────┤        energy, first tokens past their deadlines (`missed`),
             0             chunks of prompts beside decoding          steps longer than the time between tokens (`late`)
        """
        engine, deadlines = self.engine, self.deadlines
        settings = np.arange(self.greatest + 1)
        effective_s = np.full(len(settings), view.now_s + engine.switch_s)
        effective_s[view.asked] = self.effective_s
        effective_s[view.setting] = -math.inf
        todo = view.waiting_tokens.tolist()
        past = (view.waiting_prompt - view.waiting_tokens).clip(0).tolist()
        bound_s = deadlines.ttft_of(view.waiting_prompt.astype(np.intp))
        limit_s = view.waiting_arrival_s + bound_s - 0.001  # a millisecond of margin; by hand
        batch, context = float(len(view.running_made)), float(view.running_context.sum())
        running, rate, bound = batch, prices.risks.rate_per_s, (WITHIN + 1) / 2 * deadlines.tbt_s - engine.overhead_s
        now_s, (before_s, energy_j, missed, late, decoded) = np.full(len(settings), view.now_s), np.zeros((5, len(settings)))
        start_s, head, steps = now_s, 0, 0
        while head < len(todo):
            steps += 1
            if steps > MOST_STEPS:
                return np.asarray(-1e9 * settings.astype(float))
            room, tokens, attention, begun = max(engine.most_step_tokens - batch, 1.0), 0.0, 0.0, []
            while head < len(todo) and room > 0:
                chunk = min(room, todo[head]) if engine.chunked else todo[head]
                if chunk > room and tokens:
                    break
                attention += chunk * (past[head] + chunk / 2)
                tokens, room = tokens + chunk, room - chunk
                past[head], todo[head] = past[head] + chunk, todo[head] - chunk
                if todo[head] > 0:
                    break
                begun.append(head)
                head += 1
            before, mean = attention / tokens - tokens / 2, context / batch if batch else 0.0
            beside = batch if engine.chunked else 0.0
            time_s, step_j = self.costs.mixed(tokens, before, beside, mean)
            use = np.where(now_s >= effective_s, settings, view.setting)
            tight = (time_s[use] > bound).astype(float)
            fuller, more_s = np.zeros(len(settings)), np.zeros(len(settings))
            if steps > 1 and room > 0 and head == len(todo):  # prompts that come meanwhile fill the step up
                full_s = self.costs.mixed_s(tokens + room, before, beside, mean)
                fuller, more_s = 1 - np.exp(-rate * before_s), (full_s - time_s)[use]
                tight = np.maximum(tight, fuller * (full_s[use] > bound))
            before_s = time_s[use] + engine.overhead_s
            now_s = now_s + before_s
            energy_j, late, decoded, context = energy_j + step_j[use], late + tight, decoded + beside, context + beside
            for index in begun:
                over = running + index + 1 - prices.most  # so many answers are to end before it is admitted
                at_s = now_s if over < 1 else np.maximum(now_s, view.now_s + over / prices.full_per_s)
                missed = missed + np.maximum(at_s > limit_s[index], fuller * (at_s + more_s > limit_s[index]))
                context += past[index]
            batch += len(begun)
        if not engine.chunked and running:  # those that decode wait for all of it, and a step
            waited_s = now_s - start_s + self.costs.decode(running, context / batch)[0]
            late = (waited_s > bound).astype(float)
        return self.of_projection(view, prices, now_s, energy_j, missed, late, decoded, running, batch, context, effective_s)

    def of_projection(
        self,
        view: View,
        prices: _Prices,
        end_s: FloatArray,
        energy_j: FloatArray,
        missed: FloatArray,
        late: FloatArray,
        decoded: FloatArray,
        running: float,
        batch: float,
        context: float,
        effective_s: FloatArray,
    ) -> FloatArray:
        """The cost of a projection until no prompt waits, and of the time that a clock stays on afterwards.

        Joules used − what the time and the tokens decoded meanwhile are worth + price × (deadlines missed + those of prompts
        that come and find the queue too long + requests spoilt), and what the clock costs more than the best one for at
        least the time of a switch after the queue is empty. Divided by the shortest projection, so that clocks compare like
        powers.
        """
        batch = max(batch, 1.0)
        lasts_s = end_s - view.now_s
        after_w, energy_w = self.quiet_w(view, prices, batch, context / batch)
        price_j = self.misses.price_j(prices.request_j)
        # More prompts come until the queue is empty: at utilisation ρ a backlog lasts 1 / (1 − ρ) as long (busy period of an
        # M/G/1 queue). The bounds of 0.9 and 5 keep it finite near saturation; by hand.
        grows = np.minimum(1 / (1 - np.minimum(prices.busy, 0.9)), 5.0)
        excess = max(running + len(view.waiting_tokens) - prices.most, 0.0)
        longer_s = (np.maximum(lasts_s, excess / prices.full_per_s) * grows)[:, None]
        behind_s = (longer_s + prices.shared_s[:, None] + prices.whole_s - prices.limit_s).clip(0)
        behind = prices.risks.rate_per_s * np.minimum(behind_s, longer_s).mean(axis=1)
        spoilt = self.spoilt_now(view, np.zeros(1), lasts_s[:1]) if running else np.zeros(1)  # without others: at any clock
        worth_j = energy_w[after_w.argmin()] * lasts_s + prices.worth(running) * decoded / prices.output
        stays_s = np.where(
            np.isfinite(effective_s), np.maximum(self.engine.switch_s, effective_s - end_s), self.engine.switch_s
        )
        cost_j = energy_j - worth_j + price_j * (missed + behind + late * spoilt) + (after_w - after_w.min()) * stays_s
        return np.asarray(cost_j / max(float(lasts_s.min()), 1e-6))


def _some(values: object, count: int, otherwise: float) -> FloatArray:
    """A few of the values seen lately, evenly spread."""
    array = np.array(values, dtype=float)
    return array[:: max(len(array) // count, 1)] if len(array) else np.array([otherwise])
