"""What is decided for a job: with which batch size it runs next, whether a run continues, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wastenot.jobs.tables.records import JobRun, Speed


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of a batch size.

    Attributes:
        batch_size: the batch size.
        cost: expected cost of reaching the target with it, if it does (:func:`wastenot.jobs.model.objective.cost`).
        low: and high: 95 % interval of that expectation.
        chance: of reaching the target at all.
        runs: how many of it count.
        epochs: expected number to the target.
    """

    batch_size: int
    cost: float
    low: float
    high: float
    chance: float
    runs: int
    epochs: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The batch size to run with.

    Attributes:
        batch_size: the batch size.
        why: a clause for people, such as "the cheapest known".
        outlook: of every batch size that is not ruled out, ascending.
    """

    batch_size: int
    why: str
    outlook: tuple[Outlook, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a run continues.

    Attributes:
        go_on: whether it does.
        why: a clause for people.
    """

    go_on: bool
    why: str = ""


class Policy(Protocol):
    """Learns from the runs of one job, and decides.

    It is told what happens in the order in which it happens; runs may overlap. Who derives from it need say only what it
    does otherwise: learns nothing, and gives no run up.
    """

    def measured(self, speed: Speed) -> None:
        """Take note of how fast the job runs at a batch size and setting."""
        del speed

    def choose(self) -> Decision:
        """The batch size for a run that begins now."""

    def began(self, run: JobRun) -> None:
        """Take note of a run that is in flight from now on."""
        del run

    def goes_on(self, run: JobRun) -> Verdict:
        """Whether a run in flight continues after an epoch that did not reach the target."""
        del run
        return Verdict(go_on=True)

    def ended(self, run: JobRun) -> None:
        """Take note of what became of a run."""
        del run
