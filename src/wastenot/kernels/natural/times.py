"""Time by clock of one kernel, from groups of calls: straight lines in logarithms, within what physics allows.

    log time    ╲ · ·             groups of one stretch of time err together, and so do those of one run;
                 ╲ ·· ·           other data shift a kernel's time a little, but by the same factor at all clocks
                  ╲___·_·__
                log clock

Errors in common are random effects whose size all kernels together determine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.kernels.natural.curves import TIME_SLOPES, nearest_within
from wastenot.kernels.natural.seen import Groups, Load
from wastenot.planning.natural import hat_weights

KNOT_STEP_MHZ = 50.0
"""About how far knots lie apart."""

FEWEST_GROUPS = 8
"""Groups at and beyond a clock, without which it does not count as seen."""

_FEWEST_FRACTION = 0.015  # of all groups, likewise: the clock moves fast where a kernel hardly ever is
_SMOOTH = 1.5  # standard deviation of a change of slope over a unit of log clock
_DATA_ERROR = 0.02  # by how much other data change a kernel's time
_CELL = 0.005  # of log clock, over which groups of a block are averaged
_OFF = 4.0  # standard deviations, by which a group may be off
_ROBUST = 2.5  # standard deviations from which a mean of groups counts less
_ROUNDS = 6
_DRAWS = 400
_LEAST_ERROR = 2e-4  # of a group


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of the logarithm of time.

    Attributes:
        run: that all groups of a run have in common.
        block: that neighbouring groups have in common.
    """

    run: float = 0.002
    block: float = 0.0005


@dataclass(frozen=True, slots=True, eq=False)
class TimeFit:
    """Log time at the knots, shape (knots,), its covariance, and what is left over.

    Attributes:
        knots_mhz: clocks, ascending.
        log_time: at each.
        covariance: of its errors.
        groups: number of groups used.
        runs, blocks: random effects, each with its posterior variance; shape (effects, 2).
    """

    knots_mhz: FloatArray
    log_time: FloatArray
    covariance: FloatArray
    groups: int
    runs: FloatArray
    blocks: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Observed:
    """Means over groups of one block at about one clock, so that no more is solved for than is known."""

    log_mhz: FloatArray
    log_s: FloatArray
    groups: FloatArray
    run: IndexArray
    block: IndexArray
    data: IndexArray


