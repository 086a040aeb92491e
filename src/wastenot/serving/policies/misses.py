"""Deadlines missed so far, those that no clock could have kept, and what another one costs.

First tokens that are too late at the maximum clock, too, are nobody's to blame: beside the engine, its prompts are prefilled
once more, by projection, with as many decoding as would be there at that clock.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts
from wastenot.serving.policies.load import Load
from wastenot.serving.simulation.policy import View


@dataclass(slots=True)
class _Prompt:
    arrival_s: float
    until_s: float
    left: float
    past: float = 0.0


@dataclass(slots=True)
class Unavoidable:
    """Counts first tokens that are too late at the maximum clock, too, as requests come.

    Attributes:
        engine: that serves.
        deadlines: of the requests.
        costs: of its steps.
        count: so far.
    """

    engine: Engine
    deadlines: Deadlines
    costs: StepCosts
    count: int = 0
    _queue: deque[_Prompt] = field(default_factory=deque)
    _free_s: float = 0.0
    _last_s: float = -1.0

    def see(self, view: View) -> None:
        """Take in what has come, and prefill on until now."""
        new = np.flatnonzero(view.waiting_arrival_s > self._last_s)
        if len(new):
            prompts, came_s = view.waiting_prompt[new], view.waiting_arrival_s[new]
            until_s = came_s + self.deadlines.ttft_of(prompts.astype(np.intp))
            self._queue.extend(map(_Prompt, came_s.tolist(), until_s.tolist(), prompts.tolist()))
            self._last_s = float(came_s.max())
        batch, context = float(len(view.running_made)), 0.0
        if self.engine.chunked and batch and self._queue:
            context = float(view.running_context.mean())
            step_s = self.costs.decode(batch, context)[0] + self.engine.overhead_s
            batch *= float(step_s[-1] / step_s[view.setting])  # a faster engine has fewer requests in its batch
        else:
            batch = 0.0
        self._prefill(view.now_s, batch, context)

    def _prefill(self, now_s: float, batch: float, context: float) -> None:
        """The steps that begin until now, beside a batch that decodes."""
        while self._queue:
            begin_s = max(self._free_s, self._queue[0].arrival_s)
            if begin_s > now_s:
                return
            room, tokens, attention, done = max(self.engine.most_step_tokens - batch, 1.0), 0.0, 0.0, 0
            for prompt in self._queue:
                whole = not self.engine.chunked
                if prompt.arrival_s > begin_s or room <= 0 or (whole and tokens and prompt.left > room):
                    break
                chunk = prompt.left if whole else min(prompt.left, room)
                attention += chunk * (prompt.past + chunk / 2)
                prompt.left, prompt.past = prompt.left - chunk, prompt.past + chunk
                tokens, room, done = tokens + chunk, room - chunk, done + (prompt.left <= 0)
            step_s = self.costs.mixed_s(tokens, attention / tokens - tokens / 2, batch, context)[-1]
            self._free_s = begin_s + float(step_s) + self.engine.overhead_s
            for _ in range(done):
                self.count += self._free_s > self._queue.popleft().until_s


# Of the deadlines that may be missed, all but a reserve are meant to be: a quarter of them at first, half of them later. The
# price of a missed deadline rises with those that were missed, and holds them near those that are meant to be:
#
#     missed       none     meant     allowed    1.2 × allowed
#     price        0.1      5         270        270               energies of a request
#     floor        0        0         1.2        2                 1: only safe clocks, 2: the greatest
#
# All numbers by hand, as those of ``price.py``.

REQUESTS_RISKED = 5.0
"""Energies of a request that a missed deadline costs as long as as many are missed as are meant to be."""
STEEPNESS = 4.0
"""Of the price: e⁴, 55 times, from none missed to those meant, and again to all that may be."""
RESERVE = 1.5
"""Standard deviations of a count of all deadlines that may be missed (its root), which are kept for chance."""
LEAST_MEANT, MOST_MEANT = 0.25, 0.5
"""Of the deadlines that may be missed, those that are meant to be: the rest is kept for what is not foreseen."""
MOST_CAUTION = 0.4
"""Of a bound on the time to the first token that is kept free, once all were missed that may be."""
SPARED, EXHAUSTED, EXCEEDED = 0.7, 0.95, 1.2
"""Of the deadlines that may be missed: once more than the first were, low clocks are left out; at the second, all that are
not safe; at the last, all but the greatest. Prices are only as good as the projections behind them; this holds where those
are wrong."""
NEAR = (0.85, 0.98, 1.3)
"""Of the deadlines that may be missed, counting those that no clock could have kept: from the first on low clocks are left
out, at the second most of the safe ones, too. Beyond the last, what is asked is lost in any case."""
LEAST_ALLOWED = 0.05
"""Of the deadlines that may be missed, however many of them no clock could have kept: the rest is for the policy."""
ENOUGH = 300.0
"""Requests before which a share of misses says little: of 99 %, three of them may miss."""

Key = tuple[float, float]
"""When a request came, and when it had its first token."""


@dataclass(slots=True)
class Misses:
    """An account of the deadlines that were missed.

    Attributes:
        deadlines: of the requests.
        begun: requests that have had their first token.
        missed: of them, those whose first token came too late, or too many of whose later ones did once they are done.
        unavoidable: of those, the ones that no clock is to blame for.
        left: late tokens that each running request may still have; below 0 for one that has missed its deadlines.
    """

    deadlines: Deadlines
    begun: float = 0.0
    missed: float = 0.0
    unavoidable: float = 0.0
    left: FloatArray = field(default_factory=lambda: np.empty(0))
    _late_s: list[float] = field(default_factory=list)
    _first_s: float = -1.0
    _steps: int = 0
    _now_s: float = 0.0
    _token_s: float = 0.0
    _running: dict[Key, float] = field(default_factory=dict)
    _in_time: dict[Key, bool] = field(default_factory=dict)
    _waiting: tuple[FloatArray, FloatArray] = field(default_factory=lambda: (np.empty(0), np.empty(0)))
    _spoilt: float = 0.0

    def see(self, view: View, load: Load) -> None:
        """Take in what became of the steps since the last look.

        Late tokens are found where the policy is asked after each step, as ours asks to be while prompts wait. Whether they
        are too many is known for certain only once a request is done, since its length was a guess before.
        """
        steps = view.steps - self._steps
        last_s = float(view.running_last_s.min()) if len(view.running_made) else view.now_s
        if steps and self._running and last_s > self._token_s:
            # what they waited at the last look, for prompts prefilled in steps of their own, and a step
            gap_s = self._now_s - self._token_s + (view.now_s - self._now_s) / steps
            if gap_s > self.deadlines.tbt_s:
                self._late_s.append(self._token_s + 1e-9)
                del self._late_s[:-1000]
        keys = list(zip(view.running_arrival_s.tolist(), view.running_first_s.tolist(), strict=True))
        running = dict(zip(keys, view.running_made.tolist(), strict=True))
        for key in self._running.keys() - running.keys():
            tokens = self._running[key] + steps
            if self._in_time.pop(key, False):
                self.missed += self._had(key[1]) > float(self.deadlines.late_allowed(tokens))
        new = np.flatnonzero(view.running_first_s > self._first_s)
        if len(new):
            self._first_s = float(view.running_first_s.max())
            prompt = view.running_context[new] - view.running_made[new] + 1
            in_time = self._begin(view.running_first_s[new] - view.running_arrival_s[new], prompt)
            self._in_time.update({keys[index]: kept for index, kept in zip(new.tolist(), in_time.tolist(), strict=True)})
        there = {*view.waiting_arrival_s.tolist(), *view.running_arrival_s.tolist()}
        done = np.array([arrival_s not in there for arrival_s in self._waiting[0].tolist()], dtype=bool)
        if done.any():  # whose first token was their last
            self._begin(view.now_s - self._waiting[0][done], self._waiting[1][done])
        self._waiting = view.waiting_arrival_s.copy(), view.waiting_prompt.copy()
        self._running, self._steps, self._now_s, self._token_s = running, view.steps, view.now_s, last_s
        known = np.array([self._in_time.get(key, False) for key in keys], dtype=bool)
        self.left = self._left(view, load)
        self._spoilt = float((known & (self.left < 0)).sum()) if keys else 0.0

    def _begin(self, waited_s: FloatArray, prompt: FloatArray) -> BoolArray:
        """Count requests that have had their first token; whether each met its deadline."""
        in_time = np.asarray(waited_s <= self.deadlines.ttft_of(prompt.astype(np.intp)))
        self.begun += len(waited_s)
        self.missed += float((~in_time).sum())
        return in_time

    def _had(self, first_s: float) -> int:
        """Late tokens of a request that has run since its first one."""
        return len(self._late_s) - bisect.bisect_left(self._late_s, first_s)

    def _left(self, view: View, load: Load) -> FloatArray:
        had = len(self._late_s) - np.searchsorted(np.asarray(self._late_s), view.running_first_s)
        total = view.running_made + view.running_left * load.ratio * math.exp(-load.spread)
        return self.deadlines.late_allowed(total) - had

    def price_j(self, request_j: float) -> float:
        """Of another one, given what a request costs: it rises as the share that may be missed is used up."""
        return request_j * REQUESTS_RISKED * math.exp(STEEPNESS * self._used())

    def caution(self) -> float:
        """Part of the bounds on first tokens that is kept free: more, the more were missed than meant."""
        return MOST_CAUTION * max(self._used(), 0.0)

    def floor(self) -> float:
        """How far low clocks are left out: from 0, none, through 1, all that are not safe, to 2, all but the greatest."""
        lost, allowed = self._to_blame(), self._allowed(max(self.begun, ENOUGH))
        spent = lost / allowed if allowed > 0.0 else math.inf if lost > 0.0 else 0.0
        floor = float(np.interp(spent, (SPARED, EXHAUSTED, EXCEEDED), (0.0, 1.0, 2.0)))
        near = (self.missed + self._spoilt) / max((1 - self.deadlines.share) * max(self.begun, ENOUGH), 1e-9)
        return max(floor, float(np.interp(near, NEAR[:2], (0.0, 1.5)))) if near <= NEAR[2] else floor

    def _to_blame(self) -> float:
        """Deadlines missed that need not have been."""
        return max(self.missed + self._spoilt - self.unavoidable, 0.0)

    def _allowed(self, begun: float) -> float:
        """Deadlines of a number of requests that may be missed, less those that are in any case."""
        allowed = (1 - self.deadlines.share) * begun
        return max(allowed - self.unavoidable, LEAST_ALLOWED * allowed)

    def _used(self) -> float:
        """Of the deadlines that may be missed: -1 with none missed, 0 with those meant to be, 1 with all, and no more."""
        allowed = self._allowed(self.begun)
        meant = min(max(allowed - RESERVE * math.sqrt(allowed), LEAST_MEANT * allowed), MOST_MEANT * allowed)
        more = self._to_blame() + 0.5 - meant  # with half of the next one: where none is left, it is not to be the first
        return min(more / max(meant if more < 0 else allowed - meant, 1.0), 1.0)
