"""Made-up jobs that came back many times, in a study, as the product would have run them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from testbed.stored_jobs import stored_job
from wastenot.jobs.judge.made import made_job
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Decision
from wastenot.jobs.tables.records import JobRun
from wastenot.jobs.tables.store import JobStore, StoredJob
from wastenot.study.store import open_study


def recurred(
    name: str = "nightly",
    *,
    family: str = "large ones fail",
    seed: int = 3,
    recurrences: int = 20,
    device: str = "sim:made-up",
    energy: bool = True,
    eta: float = 0.5,
) -> StoredJob:
    """A job after so many recurrences, simulated on what was made up.

    Args:
        name: of the job.
        family: of :func:`wastenot.jobs.judge.made.made_job`.
        seed: of the job and of its runs.
        recurrences: times that its target was reached, or given up.
        device: label of its device.
        energy: whether energies are known; without them, time alone counts.
        eta: weight of energy against time.
    """
    job = made_job(family, seed)
    terms = replace(job.terms, name=name, eta=eta if energy else 0.0)
    trace = JobTrace(terms, device, job.epochs, job.epoch_time_s, job.power_w)
    job_before = stored_job(trace, recurrences, seed)
    if energy:
        return job_before
    runs = tuple(replace(run, energy_j=None) for run in job_before.runs)
    speeds = tuple(replace(speed, power_w=None) for speed in job_before.speeds if speed.setting == terms.settings[0])
    return replace(job_before, terms=replace(terms, max_power_w=None), runs=runs, speeds=speeds)


def keep(stored: StoredJob, study: str | Path) -> None:
    """Write a job into a study, run by run, as programs do."""
    store = JobStore(open_study(study, create=True))
    for run, why in zip(stored.runs, stored.why, strict=True):
        _keep(store, stored, run, why)


def _keep(store: JobStore, stored: StoredJob, run: JobRun, why: str) -> None:
    used = [0.0, 0.0 if run.energy_j is not None else None]
    flight = store.begin(
        stored.terms, run.device, lambda _: Decision(run.batch_size, why), used=lambda: (used[0] or 0.0, used[1])
    )
    flight.save(speeds=[speed for speed in stored.speeds if speed.batch_size == run.batch_size] if run.number == 1 else [])
    for _ in range(run.epochs):
        flight.count(run.metric, run.setting)
    used[:] = [run.time_s, run.energy_j]
    if run.number == len(stored.runs):
        flight.save(speeds=stored.speeds)
    if run.outcome == "running":
        flight.save()
    elif run.outcome == "lost":
        flight.abandon()
    else:
        flight.end(run.outcome)
