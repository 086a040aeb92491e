"""Time and energy to the target of every pair of a batch size and a setting: the frontier of a job, and what it is asked.

    energy │  ●128
           │    ●128   ○256         ● on the frontier: no pair beats it in both
           │      ●64    ○64        ○ beaten by another
           └──────────────── time

Epochs to the target depend on the batch size alone, time and energy of an epoch on both (Zeus, NSDI 2023, section 3.3), so
the frontier is ``either`` over batch sizes of a ``choice`` over settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import Frontier, choice, either
from wastenot.frontiers.nodes import Point
from wastenot.jobs.model.objective import cost
from wastenot.jobs.tables.records import JobRun, JobTerms, Outcome, Speed

_TEACHES: tuple[Outcome, ...] = ("reached", "stopped", "missed", "diverged")


@dataclass(frozen=True, slots=True)
class EpochsToTarget:
    """Epochs that runs of a batch size took for each time that the target was reached.

    Attributes:
        mean: epochs of all its runs, those included that did not get there, for each that did.
        error: standard error of the mean, as a fraction of it; ``None`` with fewer than two runs that got there.
        reached: runs that got there; 0 where ``mean`` is a forecast.
        failed: runs that did not.
    """

    mean: float
    error: float | None
    reached: int
    failed: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A batch size at a setting.

    Attributes:
        batch_size: the batch size.
        setting: the setting.
        epochs: to the target.
        time_s: to the target.
        energy_j: to the target; ``None`` where nothing measures it.
    """

    batch_size: int
    setting: Setting
    epochs: EpochsToTarget
    time_s: float
    energy_j: float | None

    @property
    def forecast(self) -> bool:
        """Whether no run with this batch size has reached the target yet, so that its epochs are a forecast."""
        return self.epochs.reached == 0

    @property
    def power_w(self) -> float | None:
        """Mean power on the way; ``None`` where nothing measures it."""
        return None if self.energy_j is None else self.energy_j / self.time_s

    def cost(self, terms: JobTerms) -> float:
        """Of reaching the target, as the job counts it."""
        return float(cost(terms, self.time_s, self.energy_j or 0.0))


