"""Deadlines missed so far, and what another one costs."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.policies.load import Load
from wastenot.serving.simulation.policy import View

LEAST_RISKED, MOST_RISKED = 8.0, 60.0
"""Energies of a request that a missed deadline costs, at first and in the end. A clock raised for a queue saves a miss for 1
to 20 of them, one that is always high for 40 and more: those are worth it never."""
SPARED, EXHAUSTED = 0.3, 0.8
"""Of the deadlines that may be missed: from the first on the price rises, up to the second. By hand, on seeds that shape
(``benchmarks/bench_serving_attack.py``); three times the prices changed attainment by 0.13 points at most."""
ENOUGH = 500.0
"""Requests before which a share of misses says little: of 99 %, five of them may miss."""

Key = tuple[float, float]
"""When a request came, and when it had its first token."""


@dataclass(slots=True)
class Misses:
    """An account of the deadlines that were missed.

    Attributes:
        deadlines: of the requests.
        begun: requests that have had their first token.
        missed: of them, those whose first token came too late, or too many of whose later ones did once they are done.
        left: late tokens that each running request may still have; below 0 for one that has missed its deadlines.
    """

    deadlines: Deadlines
    begun: float = 0.0
    missed: float = 0.0
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

    def used(self) -> float:
        """Deadlines missed, as a share of those that may be."""
        return (self.missed + self._spoilt) / max((1 - self.deadlines.share) * max(self.begun, ENOUGH), 1e-9)

    def price_j(self, request_j: float) -> float:
        """Of another one, given what a request costs: it rises as the share that may be missed is used up."""
        risked = np.interp(self.used(), (SPARED, EXHAUSTED), np.log((LEAST_RISKED, MOST_RISKED)))
        return request_j * math.exp(float(risked))
