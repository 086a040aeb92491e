"""What a study remembers of a job, as what decides for a device takes it in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wastenot.core.errors import BadInputError
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed

_FEW_RUNS = 3


def fitting_terms(terms: JobTerms, runs: Iterable[JobRun], device: str) -> JobTerms:
    """The terms without the batch sizes that do not fit into a device's memory: the least that did not, and all above.

    Args:
        terms: of the job.
        runs: of it, on any device.
        device: to run on.

    Returns:
        The terms; where the default does not fit, the largest that does takes its place.

    Raises:
        BadInputError: none fits.
    """
    too_large = [run.batch_size for run in runs if run.outcome == "no memory" and run.device == device]
    if not too_large:
        return terms
    fitting = tuple(size for size in terms.batch_sizes if size < min(too_large))
    if not fitting:
        raise BadInputError(
            f"`batch_sizes`: none fits into the memory of {device}: {min(too_large)} did not; add smaller ones, or, if "
            "something else had filled the memory, let them be retried: wastenot job show NAME --study STUDY --retry-memory"
        )
    return replace(terms, batch_sizes=fitting, default=min(terms.default, fitting[-1]))


def in_vain(terms: JobTerms, runs: Iterable[JobRun]) -> str | None:
    """What to say of a job that has not reached its target yet, in as many runs as it has batch sizes, and some.

    Args:
        terms: of the job.
        runs: of it, on any device.
    """
    ended = [run for run in runs if run.outcome in ("reached", "stopped", "missed", "diverged")]
    if len(ended) < max(len(terms.batch_sizes), _FEW_RUNS) or any(run.outcome == "reached" for run in ended):
        return None
    tried = ", ".join(map(str, sorted({run.batch_size for run in ended})))
    metrics = [run.metric for run in ended if run.metric is not None]
    nearest = (max if terms.higher_is_better else min)(metrics, default=None)
    came = f"; the nearest ended at {nearest:g}" if nearest is not None and terms.target is not None else ""
    return (
        f"none of {len(ended)} runs has reached the target (batch sizes {tried}){came}: check the target, `max_epochs` and "
        "the program"
    )


def recall(policy: Policy, terms: JobTerms, speeds: Iterable[Speed], runs: Iterable[JobRun]) -> Policy:
    """Tell a policy all that a study holds of the batch sizes that may be chosen.

    Args:
        policy: that knows nothing yet.
        terms: that it was made with.
        speeds: as stored, of any device.
        runs: as stored, of any device and of batch sizes that may no longer be chosen.
    """
    catch_up(policy, terms, (), speeds, runs)
    return policy


def catch_up(
    policy: Policy, terms: JobTerms, before: Iterable[JobRun], speeds: Iterable[Speed], runs: Iterable[JobRun]
) -> bool:
    """Tell a policy what is new since it was told last, which takes far less time than all of it.

    Args:
        policy: that knows what was stored before.
        terms: that it was made with.
        before: the runs as they were then.
        speeds: as stored now.
        runs: as stored now.

    Returns:
        Whether that was possible: not where a run that had ended is under way again, or turned out not to fit into memory.
    """
    sizes = set(terms.batch_sizes)
    was = {run.number: run.outcome for run in before if run.batch_size in sizes and run.outcome != "no memory"}
    now = [run for run in runs if run.batch_size in sizes]
    for run in now:
        if run.number in was and was[run.number] not in ("running", run.outcome):
            return False
        if run.number in was and run.outcome == "no memory":
            return False
    for speed in speeds:
        if speed.batch_size in sizes:
            policy.measured(speed)
    for run in now:
        if run.outcome == "no memory":
            continue
        if run.number not in was:
            policy.began(run)
        if run.outcome != "running" and was.get(run.number, "running") == "running":
            policy.ended(run)
    return True
