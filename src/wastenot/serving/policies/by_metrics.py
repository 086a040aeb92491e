"""The clock of least power that carries the load which an engine's metrics show: what ``wastenot serve control`` runs.

It sees no request, only what a server says of itself from time to time (:class:`ServerReading`). Two readings tell it the
load (``recent_readings.py``); the profile says which clock carries that at least power, by batch (``cluster/seen_load.py``);
measured latencies raise the clock where they miss the deadlines (``feedback.py``). A higher clock is asked for at once, a
lower one after three readings in a row that want it.

    a server       readings ──▶ hear ──▶ setting ──▶ clocks of its GPUs
    a simulator    view ──▶ choose, each period ──▶ its reading ──▶ hear ──▶ setting
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from wastenot.serving.bench.server_reading import ServerReading
from wastenot.serving.cluster.seen_load import SeenLoad, bound_s, rule_of
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.feedback import JUDGED_OVER_S, Feedback
from wastenot.serving.policies.recent_readings import Recent
from wastenot.serving.simulation.policy import Choice, View

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
    name: str = "by metrics"
    recent: Recent = field(default_factory=Recent)
    load: SeenLoad | None = None
    feedback: Feedback = field(default_factory=Feedback)
    _engine: Engine = field(init=False, repr=False)
    _deadlines: Deadlines = field(init=False, repr=False)
    _wanted: deque[int] = field(default_factory=lambda: deque(maxlen=_LOWER_AFTER), repr=False)
    _setting: int = field(default=0, init=False, repr=False)
    _due_s: float = field(default=-math.inf, init=False, repr=False)

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """Forget what was heard; begins at the greatest clock."""
        self._engine, self._deadlines = engine, deadlines
        self.recent, self.load, self._due_s = Recent(), None, -math.inf
        self.restart()
        self._setting = len(engine.tables.settings) - 1
        return self._setting

    def restart(self) -> None:
        """Forget what was chosen and measured at it: the clocks were left to the driver."""
        self.feedback.restart()
        self._wanted.clear()

    def choose(self, view: View) -> Choice:
        """As if the simulated engine were a server whose metrics are read once each period."""
        if view.now_s >= self._due_s:
            assert view.reading is not None, "a simulated engine says what its metrics are"
            self._due_s = view.now_s + self.period_s
            if not self.hear(view.now_s, view.reading()) and len(self.recent.readings) >= LEAST_READINGS:
                self._setting = self.decide()
        return Choice(self._setting, self._due_s)

    def hear(self, at_s: float, reading: ServerReading) -> bool:
        """Take in a reading; whether the server has begun anew, so that all before is forgotten."""
        return self.recent.add(at_s, reading)

    def decide(self) -> int:
        """The setting that follows from what was heard."""
        at_s, reading = self.recent.readings[-1]
        engine, deadlines, top = self._engine, self._deadlines, len(self._engine.tables.settings) - 1
        self.load = self.recent.load(engine)
        waiting = reading.waiting / reading.engines
        rule = rule_of(self.load, engine, deadlines, waiting=waiting, headroom=self.headroom)
        ttft_s = deadlines.ttft_s[-1] if self.load is None else bound_s(deadlines, self.load.long_prompt_tokens)
        self.feedback.see(at_s, reading, self.recent.since(JUDGED_OVER_S), deadlines, ttft_s, top)
        chosen = int(rule.by_batch[min(round(reading.running), len(rule.by_batch) - 1)])
        if waiting > 0.0:
            chosen = max(chosen, rule.prompts)
        self._wanted.append(min(chosen + self.feedback.steps, top))
        return max(self._wanted)
