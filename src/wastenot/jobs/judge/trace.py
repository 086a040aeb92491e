"""A job's trace: how many epochs runs took to the target by batch size, and how fast a device runs each at each setting."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.jobs.model.objective import cost
from wastenot.jobs.tables.records import JobTerms


@dataclass(frozen=True, slots=True, eq=False)
class JobTrace:
    """What is known of a job that was run many times, which a simulation draws from.

    Attributes:
        terms: of the job.
        device: label of the device.
        epochs: by batch size, the epochs to the target of the runs seen; infinite where a run did not reach it.
        epoch_time_s: shape (batch sizes, settings).
        power_w: mean power while training; shape (batch sizes, settings).
    """

    terms: JobTerms
    device: str
    epochs: Mapping[int, tuple[float, ...]]
    epoch_time_s: FloatArray
    power_w: FloatArray

    def epoch_cost(self) -> FloatArray:
        """Cost of an epoch; shape (batch sizes, settings)."""
        return cost(self.terms, self.epoch_time_s, self.epoch_time_s * self.power_w)

    def mean_cost(self) -> FloatArray:
        """Mean cost of runs that reach the target; infinite where none does; shape (batch sizes, settings)."""
        epochs = np.array([self._mean_epochs(size) for size in self.terms.batch_sizes])
        costs: FloatArray = self.epoch_cost() * epochs[:, None]
        return costs

    def _mean_epochs(self, batch_size: int) -> float:
        most = math.inf if self.terms.max_epochs is None else self.terms.max_epochs
        reached = [each for each in self.epochs[batch_size] if each <= most]
        failed = len(self.epochs[batch_size]) - len(reached)
        if not reached:
            return math.inf
        # A run that fails is run again, and costs all the epochs that it is allowed.
        again = failed / len(reached) * (most if math.isfinite(most) else max(reached))
        return math.fsum(reached) / len(reached) + again

    def mean_energy_j(self) -> FloatArray:
        """Mean energy of runs that reach the target; infinite where none does; shape (batch sizes, settings)."""
        return self.with_terms(eta=1.0, within_s=None, power_budget_w=None).mean_cost()

    def best(self) -> tuple[int, int]:
        """Indices of the batch size and the setting of least mean cost."""
        return divmod(int(self.mean_cost().argmin()), len(self.terms.settings))

    def best_cost(self) -> float:
        """Least mean cost of any batch size and setting."""
        return float(self.mean_cost().min())

    def with_terms(self, **changes: object) -> JobTrace:
        """The same trace under other terms."""
        return replace(self, terms=replace(self.terms, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class JobKey:
    """What Zeus' artifact tells jobs apart by."""

    dataset: str
    network: str
    optimizer: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.network}"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSummaries:
    """The two summaries that Zeus' artifact publishes: epochs that runs needed, and how fast a device trains.

    Attributes:
        train: file of the epochs.
        epochs: by job and target, then by batch size, of each run; infinite where it did not reach the target.
        speeds: by job, then by batch size and power limit: time of an epoch, and power.
    """

    train: Path
    epochs: Mapping[tuple[JobKey, float], Mapping[int, list[float]]]
    speeds: Mapping[JobKey, Mapping[tuple[int, float], tuple[float, float]]]

    def jobs(self) -> tuple[JobKey, ...]:
        """Jobs that are in both files."""
        return tuple(sorted({job for job, _ in self.epochs} & set(self.speeds), key=str))

    def targets(self, job: JobKey) -> tuple[float, ...]:
        """Targets that a job's runs were recorded for, ascending."""
        return tuple(sorted(target for each, target in self.epochs if each == job))

    def longest(self, job: JobKey) -> int:
        """Epochs of the longest run of a job that is on record."""
        seen = [each for key, sizes in self.epochs.items() if key[0] == job for runs in sizes.values() for each in runs]
        return int(max((each for each in seen if math.isfinite(each)), default=1))

    def trace(self, job: JobKey, target: float, default: int, most: int, device: str) -> JobTrace:
        """A job's trace.

        Args:
            job: which one.
            target: that ends its runs.
            default: batch size.
            most: epochs after which a run has missed the target.
            device: label of what the speeds were measured on.

        Raises:
            BadInputError: the files do not have it.
        """
        held, runs = self.speeds.get(job), self.epochs.get((job, target))
        if held is None or runs is None:
            raise BadInputError(
                f"{self.train}: there is no {job.dataset} / {job.network} with target {target:g} in both files"
            )
        sizes = sorted({size for size, _ in held} & set(runs))
        limits = sorted({limit for _, limit in held}, reverse=True)
        if default not in sizes:
            raise BadInputError(f"`default` {default}: {job} was not run at it, but at {', '.join(map(str, sizes))}")
        missing = [(size, limit) for size in sizes for limit in limits if (size, limit) not in held]
        if missing:
            raise BadInputError(f"{self.train}: {job} has no speed at batch size {missing[0][0]} and {missing[0][1]:g} W")
        settings = tuple(Setting(power_limit_w=limit) for limit in limits)
        table = np.array([[held[size, limit] for limit in limits] for size in sizes])
        terms = JobTerms(str(job), tuple(sizes), default, target, True, most, settings, 0.5, limits[0])
        return JobTrace(terms, device, {size: tuple(runs[size]) for size in sizes}, table[:, :, 0], table[:, :, 1])


def read_training_summaries(train: Path, power: Path) -> TrainingSummaries:
    """Read the summaries that Zeus' artifact publishes, or others of the same form.

    Args:
        train: CSV with ``dataset,network,batch_size,optimizer,run,target_metric,target_epoch``; ``nan`` or nothing as
            the epoch of a run that did not reach the target.
        power: CSV with ``dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power``.

    Raises:
        BadInputError: a file cannot be read.
    """
    epochs: dict[tuple[JobKey, float], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(train, ("batch_size", "target_metric", "target_epoch")):
        reached = row.number("target_epoch", missing=math.inf)
        epochs[row.job, row.number("target_metric")][int(row.number("batch_size"))].append(reached)
    speeds: dict[JobKey, dict[tuple[int, float], tuple[float, float]]] = defaultdict(dict)
    for row in _rows(power, ("batch_size", "power_limit", "time_per_epoch", "average_power")):
        point = int(row.number("batch_size")), row.number("power_limit")
        speeds[row.job][point] = row.number("time_per_epoch"), row.number("average_power")
    return TrainingSummaries(train, epochs, speeds)


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    line: int
    job: JobKey
    cells: Mapping[str, str]

    def number(self, column: str, missing: float | None = None) -> float:
        """A positive number; ``nan`` and nothing stand for what is missing, where that may be."""
        text = self.cells[column]
        try:
            value = float(text or "nan")
        except ValueError:
            value = -1.0
        if math.isnan(value) and missing is not None:
            return missing
        if not 0.0 < value < math.inf:
            raise BadInputError(f"{self.path}:{self.line}: {column} '{text}' is not a number above 0")
        return value


def _rows(path: Path, columns: tuple[str, ...]) -> Iterable[_Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            wanted = ("dataset", "network", "optimizer", *columns)
            lacking = [column for column in wanted if column not in (reader.fieldnames or ())]
            if lacking:
                raise BadInputError(f"{path}: has no column {lacking[0]}; it needs {', '.join(wanted)}")
            for cells in reader:
                if any(cells[column] is None for column in wanted):
                    raise BadInputError(f"{path}:{reader.line_num}: has fewer cells than the header")
                job = JobKey(cells["dataset"], cells["network"], cells["optimizer"])
                yield _Row(path, reader.line_num, job, cells)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: is not text") from error
