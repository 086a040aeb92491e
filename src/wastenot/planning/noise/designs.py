"""Kernels grouped by the settings that they share, with the shapes that their surfaces over these are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.planning.costs import Costs
from wastenot.planning.noise.hyperparameters import LARGEST_FIT
from wastenot.planning.noise.measured import Measured
from wastenot.planning.noise.shapes import Shapes, ShapeTable, TimeShape
from wastenot.planning.noise.surface import Readings
from wastenot.study.sweep import Sweep

FEW_SETTINGS = 8  # of a kernel, auto among them, to which only the main shapes are fitted
_MEMORY_STATES = 6  # the highest, whose power is fitted separately
_LEAST_CLOCKS = 3  # of the lower half, to tell where time per clock gets flatter
_BOUND = 0.5  # of a lower clock's slowing: kernels that show less of it do not tell the clock
_HIGH_CORES = 3  # core clocks at which bandwidth is looked at
_LEAST_TIME_NOISE = 1e-9  # variance of a log time
_TOGETHER = 1024  # kernels that are compared with a table at once
_CHUNK = 1 << 21  # numbers of matrices of all settings, for kernels that are looked at at once
_RIDGE = 1e-6  # keeps least squares regular where settings are fewer than shapes


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Kernels that share their settings.

    Attributes:
        rows: of the costs, shape (kernels, settings).
        clocks: logarithms of those that vary, shape (settings, dimensions).
        shapes: that their surfaces are made of.
    """

    rows: IndexArray
    clocks: FloatArray
    shapes: Shapes

    def readings(self, measured: Measured, kernels: IndexArray, power: bool) -> Readings:
        """What was measured of some of its kernels."""
        shapes = self.shapes.of_power(kernels) if power else self.shapes.of_time(kernels)
        rows = self.rows[kernels]
        return Readings(
            self.clocks,
            shapes,
            value=measured.value[rows],
            noise=measured.noise[rows],
            rest_scale=measured.rest_scale[rows],
            more_noise=measured.more_noise[rows],
            noise_error=measured.noise_error,
            offset=measured.offset[rows],
            offset_error=measured.offset_error[rows],
            own=0 if power else self.shapes.directions.shape[1],
        )

    def chunks(self) -> Iterator[IndexArray]:
        """Its kernels, few enough at once that their matrices are small."""
        kernels, settings = self.rows.shape
        return iter(np.array_split(np.arange(kernels), -(-kernels * settings**2 // _CHUNK)))

    def unexplained(self, measured: Measured, power: bool, left: FloatArray) -> None:
        """Set what the shapes leave of its kernels, by least squares, in ``left``; shape (rows,)."""
        for chunk in self.chunks():
            readings = self.readings(measured, chunk, power)
            shapes, value = readings.shapes, readings.value
            inner = shapes @ shapes.transpose(0, 2, 1) + _RIDGE * np.eye(shapes.shape[1])
            weight = np.linalg.solve(inner, shapes @ value[:, :, None])
            left[self.rows[chunk]] = value - (weight.transpose(0, 2, 1) @ shapes)[:, 0]


def sample_of(costs: Costs) -> IndexArray:
    """The kernels from which is learnt what kernels have in common: all, or of many a random choice, always the same."""
    kernels = len(costs.kernels)
    if kernels <= LARGEST_FIT:
        return np.arange(kernels)
    return np.sort(np.random.default_rng(0).choice(kernels, LARGEST_FIT, replace=False))


def make_designs(sweep: Sweep, costs: Costs, time: Measured, row: IndexArray, repeats: IndexArray) -> list[Design]:
    """The kernels by the settings that they share, and the shapes of their times and powers.

    Args:
        sweep: every reading.
        costs: the same with repeats combined.
        time: logarithms of the times.
        row: of the costs that each reading belongs to.
        repeats: readings of each row.
    """
    log_time, noise = time.value, float(np.median(time.noise))
    settings = np.column_stack([costs.core_mhz, costs.memory_mhz, costs.power_limit_w])
    highest = np.log([1.0 if np.isnan(column).all() else np.nanmax(column) for column in settings.T])
    logs = np.nan_to_num(np.log(settings) - highest)  # of each setting over the highest, auto at it
    effective, effective_memory = (
        np.log(np.bincount(row, recorded) / repeats) - most
        for recorded, most in zip((sweep.effective_core_mhz, sweep.effective_memory_mhz), highest[:2], strict=True)
    )
    held = bool(np.isnan(effective).any())
    core = _core_rates(costs, log_time, logs[:, 0] if held else effective, noise)
    in_effect = logs[:, 1] if np.isnan(effective_memory).any() else effective_memory
    memory = _memory_rates(costs, log_time, np.unique(logs[:, 1]), in_effect)
    varying = np.ptp(logs, axis=0) > 0
    clocks, automatic = logs[:, varying], np.isnan(settings[:, varying])
    others = [logs[:, 2]] if varying[2] else []
    states = np.unique(memory)[-_MEMORY_STATES:-1]
    fits = _time_shapes(costs, log_time, core, memory, held, noise)
    designs = []
    for rows in _shared_settings(costs, clocks, automatic):
        members = [fits[kernel] for kernel in costs.kernel[rows[:, 0]].tolist()]
        first = rows[0]
        shapes = Shapes(
            core=np.minimum(core[rows], np.array([fit.limit for fit in members])[:, None]),
            memory=memory[rows],
            mean=np.stack([fit.mean for fit in members]),
            directions=np.stack([fit.directions for fit in members]),
            ratio=np.array([[fit.ratio] for fit in members]),
            exponent=np.array([[fit.exponent] for fit in members]),
            automatic=np.where(automatic[first].any(axis=1), 1.0, 0.0),
            others=[log[first] for log in others],
            states=states,
            held=held,
            few=bool(np.diff(costs.start).min() <= FEW_SETTINGS),
        )
        designs.append(Design(rows, clocks[first], shapes))
    return designs


def _time_shapes(
    costs: Costs, log_time: FloatArray, core: FloatArray, memory: FloatArray, held: bool, least_noise: float
) -> list[TimeShape]:
    """The shape of each kernel's time; kernels at the same clocks share a table."""
    spans = [slice(*span) for span in zip(costs.start[:-1].tolist(), costs.start[1:].tolist(), strict=True)]
    members: dict[bytes, list[int]] = {}
    for kernel, span in enumerate(spans):
        members.setdefault(core[span].tobytes() + memory[span].tobytes(), []).append(kernel)
    sampled = set(sample_of(costs).tolist())
    tables: dict[bytes, ShapeTable] = {}
    left: list[float] = []
    for key, kernels in members.items():
        some = sampled.intersection(kernels)
        if some:
            tables[key] = ShapeTable(core[spans[kernels[0]]], memory[spans[kernels[0]]], held)
            settings = spans[kernels[0]].stop - spans[kernels[0]].start
            misfits = tables[key].least_misfits(np.stack([log_time[spans[kernel]] for kernel in sorted(some)]))
            left += (misfits / max(1, settings - 4)).tolist()
    noise = max(float(np.median(left)), least_noise, _LEAST_TIME_NOISE)
    shapes: dict[int, TimeShape] = {}
    for key, kernels in members.items():
        table = tables.get(key) or ShapeTable(core[spans[kernels[0]]], memory[spans[kernels[0]]], held)
        for first in range(0, len(kernels), _TOGETHER):
            chunk = kernels[first : first + _TOGETHER]
            found = table.time_shapes(np.stack([log_time[spans[kernel]] for kernel in chunk]), noise)
            shapes |= zip(chunk, found, strict=True)
    return [shapes[kernel] for kernel in range(len(spans))]


def _core_rates(costs: Costs, log_time: FloatArray, log_core: FloatArray, noise: float) -> FloatArray:
    """Logarithm of the core clock that each row really had, from those reported or requested, shape (rows,).

    A GPU keeps its clock above a floor, whatever it reports. The lower the clock, the more of a kernel's time it bounds, so
    log time over log clock never gets flatter towards low clocks. Where it does, of the kernels that low clocks slow most at
    the highest memory clock, the clock is higher than reported.
    """
    highest = np.isnan(costs.memory_mhz) | (costs.memory_mhz == np.nanmax(costs.memory_mhz, initial=0.0))
    clocks = np.unique(costs.core_mhz[~np.isnan(costs.core_mhz)])
    places = [highest & (costs.core_mhz == clock) for clock in clocks[: (len(clocks) + 1) // 2]]
    levels = np.array([[_by_kernel(costs, each, place) for place in places] for each in (log_time, log_core)])
    levels = levels.reshape(2, len(places), len(costs.kernels))
    known = np.flatnonzero(~np.isnan(levels).any(axis=(0, 2)))
    if len(known) < _LEAST_CLOCKS:
        return log_core
    time, clock = levels[:, known]
    bound = np.argsort(time[-1] - time[0])[: max(3, len(costs.kernels) // 4)]
    step = np.diff(clock.mean(axis=1))
    slope = -np.diff(time[:, bound].mean(axis=1)) / step
    steepest = np.maximum.accumulate(slope[::-1])[::-1]
    unsure = np.sqrt(2.0 * noise / len(bound)) / step
    missing = np.where((steepest > _BOUND) & (slope < steepest - 2.0 * unsure), step * (1.0 - slope / steepest), 0.0)
    real = np.append(np.cumsum(missing[::-1])[::-1], 0.0)
    return np.asarray(log_core + np.nan_to_num(np.interp(costs.core_mhz, clocks[known], real)))


def _memory_rates(costs: Costs, log_time: FloatArray, clocks: FloatArray, log_memory: FloatArray) -> FloatArray:
    """Logarithm of the rate at which each row's memory delivers over that at the highest memory clock, shape (rows,).

    Bandwidth is not quite proportional to the clock in effect, so it is measured: by how much a lower memory clock slows
    those kernels that the lowest slows most, each against the next higher at the highest core clocks that both have.
    """
    state = np.abs(log_memory[:, None] - clocks).argmin(axis=1)
    core = np.nan_to_num(costs.core_mhz, nan=np.inf)
    slowing = np.zeros((len(costs.kernels), len(clocks)))
    upper = len(clocks) - 1
    for lower in reversed(range(upper)):
        shared = np.intersect1d(core[state == lower], core[state == upper])[-_HIGH_CORES:]
        levels = [_by_kernel(costs, log_time, (state == each) & np.isin(core, shared)) for each in (lower, upper)]
        slowing[:, lower] = slowing[:, upper] + levels[0] - levels[1]
        upper = upper if np.isnan(slowing[:, lower]).any() else lower
    known = ~np.isnan(slowing).any(axis=0)
    bound = np.argsort(-slowing[:, np.flatnonzero(known)[0]])[: max(3, len(slowing) // 4)]
    beyond = np.interp(clocks, clocks[known], -slowing[bound].mean(axis=0)[known] - clocks[known])
    return np.asarray((clocks + beyond)[state])


def _by_kernel(costs: Costs, value: FloatArray, taken: NDArray[np.bool_]) -> FloatArray:
    """Mean over the rows taken of each kernel, NaN where there are none; shape (kernels,)."""
    total, number = (np.bincount(costs.kernel[taken], each, len(costs.kernels)) for each in (value[taken], None))
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _shared_settings(costs: Costs, clocks: FloatArray, automatic: NDArray[np.bool_]) -> list[IndexArray]:
    """Rows of kernels that have their settings in common, shape (kernels, settings) each."""
    settings = np.column_stack([clocks, automatic])
    members: dict[bytes, list[IndexArray]] = {}
    for first, last in zip(costs.start[:-1].tolist(), costs.start[1:].tolist(), strict=True):
        members.setdefault(settings[first:last].tobytes(), []).append(np.arange(first, last))
    return [np.stack(kernels) for kernels in members.values()]