def knots_mhz(clocks: FloatArray) -> FloatArray:
    """Knots over the range that clocks were seen in, equally spaced in logarithms."""
    ordered = np.sort(clocks)
    beyond = min(max(FEWEST_GROUPS, round(_FEWEST_FRACTION * len(ordered))), max((len(ordered) - 1) // 2, 0))
    low, high = float(ordered[beyond]), float(ordered[-1 - beyond])
    number = round((high - low) / KNOT_STEP_MHZ)
    return np.geomspace(low, high, number + 1) if number else np.array([0.5 * (low + high)])


def fit_time(runs: Sequence[Groups], kernel: Load, spread: Spread) -> TimeFit | None:
    """Fit the time of a kernel by its clock.

    Args:
        runs: that it may occur in.
        kernel: its name, and the data that its time is asked for.
        spread: of errors in common.

    Returns:
        ``None`` where no group of it was seen.
    """
    seen = _observed(runs, kernel)
    if seen is None:
        return None
    knots = knots_mhz(np.repeat(np.exp(seen.log_mhz), seen.groups.astype(int)))
    log_knots = np.log(knots)
    groups = int(seen.groups.sum())
    inside = (seen.log_mhz >= log_knots[0] - 0.01) & (seen.log_mhz <= log_knots[-1] + 0.01)
    seen = _Observed(*(getattr(seen, name)[inside] for name in _Observed.__slots__))
    hats = hat_weights(seen.log_mhz, log_knots)
    effects = (seen.run, seen.block, seen.data)
    numbers = [int(each.max(initial=-1)) + 1 for each in effects]
    knots_n, precision = len(knots), _prior(log_knots, numbers, spread)
    design = np.concatenate([hats, *(np.eye(number)[each] for each, number in zip(effects, numbers, strict=True))], axis=1)
    weight, error = seen.groups, 0.0
    middle = float(np.median(seen.log_s))
    for _ in range(_ROUNDS):
        solved, residual = _solved(design, seen.log_s - middle, weight, max(error, _LEAST_ERROR), precision)
        scaled = np.abs(residual) * np.sqrt(seen.groups)
        error = max(float(1.4826 * np.median(scaled)), _LEAST_ERROR)
        weight = seen.groups * np.minimum(_ROBUST * error / np.maximum(scaled, 1e-12), 1.0)
    covariance = np.asarray(np.linalg.inv(design.T @ (design * (weight / error**2)[:, None]) + precision), dtype=float)
    variance = np.diag(covariance)
    log_time, log_cov = within(middle + solved[:knots_n], covariance[:knots_n, :knots_n], log_knots, TIME_SLOPES)
    first_block, first_data = knots_n + numbers[0], knots_n + numbers[0] + numbers[1]
    parts = np.column_stack([solved, variance])
    return TimeFit(knots, log_time, log_cov, groups, parts[knots_n:first_block], parts[first_block:first_data])


def pooled_spread(fits: Sequence[TimeFit], before: Spread) -> Spread:
    """The sizes of errors in common by expectation maximisation, over all kernels."""
    return Spread(
        run=_pooled([fit.runs for fit in fits], before.run, least=3e-4),
        block=_pooled([fit.blocks for fit in fits], before.block, least=1e-4),
    )


def _pooled(effects: Sequence[FloatArray], before: float, least: float) -> float:
    each = np.concatenate(effects)
    # A few effects must not say that there are none: four as large as before count as well.
    return max(float(np.sqrt((np.sum(each[:, 0] ** 2 + each[:, 1]) + 4.0 * before**2) / (len(each) + 4.0))), least)


def _observed(runs: Sequence[Groups], kernel: Load) -> _Observed | None:
    log_mhz, log_s, run, block, data = [], [], [], [], []
    names: list[str] = []
    blocks = 0
    for index, groups in enumerate(runs):
        for load, (name, its_data) in enumerate(groups.loads):
            used = groups.used(load)
            if name != kernel[0] or not len(used):
                continue
            if its_data != kernel[1] and its_data not in names:
                names.append(its_data)
            log_mhz.append(np.log(groups.core_mhz[used]))
            log_s.append(np.log(groups.call_s[used]))
            run.append(np.full(len(used), index))
            block.append(blocks + groups.block[used])
            data.append(np.full(len(used), -1 if its_data == kernel[1] else names.index(its_data)))
        blocks += int(groups.block.max(initial=-1)) + 1
    if not log_s or not any(np.any(each == -1) for each in data):
        return None
    each = [np.concatenate(one) for one in (log_mhz, log_s, run, block, data)]
    return _averaged(each[0], each[1], *(np.asarray(one, dtype=np.intp) for one in each[2:]))


def _averaged(log_mhz: FloatArray, log_s: FloatArray, run: IndexArray, block: IndexArray, data: IndexArray) -> _Observed:
    """Means over groups of a block at about one clock; single groups far from the others count as at the edge of them."""
    at = np.floor(log_mhz / _CELL).astype(np.intp)
    _, cell, number = np.unique(np.column_stack([block, data, at]), axis=0, return_inverse=True, return_counts=True)
    cell = cell.ravel()  # NumPy 2.0 keeps the axis
    order = np.lexsort((log_s, cell))
    first = np.cumsum(number) - number
    median = log_s[order][first + number // 2]
    off = log_s - median[cell]
    most = max(float(_OFF * 1.4826 * np.median(np.abs(off))), _CELL)
    clipped = median[cell] + np.clip(off, -most, most)

    def mean(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(cell, values) / number)

    some = order[first]  # of each cell
    return _Observed(
        mean(log_mhz), mean(clipped), number.astype(float), np.unique(run[some], return_inverse=True)[1],
        np.unique(block[some], return_inverse=True)[1], data[some] + 1,
    )  # fmt: skip


def _prior(log_knots: FloatArray, numbers: Sequence[int], spread: Spread) -> FloatArray:
    """Precision of the unknowns: slopes change slowly, effects are small, and what is its own has no shift."""
    knots = len(log_knots)
    precision = np.zeros((knots + sum(numbers), knots + sum(numbers)))
    if knots > 2:
        step = np.diff(log_knots)
        slopes = np.diff(np.eye(knots), axis=0) / step[:, None]
        changes = np.diff(slopes, axis=0) / (_SMOOTH * np.sqrt(0.5 * (step[1:] + step[:-1])))[:, None]
        precision[:knots, :knots] += changes.T @ changes
    at = np.arange(knots, len(precision))
    of_data = np.full(numbers[2], _DATA_ERROR)
    of_data[0] = 1e-6
    errors = np.concatenate([np.full(numbers[0], spread.run), np.full(numbers[1], spread.block), of_data])
    precision[at, at] += errors**-2
    return precision


def _solved(
    design: FloatArray, log_s: FloatArray, weight: FloatArray, error: float, precision: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Penalised least squares, and what is left over."""
    weighted = design * (weight / error**2)[:, None]
    tiny = 1e-9 * np.eye(len(precision))
    solved = np.asarray(np.linalg.solve(design.T @ weighted + precision + tiny, weighted.T @ log_s), dtype=float)
    return solved, log_s - design @ solved


def within(
    value: FloatArray, covariance: FloatArray, position: FloatArray, slopes: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of likely curves, each moved to the nearest whose slopes lie within bounds."""
    size, along = np.linalg.eigh(covariance)
    standard = np.random.default_rng(0).standard_normal((_DRAWS // 2, len(value)))
    draws = np.concatenate([standard, -standard]) @ (along * np.sqrt(np.maximum(size, 0.0))).T
    moved = nearest_within(value + draws, position, slopes)
    return moved.mean(axis=0), np.atleast_2d(np.cov(moved.T))
