"""A simulated job as a study would hold it, for whatever shows or reads jobs."""

from __future__ import annotations

from wastenot.core.setting import Setting
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Decision
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobTerms, Speed
from wastenot.jobs.tables.store import StoredJob


class _Watched(Learner):
    """The learner, which remembers what it was told and why it decided."""

    def __init__(self, terms: JobTerms, device: str) -> None:
        super().__init__(terms, device)
        self.speeds: dict[tuple[int, Setting], Speed] = {}
        self.why: list[str] = []

    def measured(self, speed: Speed) -> None:
        self.speeds[speed.batch_size, speed.setting] = speed
        super().measured(speed)

    def choose(self) -> Decision:
        decision = super().choose()
        self.why.append(decision.why)
        return decision


def stored_job(trace: JobTrace, recurrences: int, seed: int) -> StoredJob:
    """A job after so many recurrences, decided as the product decides.

    Args:
        trace: that runs are drawn from; its device's label should say that it is simulated, as ``sim:...`` does.
        recurrences: how often the job comes.
        seed: of what is drawn.
    """
    policies: list[_Watched] = []

    def policy_of(of: JobTrace) -> _Watched:
        policies.append(_Watched(of.terms, of.device))
        return policies[0]

    runs = simulate(trace, policy_of, recurrences, seed).runs
    (policy,) = policies
    speeds = tuple(policy.speeds.values())
    return StoredJob(trace.terms, trace.device, runs, speeds, (trace.device,), tuple(policy.why[: len(runs)]))
