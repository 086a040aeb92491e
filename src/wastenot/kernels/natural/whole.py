"""A whole iteration: the clock that all kernels have in common, how far errors may move it, and what one cap does to it.

    clock   ──╮ ╭──╮     light kernels by themselves
              ╰─╯  ╰──   products by themselves
            ─────────    all of them in an iteration, where mean power meets the limit
            · · · · ·    a cap

Only a cap below the clock of the iteration changes anything. The curves of all kernels are brought to the same clocks;
errors come from draws of all curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.curves import POWER_SLOPES, TIME_SLOPES, KernelCurve
from wastenot.kernels.natural.held import HELD_SD, held_in_study, held_power_w
from wastenot.planning.natural import CAP_STEP_MHZ, hat_weights
from wastenot.planning.objective import DEFAULT_CONFIDENCE
from wastenot.planning.power_limit import ClockCosts, Iteration, run_iteration, stretches
from wastenot.study.store import Study
from wastenot.study.sweep import Kernel

DRAWS = 200

POWER_PER_C = 0.001
"""Relative growth of power with each degree; on two H200s 0.0007 and 0.0009, each ± 0.0003 (data/h200/natural)."""

_POWER_PER_C_SD = 0.0005

_SLOPE_OVER = 0.08  # of log clock: the end of a curve that tells how it goes on
_TIME_SLOPE_SD = 0.2  # by which the slope of log time over log clock may differ beyond the range seen
_POWER_SLOPE_SD = 0.7  # the same of log power: measured curves steepen by about as much over a quarter of the clock
_AUTO_SD = 0.006  # relative: the regulator's mean is over about a second, and kernels by themselves are watched for a few
_UNLIMITED_W = 1e6  # where no kernel reaches the limit by itself, their mean does not either


@dataclass(frozen=True, slots=True, eq=False)
class WholeIteration:
    """An iteration without ceilings.

    Attributes:
        curves: of its kernels, in order of execution.
        costs: the curves at common clocks.
        limit_w: mean power that the regulator allows.
        default: the iteration by these.
        drawn: what costs and limit may truly be.
        without: the iteration by each of these.
    """

    curves: tuple[KernelCurve, ...]
    costs: ClockCosts
    limit_w: float
    default: Iteration
    drawn: tuple[tuple[ClockCosts, float], ...]
    without: tuple[Iteration, ...]


def whole_of_study(study: Study, workload: str, kernels: Sequence[Kernel], curves: Sequence[KernelCurve]) -> WholeIteration:
    """From curves at natural clocks, held to the power that the kernels of their study were held to by themselves."""
    if not any(curve.auto.limited for curve in curves):
        return whole_iteration(kernels, curves, limit_w=_UNLIMITED_W)
    return whole_iteration(kernels, curves, limit_w=held_in_study(study, workload, curves), limit_sd=HELD_SD)


def whole_iteration(
    kernels: Sequence[Kernel],
    curves: Sequence[KernelCurve],
    *,
    limit_w: float | None = None,
    limit_sd: float = 0.0,
    warmer_c: float = 0.0,
    seed: int = 0,
) -> WholeIteration:
    """All kernels at the clock that they have in common.

    Args:
        kernels: of the iteration, in order of execution.
        curves: of the same kernels, in any order.
        limit_w: mean power that the regulator allows; by default what it holds kernels to that are limited by themselves.
        limit_sd: relative standard error of ``limit_w``, where that is given.
        warmer_c: by how much the GPU is warmer in the iteration than when the curves were measured.
        seed: of the draws that errors come from.

    Raises:
        BadInputError: a kernel has no curve, or ``limit_w`` is not given and no kernel is limited.
    """
    by_name = {curve.kernel: curve for curve in curves}
    missing = [kernel.name for kernel in kernels if kernel.name not in by_name]
    if missing:
        raise BadInputError(f"kernel '{missing[0]}' was not measured ({len(missing)} are missing); complete the sweep")
    own = [by_name[kernel.name] for kernel in kernels]
    limit = held_power_w(kernels, own) if limit_w is None else limit_w
    core_mhz = _common_clocks(own)
    cold = clock_costs(kernels, own, core_mhz)
    costs = replace(cold, power_w=cold.power_w * (1.0 + POWER_PER_C * warmer_c))
    once = run_iteration(costs, limit)
    costs = replace(costs, stretch=stretches(kernels, (costs.count * once.kernel_s).tolist()))
    default = run_iteration(costs, limit)
    rng = np.random.default_rng(seed)
    limits_w = limit * (1.0 + (_AUTO_SD if limit_w is None else limit_sd) * rng.standard_normal(DRAWS))
    warmer = 1.0 + warmer_c * (POWER_PER_C + _POWER_PER_C_SD * rng.standard_normal(DRAWS))
    drawn = tuple(
        (replace(each, power_w=each.power_w * more), drawn_w)
        for each, more, drawn_w in zip(_drawn_costs(costs, own, rng), warmer.tolist(), limits_w.tolist(), strict=True)
    )
    without = tuple(run_iteration(each, drawn_w) for each, drawn_w in drawn)
    return WholeIteration(tuple(own), costs, limit, default, drawn, without)


def changes_of(after: Iteration, before: Iteration) -> tuple[float, float]:
    """Change of time and of energy, as fractions."""
    return after.time_s / before.time_s - 1.0, after.energy_j / before.energy_j - 1.0


@dataclass(frozen=True, slots=True, eq=False)
class OneCap:
    """A cap, and how it changes the iteration.

    Attributes:
        core_mhz: the highest clock allowed.
        change: expected, of time and energy, as fractions; shape (2,).
        drawn: what it may truly be; shape (draws, 2).
    """

    core_mhz: float
    change: FloatArray
    drawn: FloatArray


def under_each_cap(whole: WholeIteration) -> FloatArray:
    """Expected changes of time and energy under a cap at each clock of the costs, as fractions; shape (clocks, 2)."""
    ceilings = (np.full(len(whole.curves), cap) for cap in range(len(whole.costs.core_mhz)))
    return np.array([changes_of(run_iteration(whole.costs, whole.limit_w, each), whole.default) for each in ceilings])


def best_cap(whole: WholeIteration, max_slowdown: float) -> OneCap | None:
    """The cap of least energy whose slowdown stays within the limit with 95 % confidence; ``None`` if none saves energy."""
    changes = under_each_cap(whole)
    for cap in np.argsort(changes[:, 1]).tolist():
        if changes[cap, 1] >= 0.0:
            break
        if changes[cap, 0] > max_slowdown:
            continue
        ceiling = np.full(len(whole.curves), cap)
        drawn = np.array([
            changes_of(run_iteration(costs, limit_w, ceiling), before)
            for (costs, limit_w), before in zip(whole.drawn, whole.without, strict=True)
        ])  # fmt: skip
        drawn += changes[cap] - drawn.mean(axis=0)
        if np.quantile(drawn[:, 0], DEFAULT_CONFIDENCE) <= max_slowdown:
            return OneCap(float(whole.costs.core_mhz[cap]), changes[cap], drawn)
    return None


def clock_costs(kernels: Sequence[Kernel], curves: Sequence[KernelCurve], core_mhz: FloatArray) -> ClockCosts:
    """Time and power of kernels at given clocks; beyond the range seen, extrapolated from the end of each curve.

    Args:
        kernels: of an iteration, in order of execution.
        curves: of these kernels, in the same order.
        core_mhz: ascending, shape (clocks,).
    """
    values = [
        (
            _extended(np.log(curve.time_s), curve.core_mhz, core_mhz, TIME_SLOPES),
            _extended(np.log(curve.power_w), curve.core_mhz, core_mhz, POWER_SLOPES),
        )
        for curve in curves
    ]
    return ClockCosts(
        tuple(kernel.name for kernel in kernels),
        np.array([kernel.count for kernel in kernels], dtype=np.int64),
        core_mhz,
        np.exp([time for time, _ in values]),
        np.exp([power for _, power in values]),
        np.array([_seen(curve, core_mhz) for curve in curves]),
    )


def _drawn_costs(costs: ClockCosts, curves: Sequence[KernelCurve], rng: np.random.Generator) -> Iterator[ClockCosts]:
    """What the costs may truly be, within the errors of the curves and of what lies beyond them."""
    log_time, log_power = (np.empty((DRAWS, *costs.time_s.shape)) for _ in range(2))
    for kernel, curve in enumerate(curves):
        time, power = curve.draws(rng, DRAWS)
        astray = np.array([_TIME_SLOPE_SD, _POWER_SLOPE_SD])[:, None, None] * rng.standard_normal((2, 2, DRAWS))
        log_time[:, kernel] = _extended(np.log(time), curve.core_mhz, costs.core_mhz, TIME_SLOPES, astray[0])
        log_power[:, kernel] = _extended(np.log(power), curve.core_mhz, costs.core_mhz, POWER_SLOPES, astray[1])
    for time, power in zip(np.exp(log_time), np.exp(log_power), strict=True):
        yield replace(costs, time_s=time, power_w=power)


def _extended(
    log_value: FloatArray,
    knots_mhz: FloatArray,
    core_mhz: FloatArray,
    slopes: tuple[float, float],
    astray: FloatArray | None = None,
) -> FloatArray:
    """Curves in logarithms at any clocks: straight between knots, and beyond them with the slope of their ends.

    Args:
        log_value: at the knots; shape (..., knots).
        knots_mhz: clocks of the knots, ascending.
        core_mhz: clocks asked for, shape (clocks,).
        slopes: least and greatest that physics allows.
        astray: by how much the slope beyond each end differs from that at the end; shape (2, ...).

    Returns:
        Shape (..., clocks).
    """
    knots, at = np.log(knots_mhz), np.log(core_mhz)
    within = log_value @ hat_weights(at, knots).T
    beyond_each = np.minimum(at - knots[0], 0.0), np.maximum(at - knots[-1], 0.0)
    for side, (end, beyond) in enumerate(zip((0, -1), beyond_each, strict=True)):
        slope = _end_slope(log_value, knots, end) + (0.0 if astray is None else astray[side])
        within = within + np.clip(slope, *slopes)[..., None] * beyond
    return np.asarray(within)


def _end_slope(log_value: FloatArray, knots: FloatArray, end: int) -> FloatArray:
    """Least-squares slope over the end of a curve; shape (...)."""
    near = np.abs(knots - knots[end]) <= _SLOPE_OVER
    if near.sum() < 2:  # the next knot is further away
        near[1 if end == 0 else -2 :][:1] = True
    if near.sum() < 2:
        return np.zeros(log_value.shape[:-1])
    off = knots[near] - knots[near].mean()
    return np.asarray(log_value[..., near] @ off / (off @ off))


def _seen(curve: KernelCurve, core_mhz: FloatArray) -> BoolArray:
    """Which clocks lie within the range of a curve, or nearer to it than to the next clock."""
    near = 0.5 * CAP_STEP_MHZ
    seen = np.asarray((core_mhz >= curve.core_mhz[0] - near) & (core_mhz <= curve.core_mhz[-1] + near))
    if not seen.any():
        seen[np.argmin(np.abs(core_mhz - curve.core_mhz[0]))] = True
    return seen


def _common_clocks(curves: Sequence[KernelCurve]) -> FloatArray:
    low = min(float(curve.core_mhz[0]) for curve in curves)
    high = max(float(curve.core_mhz[-1]) for curve in curves)
    first, last = round(low / CAP_STEP_MHZ), round(high / CAP_STEP_MHZ)
    return np.asarray(CAP_STEP_MHZ * np.arange(first, last + 1, dtype=float))
