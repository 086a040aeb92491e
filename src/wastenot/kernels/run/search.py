"""Search with few measurements: measure some points, fit a model, and spend the rest where it can still change the plan.

Only measured points enter a plan; the model only says where to measure next. At a price of time λ (the energy that a second
is worth at the budget) a kernel's best setting is that of least energy + λ · time, so an unmeasured point is worth as much
as it is expected to improve on the best measured one (expected improvement: Jones, Schonlau and Welch, Journal of Global
Optimization 13, 1998), times how often the kernel runs. The model knows enough of GPUs before anything is measured
(:mod:`surrogate <wastenot.kernels.run.surrogate>`), so that already the first points are chosen so, and any number of them
will do.

The order of kernels in a workload changes nothing: they are measured and computed with in an order of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress, Silent
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.nodes import Ways
from wastenot.kernels.calibration.clocks import learn_clock_mapping
from wastenot.kernels.run.surrogate import Predicted, predict_costs
from wastenot.meters.tasks import WorkloadTasks
from wastenot.planning.costs import combine_repeats
from wastenot.study.coverage import Intent
from wastenot.study.store import Study
from wastenot.study.sweep import Sweep
from wastenot.sweeping.estimate import WARM_S, Estimate, Span, finished_estimate, heated_point_s, points_s
from wastenot.sweeping.measure import SweepOutcome, SweepPoint, recording, run_points
from wastenot.sweeping.point import PointOptions, hottest_first

_ROUNDS = 10  # of choosing points; the model is fitted anew before each
_WORTHWHILE = 1e-4  # fraction of the iteration's energy: the search ends once all points together promise less
_ENOUGH_POINTS = 5  # of each kernel on average, besides auto: with fewer much of the best saving may be missed


@dataclass(frozen=True, eq=False)
class _MeasuredGrid:
    """What has been measured of the grid; arrays of shape (kernels, settings), NaN where nothing was.

    Kernels stand in an order that follows from what was measured: by falling energy at auto, in an iteration.

    Attributes:
        time_s, energy_j: of one call.
        auto_time_s, auto_energy_j: the same at auto; shape (kernels, 1).
        count: how often each kernel runs; shape (kernels, 1).
        possible: which points can be measured at all.
        core_mhz, memory_mhz: clocks in effect at each setting, shape (settings,).
        task: which of the tasks each kernel is, shape (kernels,).
    """

    time_s: FloatArray
    energy_j: FloatArray
    auto_time_s: FloatArray
    auto_energy_j: FloatArray
    count: FloatArray
    possible: NDArray[np.bool_]
    core_mhz: FloatArray
    memory_mhz: FloatArray
    task: NDArray[np.intp]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which points were measured."""
        return ~np.isnan(self.time_s)


