"""Zeus' training jobs, run by Zeus' own simulator and policy, and the same policy in our simulator.

The traces are those of Zeus' artifact (NSDI 2023); the simulator and the policy come from the package ``zeus`` 0.16.
Targets, default batch sizes and longest trainings are those that Zeus' numbers were made with.
"""

from __future__ import annotations

import contextlib
import io
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from zeus._legacy.job import Job
from zeus._legacy.policy.optimizer import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer
from zeus._legacy.simulate import Simulator

from benchmarks.kept import BESIDE
from wastenot.core.arrays import FloatArray
from wastenot.core.setting import Setting
from wastenot.jobs.judge.overlapping import Arrival
from wastenot.jobs.judge.simulate import Recurrences
from wastenot.jobs.judge.trace import JobKey, JobTrace, read_training_summaries
from wastenot.jobs.model.objective import cost
from wastenot.jobs.plan.decision import Decision, Verdict
from wastenot.jobs.tables.records import JobRun, Speed

TRACES = BESIDE / "zeus"

_JOBS = (
    ("cifar100", "shufflenetv2", "adadelta", 0.6, 1024, 100),
    ("imagenet", "resnet50", "adadelta", 0.65, 256, 100),
    ("librispeech", "deepspeech2", "adamw", 40.0, 192, 16),
    ("movielens-1m", "ncf", "adam", 0.41, 1024, 100),
    ("sentiment140", "bert_base_uncased", "adamw", 0.84, 128, 10),
    ("squad", "bert_base_uncased", "adamw", 84.0, 32, 6),
)
_GIVE_UP = 2.0  # times the cheapest recurrence: Zeus' β


@dataclass(frozen=True, slots=True)
class ZeusJob:
    """A job as both simulators want it.

    Attributes:
        trace: for ours.
        job: for Zeus'.
        train: and power: the rows of Zeus' tables that are about it.
        recurrences: 2 × batch sizes × limits of the power table, which for imagenet has three batch sizes that were
            never trained with.
    """

    trace: JobTrace
    job: Job
    train: pd.DataFrame
    power: pd.DataFrame
    recurrences: int


def read_jobs(power: Path = TRACES / "summary_power_v100.csv") -> tuple[ZeusJob, ...]:
    """All six jobs, on the V100, or on another GPU of the artifact.

    Batch sizes without a speed at every power limit are left out; where the default is not among the others, the next
    smaller one takes its place.

    Args:
        power: speeds of a GPU.
    """
    train = TRACES / "summary_train.csv"
    all_train, all_power = pd.read_csv(train), pd.read_csv(power)
    of_job = ["dataset", "network", "optimizer"]
    limits = all_power.groupby([*of_job, "batch_size"]).power_limit.transform("nunique")
    all_power = all_power[limits == all_power.groupby(of_job).power_limit.transform("nunique")]
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / power.name
        all_power.to_csv(whole, index=False)
        summaries = read_training_summaries(train, whole)
    out = []
    for dataset, network, optimizer, target, usual, most in _JOBS:
        key = JobKey(dataset, network, optimizer)
        sizes = {size for size, _ in summaries.speeds[key]} & set(summaries.epochs[key, target])
        default = max(size for size in sizes if size <= usual)
        trace = summaries.trace(key, target, default, most, power.stem.removeprefix("summary_power_").upper())
        own_train, own_power = (
            table[(table.dataset == dataset) & (table.network == network) & (table.optimizer == optimizer)]
            for table in (all_train, all_power)
        )
        job = Job(dataset, network, optimizer, target, most, default)
        out.append(ZeusJob(trace, job, own_train, own_power, 2 * len(own_power)))
    return tuple(out)


def zeus_recurrences(job: ZeusJob, eta: float, seed: int) -> Recurrences:
    """What Zeus' policy makes of a job in Zeus' simulator.

    Raises:
        RuntimeError: the default batch size did not reach the target in the first recurrence, with which Zeus ends.
    """
    trace = job.trace.with_terms(eta=eta)
    policy = PruningGTSBatchSizeOptimizer(seed=seed, verbose=False)
    limits = JITPowerLimitOptimizer(verbose=False)
    simulator = Simulator(job.train, job.power, policy, limits, seed=seed, verbose=False)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints runs that it does not begin, even when told to be silent
        history = simulator.simulate_one_job(job.job, job.recurrences, _GIVE_UP, eta)
    costs = cost(trace.terms, np.array([run.time for run in history]), np.array([run.energy for run in history]))
    reached = np.array([run.reached for run in history])
    recurrence: FloatArray = np.concatenate([[0.0], np.cumsum(reached)[:-1]])
    runs = tuple(
        JobRun(
            number,
            int(run.bs),
            trace.device,
            "reached" if run.reached else "stopped",
            epochs=0,  # it does not say
            time_s=run.time,
            energy_j=run.energy,
            setting=Setting(power_limit_w=float(run.pl)),
        )
        for number, run in enumerate(history, 1)
    )
    return Recurrences(runs, recurrence, costs, np.full(job.recurrences, trace.best_cost()))


