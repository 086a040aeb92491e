"""Policies to compare with: the default, a grid search that prunes, and an oracle.

They choose a setting together with the batch size, and hold it; ours finds the setting on the running job.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from wastenot.core.setting import Setting
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.model.objective import cost
from wastenot.jobs.plan.decision import Decision, Policy, Verdict
from wastenot.jobs.tables.records import JobRun, JobTerms

_GIVE_UP = 2.0  # times the cheapest run, as Zeus has it


@runtime_checkable
class HoldsSetting(Protocol):
    """A policy that chooses settings, too."""

    def held_setting(self) -> Setting:
        """The setting of the run that was last decided."""


class HeldPace:
    """Runs at the setting that a policy holds.

    Args:
        trace: of the job.
        policy: that chooses the setting.
    """

    def __init__(self, trace: JobTrace, policy: HoldsSetting) -> None:
        self._trace, self._policy = trace, policy
        self._held = 0

    def begin(self) -> None:
        """A run begins."""
        self._held = self._trace.terms.settings.index(self._policy.held_setting())

    def beside(self) -> HeldPace:
        """For another run at the same time."""
        return HeldPace(self._trace, self._policy)

    def epoch(self, batch_size: int) -> tuple[float, float]:
        """Time and energy of the next epoch of the run in flight."""
        row = self._trace.terms.batch_sizes.index(batch_size)
        time_s = float(self._trace.epoch_time_s[row, self._held])
        return time_s, time_s * float(self._trace.power_w[row, self._held])

    def setting(self, batch_size: int) -> int:
        """Index of the setting that is held."""
        del batch_size
        return self._held


class _Constant(Policy):
    """One pair for every run, each as long as it takes."""

    def __init__(self, batch_size: int, setting: Setting, why: str) -> None:
        self._decision, self._setting = Decision(batch_size, why), setting

    def choose(self) -> Decision:
        """The same as ever."""
        return self._decision

    def held_setting(self) -> Setting:
        """The same as ever."""
        return self._setting


class Default(_Constant):
    """The batch size that the job's user would run, at the fastest setting."""

    def __init__(self, terms: JobTerms) -> None:
        super().__init__(terms.default, terms.settings[0], "the default")


class Oracle(_Constant):
    """The pair of least mean cost, known from the trace."""

    def __init__(self, trace: JobTrace) -> None:
        row, column = trace.best()
        super().__init__(trace.terms.batch_sizes[row], trace.terms.settings[column], "the best there is")


class GridSearch(Policy):
    """Every pair once, beginning with the default, and from then on the cheapest.

    A batch size that does not reach the target is not tried again, nor is one that was stopped at twice the cost of the
    cheapest run so far.

    Args:
        terms: of the job.
    """

    def __init__(self, terms: JobTerms) -> None:
        self._terms = terms
        sizes = sorted(terms.batch_sizes, key=lambda size: (size != terms.default, abs(math.log2(size / terms.default))))
        self._left = [(size, setting) for size in sizes for setting in terms.settings]
        self._costs: dict[tuple[int, Setting], float] = {}
        self._flying: dict[int, tuple[int, Setting]] = {}
        self._now = self._left[0]

    def choose(self) -> Decision:
        """The next pair of the grid, or the cheapest."""
        if self._left:
            self._now = self._left.pop(0)
            return Decision(self._now[0], "not tried yet")
        if not self._costs:
            self._now = self._terms.default, self._terms.settings[0]
            return Decision(self._now[0], "none reached the target")
        self._now = min(self._costs, key=lambda pair: self._costs[pair])
        return Decision(self._now[0], "the cheapest seen")

    def held_setting(self) -> Setting:
        """The setting of the pair that was last decided."""
        return self._now[1]

    def began(self, run: JobRun) -> None:
        """Remember its pair."""
        self._flying[run.number] = self._now

    def goes_on(self, run: JobRun) -> Verdict:
        """Whether it has cost less than twice the cheapest."""
        spent = float(cost(self._terms, run.time_s, run.energy_j or 0.0))
        return Verdict(spent < _GIVE_UP * min(self._costs.values(), default=math.inf), "has cost twice the cheapest")

    def ended(self, run: JobRun) -> None:
        """Take note of what it cost, or prune its batch size."""
        pair = self._flying.pop(run.number)
        if run.outcome == "reached":
            self._costs.setdefault(pair, float(cost(self._terms, run.time_s, run.energy_j or 0.0)))
        else:
            self._left = [each for each in self._left if each[0] != run.batch_size]
            self._costs = {each: costs for each, costs in self._costs.items() if each[0] != run.batch_size}
