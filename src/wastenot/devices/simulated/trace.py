"""How power varies within and between executions on a simulated GPU: everything that steady means leave out.

Power above idle follows demand with two lags, a fast one (voltage regulators, on-chip capacitance) and a slow one (clocks
and voltage guard bands that the firmware adjusts):

    demand    ▁▁█▇▆│█▇▆│█▇▆│█▇▆│▁▁▁▁      an execution's shape, scaled to its power in steady state
    power     ▁▁▄▆▆│▇▇▇│▇▇▇│█▇▇│▅▂▁▁      (1 - slow_share) · fast lag + slow_share · slow lag

In addition, as observed by FinGraV (Singhania et al., §§III to V): the first executions from rest take longer, whichever
kernel they run; runs differ slightly in time, a few by much; a heavy kernel draws more at first, until the firmware responds
and holds it lower for a while; a light kernel after a heavy one draws more than alone (carry-over). In steady state the mean
is exactly that of the operating point, since lags preserve means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.devices.simulated.dynamics import Dynamics, Firmware, Shape
from wastenot.devices.simulated.power_history import PowerHistory

_SEGMENTS = 32  # maximum number of pieces of constant demand in an execution
_LEAST_SEGMENTS = 4
_IN_FAST_LAG = 16  # segments per time constant of the fast lag: finer ones make no difference to power
_TAIL_SEGMENTS = 64
_LONGEST_EXPONENT = 200.0  # range over which a lag's solution is summed at once
_TAIL_LAGS = 8.0  # number of slow lags after which power counts as idle


@dataclass(frozen=True, slots=True)
class Parts:
    """Power by consumer, in watts.

    Attributes:
        base: board, idle chip and memory.
        core: arithmetic, on-chip traffic, clock tree, leakage.
        memory: traffic of device memory.
    """

    base: float
    core: float
    memory: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.base + self.core + self.memory

    def as_array(self) -> FloatArray:
        """Shape (3,)."""
        return np.array([self.base, self.core, self.memory])


@dataclass(frozen=True, slots=True)
class Steady:
    """A kernel run back to back in steady state: its operation, the time of an execution, and its power."""

    op: str
    time_s: float
    parts: Parts


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """True power of a run, from its first execution on.

    Attributes:
        kernel: index of each execution's kernel; shape (executions,).
        begin_s, end_s: start and end of each execution, relative to the start of the first; shape (executions,).
        history: power from the start of the first execution until it is idle again.
        core_mhz: mean core clock of each execution; ``None`` where it is that of the kernel in steady state.
    """

    kernel: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    history: PowerHistory
    core_mhz: FloatArray | None = None


class Paced(NamedTuple):
    """Executions one after another while the clock changes.

    Attributes:
        time_s: time of each; shape (executions,).
        above_w: mean power above idle by consumer; shape (3, executions).
        core_mhz: mean core clock of each.
    """

    time_s: FloatArray
    above_w: FloatArray
    core_mhz: FloatArray


def trace(
    dynamics: Dynamics,
    kernels: Sequence[Steady],
    order: Sequence[int],
    idle: Parts,
    rng: np.random.Generator | None = None,
    pace: Callable[[IndexArray, FloatArray], Paced] | None = None,
) -> Trace:
    """Simulate executions from rest.

    Args:
        dynamics: dynamics of the GPU.
        kernels: the kernels in steady state.
        order: index of each execution's kernel.
        idle: power at rest.
        rng: source of randomness; ``None`` for none.
        pace: what executions do where the clock changes meanwhile, by their kernels and by how much slower they are than in
            steady state; ``None`` where each kernel runs as in steady state from the first on.
    """
    kernel_of = np.asarray(order, dtype=np.intp)
    factor = _times(dynamics, kernel_of, rng)
    segments = _segments(dynamics, kernels)
    ran = None if pace is None else pace(kernel_of, factor)
    seconds = np.array([kernel.time_s for kernel in kernels])[kernel_of] * factor if ran is None else ran.time_s
    ends = np.cumsum(seconds)
    begins = ends - seconds
    step_s = np.repeat(seconds / segments, segments)
    middle = (begins[:, None] + (np.arange(segments) + 0.5) / segments * seconds[:, None]).ravel()
    idle_w = idle.as_array()
    above = np.array([kernel.parts.as_array() - idle_w for kernel in kernels])
    shapes = np.array([_demand(dynamics.shape_of(kernel.op), segments) for kernel in kernels])
    if ran is None:
        by_part = np.ascontiguousarray(np.moveaxis(shapes * above[:, None, :], 2, 0))  # (parts, kernels, segments)
        demand = (by_part[:, kernel_of] / factor[:, None]).reshape(3, -1)
        above_w = np.repeat(above.T[:, kernel_of], segments, axis=1)
    else:
        demand = (np.moveaxis(shapes, 2, 0)[:, kernel_of] * ran.above_w[:, :, None]).reshape(3, -1)
        above_w = np.repeat(ran.above_w, segments, axis=1)
    begin_s = np.repeat(begins, segments)
    heavy = None
    if dynamics.firmware is not None:
        kernels_heavy = np.array([kernel.parts.total >= dynamics.firmware.heavy_w for kernel in kernels])
        heavy = np.repeat(kernels_heavy[kernel_of], segments)
    demand = respond(dynamics, demand, above_w, np.repeat(kernel_of, segments), begin_s, middle, heavy)
    core_mhz = None if ran is None else ran.core_mhz
    return Trace(kernel_of, begins, ends, history_of(dynamics, demand, step_s, idle), core_mhz)


def respond(
    dynamics: Dynamics,
    demand: FloatArray,
    above_w: FloatArray,
    kernel_of: IndexArray,
    begin_s: FloatArray,
    middle_s: FloatArray,
    heavy: BoolArray | None,
) -> FloatArray:
    """Demand as firmware and carry-over change it.

    Args:
        dynamics: dynamics of the GPU.
        demand: power above idle that each piece of time demands; shape (parts, pieces).
        above_w: the same in steady state, without the shape of executions.
        kernel_of: index of each piece's kernel; shape (pieces,).
        begin_s: when the execution that each piece belongs to begins.
        middle_s: the middle of each piece.
        heavy: whether firmware responds to each piece's kernel; ``None`` for none.
    """
    if dynamics.firmware is not None and heavy is not None and heavy.any():
        held = _held(dynamics.firmware, middle_s - begin_s[np.argmax(heavy)])
        demand = demand * np.where(heavy, held, 1.0)
    if dynamics.carry_over_share:
        demand = demand + _carry_over(dynamics, kernel_of, begin_s, middle_s, above_w)
    return demand


def history_of(dynamics: Dynamics, demand: FloatArray, step_s: FloatArray, idle: Parts) -> PowerHistory:
    """Power that follows demand with both lags, until it is idle again.

    Args:
        dynamics: dynamics of the GPU.
        demand: power above idle that is demanded over pieces of time; shape (parts, pieces).
        step_s: their lengths.
        idle: power at rest.
    """
    idle_w = idle.as_array()
    used, state = _lags(dynamics, demand, step_s)
    tail_s = np.linspace(0.0, 1.0, _TAIL_SEGMENTS + 1)[1:] ** 2 * _TAIL_LAGS * max(dynamics.fast_s, dynamics.slow_s)
    fall = sum(
        share * state[lag][:, None] * (-lag_s * np.expm1(-tail_s / lag_s))
        for lag, (lag_s, share) in enumerate(_lag_parts(dynamics))
    )
    pieces_s = np.cumsum(step_s)
    moment_s = np.concatenate([[0.0], pieces_s, pieces_s[-1] + tail_s])
    energy_j = np.zeros((3, len(moment_s)))
    np.cumsum(used, axis=1, out=energy_j[:, 1 : used.shape[1] + 1])
    energy_j[:, used.shape[1] + 1 :] = energy_j[:, [used.shape[1]]] + fall
    energy_j += moment_s * idle_w[:, None]
    return PowerHistory(moment_s, energy_j)


def _segments(dynamics: Dynamics, kernels: Sequence[Steady]) -> int:
    """Number of pieces of constant demand per execution."""
    longest_s = max(kernel.time_s for kernel in kernels)
    return min(max(math.ceil(_IN_FAST_LAG * longest_s / dynamics.fast_s), _LEAST_SEGMENTS), _SEGMENTS)


def _times(dynamics: Dynamics, kernel_of: IndexArray, rng: np.random.Generator | None) -> FloatArray:
    """Times of executions relative to steady state."""
    factor = np.ones(len(kernel_of))
    warm_up = dynamics.warm_up[: len(kernel_of)]
    factor[: len(warm_up)] += warm_up
    if rng is None:
        return factor
    run = math.exp(dynamics.run_jitter * float(rng.standard_normal()))
    if rng.uniform() < dynamics.outlier_chance:
        run *= 1.0 + dynamics.outlier_slower * float(rng.uniform(0.7, 1.3))
    return np.asarray(factor * run * np.exp(dynamics.jitter * rng.standard_normal(len(kernel_of))))


def carry_over_j(dynamics: Dynamics, before_w: FloatArray, own_w: FloatArray, lasting_s: FloatArray) -> FloatArray:
    """Carry-over energy of a kernel after another one in steady state, in closed form.

    The preceding kernel's excess power, times the carry-over fraction, decays while the kernel runs; lags shift that energy
    in time but preserve it. Tests compare it with :func:`trace`.

    Args:
        dynamics: dynamics of the GPU.
        before_w: steady power of the preceding kernel.
        own_w: steady power of the kernel itself.
        lasting_s: time for which it runs until the next kernel starts.
    """
    extra_w = dynamics.carry_over_share * np.maximum(before_w - own_w, 0.0)
    return np.asarray(-extra_w * dynamics.carry_over_s * np.expm1(-lasting_s / dynamics.carry_over_s))


def _carry_over(
    dynamics: Dynamics, kernel_of: IndexArray, begin_s: FloatArray, middle_s: FloatArray, above_w: FloatArray
) -> FloatArray:
    """Carry-over power of light kernels after heavy ones; shape (parts, pieces)."""
    total_w = above_w.sum(axis=0)
    changes = [*(np.flatnonzero(np.diff(kernel_of)) + 1).tolist(), len(kernel_of)]
    extra_w = np.zeros_like(above_w)
    for first, last in pairwise(changes):
        initial_w = dynamics.carry_over_share * max(total_w[first - 1] - total_w[first], 0.0)
        part = slice(first, last)
        decayed_w = initial_w * np.exp(-(middle_s[part] - begin_s[first]) / dynamics.carry_over_s)
        extra_w[:, part] = decayed_w * (above_w[:, first] / max(total_w[first], 1e-9))[:, None]
    return extra_w


def _lag_parts(dynamics: Dynamics) -> tuple[tuple[float, float], tuple[float, float]]:
    """Time constant and weight of each lag."""
    return (dynamics.fast_s, 1.0 - dynamics.slow_share), (dynamics.slow_s, dynamics.slow_share)


def _lags(dynamics: Dynamics, demand: FloatArray, step_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Energy above idle of each segment (parts, segments), and each lag's final state (lags, parts).

    x' = (demand - x) / lag has the solution x(t) = exp(-t / lag) · (x(0) + Σ (exp(t_end / lag) - exp(t_begin / lag)) ·
    demand), summed piecewise so that the exponentials stay finite.
    """
    used, states = np.zeros_like(demand), np.zeros((2, 3))
    for lag, (lag_s, share) in enumerate(_lag_parts(dynamics)):
        clock = np.concatenate([[0.0], np.cumsum(step_s / lag_s)])
        first, state = 0, np.zeros(3)
        while first < len(step_s):
            last = max(int(np.searchsorted(clock, clock[first] + _LONGEST_EXPONENT)) - 1, first + 1)
            since = np.minimum(clock[first : last + 1] - clock[first], 2.0 * _LONGEST_EXPONENT)
            grown = np.exp(since)
            wanted = demand[:, first:last]
            x = np.empty((3, last - first + 1))
            x[:, 0] = state
            x[:, 1:] = (state[:, None] + np.cumsum(np.diff(grown) * wanted, axis=1)) / grown[1:]
            decayed = -lag_s * np.expm1(-np.diff(since))
            used[:, first:last] += share * (wanted * step_s[first:last] + decayed * (x[:, :-1] - wanted))
            first, state = last, x[:, -1]
        states[lag] = state
    return used, states


def _held(firmware: Firmware, since_s: FloatArray) -> FloatArray:
    """Power above idle that the firmware allows a heavy kernel, relative to steady power."""
    held = 1.0 - firmware.drop * np.exp(-(since_s - firmware.reaction_s) / firmware.recover_s)
    return np.asarray(np.where(since_s < firmware.reaction_s, 1.0 + firmware.boost, held))


@lru_cache(maxsize=64)
def _demand(shape: Shape, segments: int) -> FloatArray:
    """Demand relative to its mean over an execution; shape (segments, parts)."""
    at = (np.arange(segments) + 0.5) / segments
    columns = [np.ones(segments)]
    for values in (shape.core, shape.memory):
        column = np.interp(at, np.linspace(0.0, 1.0, len(values)), values)
        columns.append(column / column.mean())
    return np.stack(columns, axis=1)
