"""throttLL'eM's policy: the lowest clock at which all that is there keeps its deadlines.

Whenever a request comes or goes, batch and cache are projected over all steps to come at one clock, with predicted lengths
made longer by the predictor's error. The lowest clock whose projection misses no deadline is found by bisection. Where a
deadline is lost already, or no clock keeps all, the engine runs at its greatest.

After Kakolyris et al., throttLL'eM: Predictive GPU Throttling for Energy Efficient LLM Inference Serving (HPCA'25). There
the bound is on the mean time between tokens and on the whole answer; here each step is to keep the bound between tokens, and
waiting prompts theirs on the first token. As there, the time that a switch takes is not looked at, nor what is to come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import FlatTables, flat_tables
from wastenot.serving.policies.projection import Limits, keeps, limits_of
from wastenot.serving.simulation.policy import Choice, View


@dataclass(slots=True)
class Throttle:
    """The lowest clock that keeps all deadlines, as projected.

    Attributes:
        inflate: what predicted lengths are multiplied with, to be on the safe side of their errors.
        floor: the lowest setting that it asks for.
    """

    inflate: float = 1.0
    floor: int = 0
    name: str = "throttLL'eM"
    _deadlines: Deadlines = field(init=False)
    _limits: Limits = field(init=False)
    _table: FlatTables = field(init=False)
    _greatest: int = field(init=False)

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        """Nothing is there yet, and the lowest clock keeps all of that."""
        self._deadlines, self._limits = deadlines, limits_of(engine, deadlines)
        self._table, self._greatest = flat_tables(engine.tables), len(engine.tables.settings) - 1
        return self.floor

    def choose(self, view: View) -> Choice:
        """The lowest clock whose projection keeps all deadlines; the greatest where none does."""
        if self._lost(view):
            return Choice(self._greatest)
        low, high = min(self.floor, self._greatest), self._greatest
        while low < high:
            middle = (low + high) // 2
            if keeps(view, self._table, middle, self._limits, self._deadlines, inflate=self.inflate):
                high = middle
            else:
                low = middle + 1
        return Choice(low)

    def _lost(self, view: View) -> bool:
        """Whether something that is there has missed a deadline for good."""
        due = view.waiting_arrival_s + self._deadlines.ttft_of(view.waiting_prompt.astype(np.intp))
        if (due < view.now_s).any():
            return True
        end = self._deadlines.end_to_end_s
        return end is not None and bool((view.running_arrival_s + end < view.now_s).any())