def epochs_to_target(runs: Iterable[JobRun]) -> dict[int, EpochsToTarget]:
    """What runs tell of the epochs to the target, by batch size; those of which none got there are left out.

    A run that did not get there is followed by another, so its epochs count as well. Runs that were lost, and those that
    ended with an error of the program, say nothing here.
    """
    seen: dict[int, list[JobRun]] = {}
    for run in runs:
        if run.outcome in _TEACHES:
            seen.setdefault(run.batch_size, []).append(run)
    found = {}
    for size, of_size in sorted(seen.items()):
        reached = np.array([float(run.epochs) for run in of_size if run.outcome == "reached"])
        if reached.size == 0:
            continue
        mean = float(sum(run.epochs for run in of_size)) / reached.size
        error = None if reached.size < 2 else float(reached.std(ddof=1)) / math.sqrt(reached.size) / mean
        found[size] = EpochsToTarget(mean, error, int(reached.size), len(of_size) - int(reached.size))
    return found


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run takes beside its epochs: reading data, building the model, compiling.

    Attributes:
        time_s: of a run.
        energy_j: of a run; 0 where nothing measures it.
    """

    time_s: float = 0.0
    energy_j: float = 0.0


def setup_of(runs: Iterable[JobRun], speeds: Iterable[Speed], device: str) -> Setup:
    """What runs on a device took beside their epochs: the median, as those that try other settings are off a little."""
    known = {(speed.batch_size, speed.setting): speed for speed in speeds if speed.device == device}
    times, energies = [], []
    for run in runs:
        speed = known.get((run.batch_size, run.setting))
        if speed is None or run.device != device or run.epochs == 0 or run.outcome not in _TEACHES:
            continue
        own_s = run.epochs * speed.epoch_time_s
        times.append(run.time_s - own_s)
        if run.energy_j is not None and speed.power_w is not None:
            energies.append(run.energy_j - own_s * speed.power_w)
    return Setup(*(max(float(np.median(each)), 0.0) if each else 0.0 for each in (times, energies)))


def pairs_of(
    speeds: Iterable[Speed],
    device: str,
    epochs: Mapping[int, EpochsToTarget],
    forecast: Mapping[int, float] | None = None,
    setup: Setup | None = None,
) -> tuple[Pair, ...]:
    """Every pair whose speed was measured on a device, by batch size and in the order in which they were measured.

    Args:
        speeds: of any device.
        device: its label.
        epochs: that runs took, on any device.
        forecast: epochs that are expected of batch sizes of which no run has reached the target.
        setup: what each run takes besides.
    """
    setup = Setup() if setup is None else setup
    found: dict[tuple[int, Setting], Pair] = {}
    for speed in speeds:
        size = speed.batch_size
        expected = (forecast or {}).get(size)
        known = epochs.get(size)
        if known is None and expected is not None and math.isfinite(expected):
            known = EpochsToTarget(expected, None, 0, 0)
        if speed.device != device or known is None:
            continue
        runs = (known.reached + known.failed) / max(known.reached, 1) or 1.0
        epochs_s = known.mean * speed.epoch_time_s
        energy_j = None if speed.power_w is None else epochs_s * speed.power_w + runs * setup.energy_j
        found[size, speed.setting] = Pair(size, speed.setting, known, epochs_s + runs * setup.time_s, energy_j)
    return tuple(sorted(found.values(), key=lambda pair: pair.batch_size))


def job_frontier(pairs: Sequence[Pair]) -> Frontier:
    """Every way of reaching the target, labelled with its :class:`Pair`.

    Raises:
        BadInputError: there is no pair, or the energy of one is not known.
    """
    if not pairs:
        raise BadInputError("`pairs`: no run has reached the target yet, so there is nothing to choose from")
    if any(pair.energy_j is None for pair in pairs):
        raise BadInputError("`pairs`: energy is not measured there; only the fastest pair is known")
    sizes = dict.fromkeys(pair.batch_size for pair in pairs)
    return either(
        *(choice([(pair.time_s, pair.energy_j or 0.0, pair) for pair in pairs if pair.batch_size == size]) for size in sizes)
    )


def pareto_pairs(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Those that no other beats in both time and energy, the fastest first; where no energy is known, the fastest alone."""
    if not pairs or any(pair.energy_j is None for pair in pairs):
        return () if not pairs else (min(pairs, key=lambda pair: pair.time_s),)
    return tuple(_pair_at(point) for point in job_frontier(pairs).pareto())


def least_energy(pairs: Sequence[Pair], within_s: float | None = None) -> Pair:
    """The pair of least energy that reaches the target within a time.

    Raises:
        BadInputError: there is no pair, or no energy is known.
        InfeasibleError: none is fast enough.
    """
    try:
        return _pair_at(job_frontier(pairs).least_energy(within_s))
    except InfeasibleError:
        fastest = min(pair.time_s for pair in pairs)
        raise InfeasibleError(
            f"`within_s` {within_s:g}: no measured pair reaches the target that soon; the fastest takes {fastest:.4g} s"
        ) from None


def least_time(pairs: Sequence[Pair], power_budget_w: float | None = None) -> Pair:
    """The fastest pair whose mean power is at most a budget.

    Raises:
        BadInputError: there is no pair, or no energy is known though a budget is asked for.
        InfeasibleError: all draw more.
    """
    if power_budget_w is None and pairs:
        return min(pairs, key=lambda pair: pair.time_s)
    frontier = job_frontier(pairs)  # says what is missing
    assert power_budget_w is not None
    frugal = [pair for pair in pairs if pair.power_w is not None and pair.power_w <= power_budget_w]
    if not frugal:
        least_w = min(pair.power_w for pair in pairs if pair.power_w is not None)
        raise InfeasibleError(
            f"`power_budget_w` {power_budget_w:g}: every measured pair draws more; the lowest power is {least_w:.4g} W"
        )
    return _pair_at((frontier if len(frugal) == len(pairs) else job_frontier(frugal)).least_time())


def _pair_at(point: Point) -> Pair:
    chosen: Any = point.choices  # of either: one pair of (which frontier, its choices)
    pair = chosen[0][1][0]
    assert isinstance(pair, Pair)
    return pair