def zeus_overlapping(job: ZeusJob, when: Sequence[Arrival], lasts_s: float, seed: int) -> FloatArray:
    """Regret at the end of Zeus' policy in Zeus' simulator of runs that overlap, in runs of the best pair.

    Args:
        job: which one.
        when: it comes.
        lasts_s: how long a run lasts; there it is the same for all batch sizes.
        seed: of what is drawn, and of the policy.
    """
    group = pd.DataFrame({
        "group": 0,
        "dataset": job.job.dataset,
        "start_time": [each.at_s for each in when],
        "end_time": [each.at_s + each.slower * lasts_s for each in when],
        "runtime_ratio": 1.0,
    })  # fmt: skip
    policy = PruningGTSBatchSizeOptimizer(seed=seed, concurrency=True, verbose=False)
    limits = JITPowerLimitOptimizer(verbose=False)
    simulator = Simulator(job.train, job.power, policy, limits, seed=seed, verbose=False)
    with contextlib.redirect_stdout(io.StringIO()):
        history = simulator.simulate_one_alibaba_group(job.job, group, _GIVE_UP, job.trace.terms.eta)
    costs = cost(job.trace.terms, np.array([run.time for run in history]), np.array([run.energy for run in history]))
    regret: FloatArray = np.asarray(costs.sum() / job.trace.best_cost() - len(when))
    return regret


class ZeusPolicy:
    """Zeus' policy in our simulator: its bandit, and its early stop at twice the cheapest recurrence.

    Args:
        trace: of the job.
        job: the same for Zeus.
        seed: of the bandit.
        overlapping: whether runs may overlap: beside others, one runs with the batch size of the cheapest run so far.
    """

    def __init__(self, trace: JobTrace, job: Job, seed: int, *, overlapping: bool = False) -> None:
        self._terms, self._job = trace.terms, replace(job)
        self._overlapping, self._flying, self._best = overlapping, 0, trace.terms.default
        self._bandit = PruningGTSBatchSizeOptimizer(seed=seed, concurrency=overlapping, verbose=False)
        self._bandit.register_job(self._job, list(trace.terms.batch_sizes))
        self._epoch_costs: dict[int, float] = {}
        self._least, self._spent = math.inf, 0.0

    def measured(self, speed: Speed) -> None:
        """Take note of how fast the job runs at a batch size and setting."""
        energy_j = speed.epoch_time_s * (speed.power_w or 0.0)
        epoch = float(cost(self._terms, speed.epoch_time_s, energy_j))
        self._epoch_costs[speed.batch_size] = min(epoch, self._epoch_costs.get(speed.batch_size, math.inf))

    def choose(self) -> Decision:
        """The batch size for a run that begins now."""
        if self._overlapping and self._flying:
            return Decision(self._best, "as Zeus has it beside others")
        return Decision(int(self._bandit.predict(self._job)), "as Zeus has it")

    def began(self, run: JobRun) -> None:
        """Take note of a run that is in flight from now on."""
        self._flying += 1

    def goes_on(self, run: JobRun) -> Verdict:
        """Whether another epoch stays below twice the cheapest recurrence."""
        spent = float(cost(self._terms, run.time_s, run.energy_j or 0.0))
        after = spent + self._epoch_costs[run.batch_size]
        return Verdict(after <= _GIVE_UP * self._least, "another epoch would exceed twice the cheapest recurrence")

    def ended(self, run: JobRun) -> None:
        """Take note of what became of a run."""
        spent, reached = float(cost(self._terms, run.time_s, run.energy_j or 0.0)), run.outcome == "reached"
        self._bandit.observe(self._job, run.batch_size, spent, reached)
        self._flying -= 1
        self._spent = spent if self._overlapping else self._spent + spent
        if reached:
            if self._spent < self._least:
                self._least, self._best = self._spent, run.batch_size
            self._spent = 0.0