def search_sweep(
    device: Device,
    units: WorkloadTasks,
    study: Study,
    settings: Sequence[Setting],
    *,
    share: float,
    max_slowdown: float = 0.0,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    budget_s: float | None = None,
    command: str | None = None,
) -> SweepOutcome:
    """Measure the points of a grid that matter for the plan of least energy within a slowdown.

    Args:
        device: to measure on.
        units: what to measure.
        study: to keep the measurements in; those it holds already are used.
        settings: the grid, besides auto; none of their core clocks auto.
        share: fraction of the grid's points, auto included, that may be measured. Where that is little, the kernels that
            promise the most are measured and the others stay at auto; the outcome's notes then say so.
        max_slowdown: that plans will allow.
        options: how to measure.
        progress: is shown each point.
        budget_s: device time after which no further point is started.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: a share that is not above 0 and at most 1, or too small for every kernel at auto.
        StudyError: the study cannot be written; what was measured before is kept.
        DeviceError: the device does not measure.
    """
    progress, options = progress or Silent(), options or PointOptions()
    ends_s = math.inf if budget_s is None else device.time.now_s() + budget_s
    ordered = _ordered(units)
    possible = np.array([[device.launcher.can_run(task, setting) for setting in settings] for task in ordered.tasks])
    whole = int(possible.sum()) + len(possible)
    allowed = _allowed(share, len(possible), whole)
    progress.begin(allowed)
    total = SweepOutcome()
    grid = {(task.name, setting) for task in ordered.tasks for setting in (AUTO, *settings)}

    names = [task.name for task in ordered.tasks]
    cannot = frozenset((names[kernel], settings[index]) for kernel, index in np.argwhere(~possible).tolist())
    intent = Intent("search", tuple(settings), cannot, share, max_slowdown, command)

    with recording(device, units, study, intent) as recorder:

        def run(points: Sequence[SweepPoint]) -> bool:
            outcome = run_points(device, ordered, recorder, points, options=options, progress=progress, ends_s=ends_s)
            total.add(outcome)
            return not outcome.out_of_time

        def left() -> int:
            return allowed - sum(times > 0 and point in grid for point, times in recorder.done.items())

        within_time = run([SweepPoint(kernel, AUTO) for kernel in range(len(ordered.tasks))])
        batch = max(len(ordered.tasks) // 4, math.ceil(left() / _ROUNDS))
        while within_time and left() > 0:
            known = _read(study, ordered, settings, possible)
            worth = expected_improvement(known, max_slowdown)
            if worth.sum() < _WORTHWHILE * float((known.count * known.auto_energy_j).sum()):
                break
            points = _best_points(worth, known.task, settings, min(batch, left()))
            within_time = run(points)
            for point in points:  # one that could not be measured is not tried again
                possible[point.kernel, settings.index(point.setting)] = False
        if within_time:
            recorder.finish()
            if left() <= 0:
                total.notes += _shortfall(allowed, whole, _read(study, ordered, settings, possible))
    return total


def estimate_search(
    device: Device,
    units: WorkloadTasks,
    settings: Sequence[Setting],
    done: Mapping[tuple[str, Setting], int],
    *,
    share: float,
    options: PointOptions | None = None,
    budget_s: float | None = None,
) -> Estimate:
    """How much a search may measure, and how long that takes at most; it ends earlier where nothing is left to find.

    Args:
        device: to measure on; it is neither set nor run.
        units: what to measure.
        settings: the grid, besides auto.
        done: how often each kernel was measured at each setting before.
        share: fraction of the grid's points, auto included, that may be measured.
        options: how to measure.
        budget_s: device time after which no further point is started.

    Raises:
        BadInputError: a share that is not above 0 and at most 1, or too small for every kernel at auto.
    """
    options = options or PointOptions()
    names = [task.name for task in units.tasks]
    kernels = len(names)
    whole = kernels + sum(device.launcher.can_run(task, setting) for task in units.tasks for setting in settings)
    allowed = _allowed(share, kernels, whole)
    at_auto = [SweepPoint(kernel, AUTO) for kernel in range(kernels) if not done.get((names[kernel], AUTO))]
    found_auto = kernels - len(at_auto)
    found = found_auto + sum(done.get((name, setting), 0) > 0 for name in names for setting in settings)
    left = max(allowed - found - len(at_auto), 0)
    span = points_s(units, at_auto, options, device=device)
    # Each of the turns begins by warming up; which settings its points are at is not known yet, only how many.
    batch = min(max(kernels // 4, math.ceil(left / _ROUNDS)), kernels)
    turns = math.ceil(left / batch) if batch else 0
    span = span.plus(Span.of(WARM_S), turns).plus(heated_point_s(units, options), left)
    return finished_estimate(
        device, units, "search", len(settings), allowed, min(found, allowed), replace(span, least_s=0.0), options, budget_s
    )


def expected_improvement(known: _MeasuredGrid, max_slowdown: float) -> FloatArray:
    """Joules that measuring each point is expected to save in an iteration, at the price of time; 0 where measured.

    Returns:
        Shape (kernels, settings).
    """
    predicted = predict_costs(
        known.core_mhz, known.memory_mhz, known.time_s, known.energy_j, known.auto_time_s, known.auto_energy_j
    )
    price = price_of_time(known, predicted, max_slowdown)
    value = known.count * (predicted.energy_j + price * predicted.time_s)
    time_error = price * predicted.time_s * predicted.time_error
    energy_error = predicted.energy_j * predicted.energy_error
    # Energy is power times time: their errors go together.
    error = known.count * np.sqrt(time_error**2 + energy_error**2 + time_error * energy_error)
    at_auto = known.count * (known.auto_energy_j + price * known.auto_time_s)
    values = np.where(known.measured, known.count * (known.energy_j + price * known.time_s), np.inf)
    best = np.minimum(values.min(axis=1, keepdims=True), at_auto)
    ahead = (best - value) / error
    worth = error * (ahead * ndtr(ahead) + np.exp(-0.5 * ahead**2) / math.sqrt(2.0 * math.pi))
    return np.where(known.measured | ~known.possible, 0.0, worth)


def price_of_time(known: _MeasuredGrid, predicted: Predicted, max_slowdown: float) -> float:
    """Joules that a second is worth at the budget: the mean of the price by measured points and that by predicted ones."""
    auto_s = float((known.count * known.auto_time_s).sum())
    prices = []
    for time, energy, available in (
        (known.time_s, known.energy_j, known.measured),
        (predicted.time_s, predicted.energy_j, known.possible | known.measured),
    ):
        times = np.concatenate([known.auto_time_s, np.where(available, time, np.inf)], axis=1)
        energies = np.concatenate([known.auto_energy_j, np.where(available, energy, np.inf)], axis=1)
        start = np.concatenate([[0], np.cumsum(available.sum(axis=1) + 1)])
        finite = np.isfinite(times)
        ways = Ways(times[finite], energies[finite], start=start, runs=known.count[:, 0].astype(np.int64))
        prices.append(choice(ways).price_of_time(auto_s * (1.0 + max_slowdown)))
    prices = [price for price in prices if price > 0.0]
    return float(np.mean(prices)) if prices else 0.0


def _ordered(units: WorkloadTasks) -> WorkloadTasks:
    """The same units, hottest first and else by name, whatever order they came in."""
    named = sorted(zip(units.tasks, units.kernels, strict=True), key=lambda unit: unit[0].name)
    tasks, kernels = zip(*(named[index] for index in hottest_first([task for task, _ in named])), strict=True)
    return replace(units, tasks=tasks, kernels=kernels)


def _allowed(share: float, kernels: int, whole: int) -> int:
    if not 0.0 < share <= 1.0:
        raise BadInputError(f"`share` {share}: must be above 0 and at most 1, such as 0.3")
    if int(share * whole) < kernels:
        raise BadInputError(
            f"`share` {share:g}: allows {int(share * whole):,} of {whole:,} points, but the {kernels:,} kernels at the "
            f"default clocks alone need {kernels:,}; give at least {_share_of(kernels, whole)}"
        )
    return int(share * whole)


def _shortfall(allowed: int, whole: int, known: _MeasuredGrid) -> list[str]:
    """What few points left undone, and which share would do; empty where they were enough."""
    kernels, offered = len(known.count), (known.possible | known.measured).sum(axis=1)
    enough = kernels + int(np.minimum(offered, _ENOUGH_POINTS).sum())
    if allowed >= enough:
        return []
    energy_j = known.count * known.auto_energy_j
    at_auto = ~known.measured.any(axis=1)
    undone = f"{at_auto.sum():,} of {kernels:,} kernels ({energy_j[at_auto].sum() / energy_j.sum():.0%} of the energy)"
    return [
        f"few points: {int(known.measured.sum()):,} besides the default clocks, at which {undone} stay; "
        f"a share of {_share_of(enough, whole)} would allow {_ENOUGH_POINTS} for each kernel and find more"
    ]


def _share_of(points: int, whole: int) -> str:
    """The least share, to three decimals, that allows that number of points."""
    thousandths = next(share for share in range(1, 1001) if int(share / 1000 * whole) >= points)
    return f"{thousandths / 1000:g}"


def _best_points(worth: FloatArray, task: NDArray[np.intp], settings: Sequence[Setting], most: int) -> list[SweepPoint]:
    """The most promising point of each of the most promising kernels, in an order that changes clocks rarely."""
    best = worth.argmax(axis=1)
    rows = np.argsort(-worth.max(axis=1), kind="stable")[:most]
    chosen = sorted((int(best[row]), int(task[row])) for row in rows if worth[row, best[row]] > 0.0)
    return [SweepPoint(kernel, settings[index]) for index, kernel in chosen]


def _read(study: Study, units: WorkloadTasks, settings: Sequence[Setting], possible: NDArray[np.bool_]) -> _MeasuredGrid:
    sweep = study.read(units.name, units.state, units.granularity)
    costs = combine_repeats(sweep)
    column = {AUTO: 0} | {setting: index for index, setting in enumerate(settings, start=1)}
    row_of = {task.name: row for row, task in enumerate(units.tasks)}
    time, energy = (np.full((len(row_of), len(column)), np.nan) for _ in range(2))
    for index in range(len(costs.time_s)):
        kernel, there = row_of.get(costs.kernels[costs.kernel[index]].name), column.get(costs.setting(index))
        if kernel is not None and there is not None:
            time[kernel, there], energy[kernel, there] = costs.time_s[index], costs.energy_j[index]
    count = np.array([[kernel.count] for kernel in units.kernels], dtype=np.float64)
    # By what was measured; sorting is stable, and the units are sorted by name, which decides between equals.
    order = np.lexsort((-time[:, 0], -(count[:, 0] * energy[:, 0])))
    core_mhz, memory_mhz = _clocks_in_effect(sweep, settings)
    return _MeasuredGrid(
        time[order, 1:], energy[order, 1:], time[order, :1], energy[order, :1], count[order], possible[order],
        core_mhz, memory_mhz, order,
    )  # fmt: skip


def _clocks_in_effect(sweep: Sweep, settings: Sequence[Setting]) -> tuple[FloatArray, FloatArray]:
    """Clocks in effect at each setting, as far as the sweep shows; a memory clock of auto counts as the highest."""
    highest = max((setting.memory_mhz for setting in settings if setting.memory_mhz is not None), default=1.0)
    pairs = [(setting.core_mhz or math.inf, setting.memory_mhz or highest) for setting in settings]
    # Where effective clocks are recorded at all they are at the default clocks, which reach the highest.
    if np.isfinite(sweep.effective_core_mhz).any():
        mapping = learn_clock_mapping(sweep)
        pairs = [mapping.in_effect(*pair) for pair in pairs]
    core, memory = np.array(pairs, dtype=np.float64).T
    return core, memory
