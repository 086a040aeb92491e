"""What a policy learns of the load as it sees requests come and go."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import View

MEMORY_S = 60.0
"""Over which the rate of arrivals is averaged. Of λ requests/s, such an average that forgets exponentially has a relative
error of 1 / √(2 λ 60 s): 5 % at 4 a second."""
SAMPLE = 256
"""Requests whose lengths are averaged: the error of their mean is a sixteenth of their spread."""
LATEST = 128
"""Requests whose rate is the latest."""
REMEMBERED = 2000
"""Requests of which all is kept: at a share of 99 %, twenty of them may miss their deadlines."""
FORGET = 0.995
"""Of how answers' lengths compared with predictions, for each further answer: the last 200 count."""
AS_PREDICTED, TYPICAL_TOKENS = 4.0, 100.0
"""Answers that came as predicted before any was seen, and their tokens: by hand, so that the first few do not decide."""


@dataclass(slots=True)
class Load:
    """Arrivals, prompts and answers so far.

    Attributes:
        prompts: tokens of the latest prompts.
        outputs: predicted tokens of the latest requests' answers.
        ratio: actual over predicted lengths of answers, on average.
        spread: of the logarithm of that ratio.
    """

    prompts: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLE))
    outputs: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLE))
    ratio: float = 1.0
    spread: float = 0.0
    _came: deque[list[float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _count: float = 0.0
    _since_s: float = 0.0
    _last_s: float = -1.0
    _running: dict[tuple[float, float], tuple[float, float]] = field(default_factory=dict)
    _steps: int = 0
    _log_sum: float = 0.0
    _log_square: float = 0.0
    _made_sum: float = 0.0
    _predicted_sum: float = 0.0
    _gone: float = 0.0

    def see(self, view: View) -> int:
        """Take in what has changed since the last look; returns how many requests have come."""
        arrivals = view.waiting_arrival_s
        new = arrivals > self._last_s
        come = int(new.sum())
        if come:
            self._decay(view.now_s)
            self._count += come
            self._last_s = float(arrivals.max())
            rows = np.column_stack([arrivals, view.waiting_prompt, view.waiting_output])[new]
            self._came.extend(rows[rows[:, 0].argsort(kind="stable")].tolist())
            self.prompts.extend(view.waiting_prompt[new].tolist())
            self.outputs.extend(view.waiting_output[new].tolist())
        self._see_running(view)
        return come

    def rate(self, now_s: float) -> float:
        """Arrivals in a second: an average that forgets, above 0."""
        self._decay(now_s)
        known_s = MEMORY_S * (1 - math.exp(-max(now_s, 1e-3) / MEMORY_S))
        return max(self._count, 0.1) / max(known_s, 5.0)

    def latest_per_s(self, now_s: float) -> float:
        """Arrivals in a second among the latest: soon right where the rate rises, and rough."""
        count = min(len(self._came), LATEST)
        return count / max(now_s - self._came[-count][0], 1e-3) if count else 0.0

    def requests(self, most_tokens: int) -> Requests:
        """The latest, each with the answer that it is to have, and at most ``most_tokens`` in all."""
        come_s, prompt, output = np.array(self._came).T
        tokens = np.rint(output * self.ratio).clip(1, most_tokens - prompt)
        return Requests(come_s - come_s[0], prompt.astype(np.intp), tokens.astype(np.intp))

    def _decay(self, now_s: float) -> None:
        self._count *= math.exp(-(now_s - self._since_s) / MEMORY_S)
        self._since_s = now_s

    def _see_running(self, view: View) -> None:
        """Compare the answers that were completed since the last look with what was predicted of them."""
        before, waiting = self._running, None
        now = {}
        for arrival, first, made, left in zip(
            view.running_arrival_s.tolist(),
            view.running_first_s.tolist(),
            view.running_made.tolist(),
            view.running_left.tolist(),
            strict=True,
        ):
            key = (arrival, first)
            seen = before.pop(key, None)
            now[key] = (made, made + left if seen is None else seen[1])
        for (arrival, _), (made, predicted) in before.items():
            waiting = set(view.waiting_arrival_s.tolist()) if waiting is None else waiting
            if arrival not in waiting:  # a preempted one is not complete
                self._complete(made + view.steps - self._steps, predicted)
        self._running, self._steps = now, view.steps

    def _complete(self, made: float, predicted: float) -> None:
        log = math.log(made / predicted)
        self._gone = FORGET * self._gone + 1
        self._log_sum = FORGET * self._log_sum + log
        self._log_square = FORGET * self._log_square + log * log
        self._made_sum = FORGET * self._made_sum + made
        self._predicted_sum = FORGET * self._predicted_sum + predicted
        count, tokens = self._gone + AS_PREDICTED, AS_PREDICTED * TYPICAL_TOKENS
        mean = self._log_sum / count
        self.spread = math.sqrt(max(self._log_square / count - mean * mean, 0.0))
        self.ratio = (self._made_sum + tokens) / (self._predicted_sum + tokens)
