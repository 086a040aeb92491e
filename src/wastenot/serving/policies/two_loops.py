"""GreenLLM's policy: prompts by their queue, decoding by two loops, a coarse one on tokens per second and a fine one.

    prompts wait      the clock of least energy at which the queue is through within its deadlines
    decoding          every 200 ms: the clock that the profile has for the tokens made per second, once twice the same
                      every  20 ms: a step up or down from there, by the 95th percentile of the time between tokens

After GreenLLM (arXiv 2508.16449), where prompts and decoding have GPUs of their own and prompts queue by length. In one
engine that does both, the greater of the two clocks is asked for while prompts wait, and prompts are taken as they come.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts
from wastenot.serving.simulation.policy import Choice, View

_BUCKET = 0.03  # relative width of what the profile is looked up by


@dataclass(slots=True)
class TwoLoops:
    """A clock for the queue of prompts, and two loops for decoding.

    Attributes:
        coarse_s: period of the loop on tokens per second.
        fine_s: period of the loop on the time between tokens.
        confirmed: the coarse loop follows once it has seen the same this many times (hysteresis).
        band: steps that the fine loop may be away from the coarse one's clock.
        low: of the bound between tokens, below which the fine loop takes a step down.
        high: of the bound, above which it takes a step up.
        watched_s: over which the percentile is taken.
        floor: the lowest setting that is asked for.
    """

    coarse_s: float = 0.2
    fine_s: float = 0.02
    confirmed: int = 2
    band: int = 1
    low: float = 0.65
    high: float = 0.95
    watched_s: float = 1.0
    floor: int = 0
    name: str = "GreenLLM"
    _engine: Engine = field(init=False)
    _costs: StepCosts = field(init=False)
    _deadlines: Deadlines = field(init=False)
    _base: int = field(init=False)
    _offset: int = field(init=False)
    _seen: tuple[int, int] = field(init=False)  # what the coarse loop would have, how many times in a row
    _coarse_due_s: float = field(init=False)
    _fine_due_s: float = field(init=False)
    _tokens: float = field(init=False)  # since the coarse loop last looked
    _since_s: float = field(init=False)
    _last: tuple[int, float, int] = field(init=False)  # steps, time and batch when last asked
    _gaps: deque[tuple[float, float, float]] = field(init=False)  # when, how long, of how many tokens
    _table: dict[tuple[int, int], int] = field(init=False)  # settings by tokens per second and context, both in buckets

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """The profile that the coarse loop looks tokens per second up in."""
        if not 0 < self.low < self.high or min(self.coarse_s, self.fine_s, self.watched_s) <= 0:
            raise BadInputError("`low` must be below `high`, and periods longer than 0")
        self._engine, self._deadlines, self._costs = engine, deadlines, StepCosts(engine.tables)
        self._base, self._offset, self._seen = 0, 0, (0, 0)
        self._coarse_due_s = self._fine_due_s = 0.0
        self._tokens, self._since_s, self._last, self._gaps, self._table = 0.0, 0.0, (0, 0.0, 0), deque(), {}
        return self.floor

    def choose(self, view: View) -> Choice:
        """The clock of the loops that are due, or of the queue where that is greater."""
        self._watch(view)
        batch = len(view.running_left)
        if batch and view.now_s >= self._coarse_due_s:
            self._coarse(view)
        if batch and view.now_s >= self._fine_due_s:
            self._fine(view.now_s)
        setting = min(max(self._base + self._offset, 0), self._greatest)
        if len(view.waiting_tokens):
            setting = max(setting, self._for_prompts(view)) if batch else self._for_prompts(view)
        return Choice(max(setting, self.floor), min(self._coarse_due_s, self._fine_due_s) if batch else math.inf)

    @property
    def _greatest(self) -> int:
        return len(self._engine.tables.settings) - 1

    def _watch(self, view: View) -> None:
        """Tokens made and the times between them since it was last asked."""
        steps, at_s, batch = self._last
        done = view.steps - steps
        if done and batch:
            self._tokens += done * batch
            self._gaps.append((view.now_s, (view.now_s - at_s) / done, float(done * batch)))
        while self._gaps and self._gaps[0][0] < view.now_s - self.watched_s:
            self._gaps.popleft()
        self._last = (view.steps, view.now_s, len(view.running_left))

    def _coarse(self, view: View) -> None:
        """Tokens per second to the clock of least energy that the profile has for them."""
        per_s = self._tokens / max(view.now_s - self._since_s, 1e-9)
        wanted = self._looked_up(per_s, float(view.running_context.mean()))
        self._seen = (wanted, self._seen[1] + 1 if wanted == self._seen[0] else 1)
        if self._seen[1] >= self.confirmed and wanted != self._base:
            self._base, self._offset = wanted, 0
        self._tokens, self._since_s, self._coarse_due_s = 0.0, view.now_s, view.now_s + self.coarse_s

    def _looked_up(self, per_s: float, context: float) -> int:
        """The setting that the profile has for a bucket of tokens per second and one of contexts."""
        bucket = (round(math.log(max(per_s, 1e-3)) / _BUCKET), round(math.log(max(context, 1.0)) / _BUCKET))
        if bucket not in self._table:
            self._table[bucket] = self._profiled(math.exp(bucket[0] * _BUCKET), math.exp(bucket[1] * _BUCKET))
        return self._table[bucket]

    def _profiled(self, per_s: float, context: float) -> int:
        """The setting of least energy per token that reaches a rate of tokens within the bound between tokens."""
        tables = self._engine.tables
        times, energies = self._costs.decode(tables.batches, np.full(len(tables.batches), context))
        best, best_j = self._greatest, math.inf
        for setting, (time_s, energy_j) in enumerate(zip(times, energies, strict=True)):
            rate = tables.batches / time_s
            needed = float(np.interp(per_s, rate, tables.batches))  # sequences that make so many tokens
            if per_s > rate[-1] or np.interp(needed, tables.batches, time_s) > self.high * self._deadlines.tbt_s:
                continue
            per_token_j = float(np.interp(needed, tables.batches, energy_j)) / needed
            if per_token_j < best_j:
                best, best_j = setting, per_token_j
        return best

    def _fine(self, now_s: float) -> None:
        """A step up or down by the 95th percentile of the time between tokens."""
        self._fine_due_s = now_s + self.fine_s
        if not self._gaps:
            return
        gaps = np.array(self._gaps)
        order = np.argsort(gaps[:, 1])
        within = np.cumsum(gaps[order, 2])
        p95 = float(gaps[order[int(np.searchsorted(within, 0.95 * within[-1]))], 1])
        if p95 > self.high * self._deadlines.tbt_s:
            self._offset = min(self._offset + 1, self.band)
        elif p95 < self.low * self._deadlines.tbt_s:
            self._offset = max(self._offset - 1, -self.band)

    def _for_prompts(self, view: View) -> int:
        """The setting of least energy at which each waiting prompt meets its deadline, in the order in which they wait."""
        step = float(self._engine.most_step_tokens)
        due_s = view.waiting_arrival_s + self._deadlines.ttft_of(view.waiting_prompt.astype(np.intp)) - view.now_s
        behind = np.cumsum(view.waiting_tokens)
        steps, rest = np.divmod(behind, step)
        whole_s, whole_j = self._costs.prefill(min(step, behind[-1]), 0.0)
        rest_s, rest_j = self._costs.prefill(rest, np.zeros(len(rest)))
        lasts_s = steps * whole_s[:, None] + np.where(rest > 0, rest_s, 0.0)
        energy_j = steps[-1] * whole_j + (rest_j[:, -1] if rest[-1] else 0.0)
        in_time = (lasts_s <= due_s).all(axis=1)
        return int(np.where(in_time, energy_j, np.inf).argmin()) if in_time.any() else self._greatest
