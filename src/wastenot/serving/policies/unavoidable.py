"""First tokens that are too late at the greatest clock, too, even if the engine did nothing else: no policy is to blame.

Beside the engine, its prompts are prefilled once more, by projection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.costs import StepCosts
from wastenot.serving.simulation.policy import View


@dataclass(slots=True)
class _Prompt:
    arrival_s: float
    until_s: float
    left: float
    past: float = 0.0


@dataclass(slots=True)
class Unavoidable:
    """Counts them as requests come.

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
        self._prefill(view.now_s)

    def _prefill(self, now_s: float) -> None:
        """The steps that begin until now."""
        while self._queue:
            begin_s = max(self._free_s, self._queue[0].arrival_s)
            if begin_s > now_s:
                return
            room, tokens, attention, done = float(self.engine.most_step_tokens), 0.0, 0.0, 0
            for prompt in self._queue:
                whole = not self.engine.chunked
                if prompt.arrival_s > begin_s or room <= 0 or (whole and tokens and prompt.left > room):
                    break
                chunk = prompt.left if whole else min(prompt.left, room)
                attention += chunk * (prompt.past + chunk / 2)
                prompt.left, prompt.past = prompt.left - chunk, prompt.past + chunk
                tokens, room, done = tokens + chunk, room - chunk, done + (prompt.left <= 0)
            step_s = self.costs.prefill(tokens, max(attention / tokens - tokens / 2, 0.0))[0][-1]
            self._free_s = begin_s + float(step_s) + self.engine.overhead_s
            for _ in range(done):
                self.count += self._free_s > self._queue.popleft().until_s
