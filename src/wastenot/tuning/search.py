"""Search with few measurements: measure some points, fit a model, and spend the rest where it can still change the plan.

Only measured points enter a plan; the model only says where to measure next. At a price of time λ (the energy that a second
is worth at the budget) a kernel's best setting is that of least energy + λ · time, so an unmeasured point is worth as much
as it is expected to improve on the best measured one (expected improvement: Jones, Schonlau and Welch, Journal of Global
Optimization 13, 1998), times how often the kernel runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from wastenot.arrays import FloatArray
from wastenot.devices.protocol import Device
from wastenot.errors import BadInputError
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.nodes import Ways
from wastenot.planning.costs import combine_repeats
from wastenot.progress import Progress, Silent
from wastenot.setting import AUTO, Setting
from wastenot.study.coverage import Intent
from wastenot.study.store import Study
from wastenot.sweeping.point import PointOptions
from wastenot.sweeping.sweep import SweepOutcome, SweepPoint, recording, run_points
from wastenot.tasks import WorkloadTasks
from wastenot.tuning.calibration.clocks import ClockMapping, learn_clock_mapping
from wastenot.tuning.calibration.points import choose_pairs
from wastenot.tuning.calibration.predict import Predicted, predict_costs

_FIRST_POINTS = 5  # of each kernel, besides auto: the fewest that the model can be fitted to
_ROUNDS = 7  # of choosing among the rest
_WORTHWHILE = 1e-4  # fraction of the iteration's energy: the search ends once all points together promise less


@dataclass(frozen=True, eq=False)
class _MeasuredGrid:
    """What has been measured of the grid; arrays of shape (kernels, settings), NaN where nothing was.

    Attributes:
        time_s, energy_j: of one call.
        auto_time_s, auto_energy_j: the same at auto; shape (kernels, 1).
        count: how often each kernel runs; shape (kernels, 1).
        possible: which points can be measured at all.
        clocks: the clocks in effect for each pair requested.
    """

    time_s: FloatArray
    energy_j: FloatArray
    auto_time_s: FloatArray
    auto_energy_j: FloatArray
    count: FloatArray
    possible: NDArray[np.bool_]
    clocks: ClockMapping

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
        settings: the grid, besides auto; none of their clocks auto.
        share: fraction of the grid's points, auto included, that may be measured.
        max_slowdown: that plans will allow.
        options: how to measure.
        progress: is shown each point.
        budget_s: device time after which no further point is started.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: a share that is not above 0 and at most 1, or too small for the first points.
        StudyError: the study cannot be written; what was measured before is kept.
        DeviceError: the device does not measure.
    """
    progress, options = progress or Silent(), options or PointOptions()
    ends_s = math.inf if budget_s is None else device.time.now_s() + budget_s
    possible = np.array([[device.launcher.can_run(task, setting) for setting in settings] for task in units.tasks])
    allowed = _allowed(share, possible, len(units.kernels))
    progress.begin(allowed)
    total = SweepOutcome()

    names = [task.name for task in units.tasks]
    cannot = frozenset((names[kernel], settings[index]) for kernel, index in np.argwhere(~possible).tolist())
    intent = Intent("search", tuple(settings), cannot, share, max_slowdown, command)

    with recording(device, units, study, intent) as recorder:

        def run(points: Sequence[SweepPoint]) -> bool:
            outcome = run_points(device, units, recorder, points, options=options, progress=progress, ends_s=ends_s)
            total.add(outcome)
            return not outcome.out_of_time

        baselines = [SweepPoint(kernel, AUTO) for kernel in range(len(units.kernels))]
        within_time = run(baselines) and run(_first_points(possible, settings))
        left = allowed - _count(recorder.done)
        batch = max(len(units.kernels) // 4, math.ceil(left / _ROUNDS))
        while within_time and left > 0:
            known = _read(study, units, settings, possible)
            worth = expected_improvement(known, settings, max_slowdown)
            if worth.sum() < _WORTHWHILE * float((known.count * known.auto_energy_j).sum()):
                break
            points = _best_points(worth, settings, min(batch, left))
            if not points:
                break
            within_time = run(points)
            left = allowed - _count(recorder.done)
        if within_time:
            recorder.finish()
    return total


def expected_improvement(known: _MeasuredGrid, settings: Sequence[Setting], max_slowdown: float) -> FloatArray:
    """Joules that measuring each point is expected to save in an iteration, at the price of time; 0 where measured.

    Returns:
        Shape (kernels, settings).
    """
    pairs = [known.clocks.in_effect(setting.core_mhz or math.inf, setting.memory_mhz or math.inf) for setting in settings]
    core, memory = np.array(pairs, dtype=np.float64).T
    predicted = predict_costs(core, memory, known.time_s, known.energy_j)
    price = price_of_time(known, predicted, max_slowdown)
    value = known.count * (predicted.energy_j + price * predicted.time_s)
    time_error = price * predicted.time_s * predicted.time_error
    energy_error = predicted.energy_j * predicted.energy_error
    # Energy is power times time: their errors go together.
    error = known.count * np.sqrt(time_error**2 + energy_error**2 + time_error * energy_error)
    at_auto = known.count * (known.auto_energy_j + price * known.auto_time_s)
    values = np.where(known.measured, known.count * (known.energy_j + price * known.time_s), np.inf)
    best = np.minimum(values.min(axis=1, keepdims=True), at_auto)
    with np.errstate(divide="ignore", invalid="ignore"):
        ahead = (best - value) / error
        worth = error * (ahead * norm.cdf(ahead) + norm.pdf(ahead))
    return np.where(known.measured | ~known.possible, 0.0, np.nan_to_num(worth))


def price_of_time(known: _MeasuredGrid, predicted: Predicted, max_slowdown: float) -> float:
    """Joules that a second is worth at the budget: the mean of the price by measured points and that by predicted ones."""
    auto_s = float((known.count * known.auto_time_s).sum())
    prices = []
    for time, energy, available in (
        (known.time_s, known.energy_j, known.measured),
        (predicted.time_s, predicted.energy_j, known.possible),
    ):
        times = np.concatenate([known.auto_time_s, np.where(available, time, np.inf)], axis=1)
        energies = np.concatenate([known.auto_energy_j, np.where(available, energy, np.inf)], axis=1)
        start = np.concatenate([[0], np.cumsum(available.sum(axis=1) + 1)])
        finite = np.isfinite(times)
        ways = Ways(times[finite], energies[finite], start=start, runs=known.count[:, 0].astype(np.int64))
        prices.append(choice(ways).price_of_time(auto_s * (1.0 + max_slowdown)))
    prices = [price for price in prices if price > 0.0]
    return float(np.mean(prices)) if prices else 0.0


def _allowed(share: float, possible: NDArray[np.bool_], kernels: int) -> int:
    if not 0.0 < share <= 1.0:
        raise BadInputError(f"`share` {share}: must be above 0 and at most 1, such as 0.3")
    whole = int(possible.sum()) + kernels
    least = kernels + int(np.minimum(possible.sum(axis=1), _FIRST_POINTS).sum())
    if int(share * whole) < least:
        raise BadInputError(
            f"`share` {share:g}: allows {int(share * whole):,} of {whole:,} points, but the first {least:,} are needed; "
            f"give at least {least / whole + 5e-4:.3f}"
        )
    return int(share * whole)


def _first_points(possible: NDArray[np.bool_], settings: Sequence[Setting]) -> list[SweepPoint]:
    used: Counter[tuple[int, int]] = Counter()
    points = []
    for kernel, can_run in enumerate(possible):
        offered = [settings[index] for index in np.flatnonzero(can_run).tolist()]
        pairs = [(setting.core_mhz or 0.0, setting.memory_mhz or 0.0) for setting in offered]
        points += [SweepPoint(kernel, offered[index]) for index in choose_pairs(pairs, used, _FIRST_POINTS)]
    return _in_order(points, settings)


def _best_points(worth: FloatArray, settings: Sequence[Setting], most: int) -> list[SweepPoint]:
    """The most promising point of each of the most promising kernels."""
    best = worth.argmax(axis=1)
    kernels = np.argsort(-worth.max(axis=1), kind="stable")[:most]
    chosen = [
        SweepPoint(int(kernel), settings[int(best[kernel])]) for kernel in kernels if worth[kernel, best[kernel]] > 0.0
    ]
    return _in_order(chosen, settings)


def _in_order(points: Sequence[SweepPoint], settings: Sequence[Setting]) -> list[SweepPoint]:
    """The points in an order that changes clocks rarely."""
    index_of = {setting: index for index, setting in enumerate(settings)}
    return sorted(points, key=lambda point: (index_of[point.setting], point.kernel))


def _read(study: Study, units: WorkloadTasks, settings: Sequence[Setting], possible: NDArray[np.bool_]) -> _MeasuredGrid:
    sweep = study.read(units.name, units.state, units.granularity)
    costs = combine_repeats(sweep)
    index_of = {setting: index for index, setting in enumerate(settings)}
    shape = possible.shape
    time, energy = np.full(shape, np.nan), np.full(shape, np.nan)
    for row in range(len(costs.time_s)):
        index = index_of.get(costs.setting(row))
        if index is not None:
            time[costs.kernel[row], index], energy[costs.kernel[row], index] = costs.time_s[row], costs.energy_j[row]
    auto = costs.start[:-1]
    return _MeasuredGrid(
        time,
        energy,
        costs.time_s[auto][:, None],
        costs.energy_j[auto][:, None],
        costs.count[:, None].astype(np.float64),
        possible,
        learn_clock_mapping(sweep),
    )


def _count(done: Counter[tuple[str, Setting]]) -> int:
    return sum(times > 0 for times in done.values())
