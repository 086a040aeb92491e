"""A whole iteration from the curves of its kernels: the clock that it runs at, its time and energy, and what a plan gains.

Kernels measured by themselves run at clocks of their own, light ones at the highest, products at what the power limit
leaves them. In an iteration all of them run near one clock, where mean power meets the limit. This module brings the curves
of all kernels to the same clocks, and asks :mod:`wastenot.planning.power_limit`; errors come from draws of all curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.curves import POWER_SLOPES, TIME_SLOPES, KernelCurve
from wastenot.kernels.natural.held import HELD_SD, held_in_runs, held_power_w
from wastenot.kernels.natural.rows import curves_of_rows
from wastenot.kernels.natural.storage import curves_of, unpacked_timeline
from wastenot.planning.natural import hat_weights
from wastenot.planning.power_limit import (
    ClockCosts,
    Iteration,
    LimitedPlan,
    fastest_plan,
    least_energy_plan,
    run_iteration,
    stretches,
)
from wastenot.study.store import Study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.identity import EnergyState

STEP_MHZ = 15.0
"""Between the clocks that a plan may choose from, as on the cards."""

DRAWS = 200

_CHOSEN = 60  # draws by which plans are chosen anew

POWER_PER_C = 0.001
"""Relative growth of power with each degree; on two H200s 0.0007 and 0.0009, each ± 0.0003 (data/h200/natural)."""

_POWER_PER_C_SD = 0.0005

_HOTTEST_C = 150.0
_SLOPE_OVER = 0.08  # of log clock: the end of a curve that tells how it goes on
_TIME_SLOPE_SD = 0.2  # by which the slope of log time over log clock may differ beyond the range seen
_POWER_SLOPE_SD = 0.7  # the same of log power: measured curves steepen by about as much over a quarter of the clock
_AUTO_SD = 0.006  # relative: the regulator's mean is over about a second, and kernels by themselves are watched for a few
_Z95 = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Known:
    """A number, its standard error and its 95 % interval."""

    value: float
    error: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, draws: FloatArray) -> Known:
        """From what it would be if the truth were each of the draws."""
        low, high = np.percentile(draws, _Z95)
        return cls(value, float(draws.std(ddof=1)), float(low), float(high))


@dataclass(frozen=True, slots=True, eq=False)
class PredictedPlan:
    """A plan, and how it changes the iteration.

    Attributes:
        plan: the ceiling of each kernel.
        time_change: of the iteration against that without ceilings, as a fraction; less good than what ``plan`` itself
            says, which is the best of numbers with errors.
        energy_change: the same of energy.
    """

    plan: LimitedPlan
    time_change: Known
    energy_change: Known


@dataclass(frozen=True, slots=True, eq=False)
class PredictedIteration:
    """What curves say about a whole iteration under a power limit.

    Attributes:
        kernels: in order of execution.
        costs: the curves at common clocks.
        limit_w: mean power that the regulator allows.
        default: the iteration without ceilings.
        core_mhz: its clock.
        time_s: its time.
        energy_j: its energy.
        alone_s: sum of the kernels as they run by themselves.
        alone_j: energy of that sum.
        fastest: the plan of least time.
        saving: the plan of least energy in no more time than without ceilings.
        extrapolated: kernels that were not seen at the clock of the iteration, with the clocks that they were seen at.
        drawn: what costs and limit may truly be.
        without: the iterations without ceilings by these.
    """

    kernels: tuple[Kernel, ...]
    costs: ClockCosts
    limit_w: float
    default: Iteration
    core_mhz: Known
    time_s: Known
    energy_j: Known
    alone_s: float
    alone_j: float
    fastest: PredictedPlan
    saving: PredictedPlan
    extrapolated: tuple[tuple[str, float, float], ...]
    drawn: Sequence[tuple[ClockCosts, float]]
    without: Sequence[Iteration]


def iteration_of_study(
    study: Study,
    workload: str | None = None,
    state: EnergyState | None = None,
    *,
    limit_w: float | None = None,
    temperature_c: float | None = None,
) -> tuple[Sweep, PredictedIteration]:
    """What the kernels in a study say about a whole iteration.

    Args:
        study: with kernels at several clocks, natural or set.
        workload: its name; may be left out where the study holds only one.
        state: energies to use; as :meth:`Study.read` chooses by default.
        limit_w: see :func:`predict_iteration`.
        temperature_c: of the GPU in the iteration; by default the mean of the measurements.

    Returns:
        The sweep that was used, and the prediction.

    Raises:
        BadInputError: the study does not know the clocks that kernels ran at, or, where ``temperature_c`` is given, their
            temperature; or see :func:`predict_iteration`.
        InfeasibleError: see :func:`predict_iteration`.
        StudyError: the study cannot be read.
    """
    sweep = study.read(workload, state)
    if temperature_c is not None and not abs(temperature_c) < _HOTTEST_C:
        raise BadInputError(
            f"`temperature_c` {temperature_c:g}: must be the temperature of a GPU in degrees Celsius, such as 65"
        )
    warmer_c = 0.0 if temperature_c is None else temperature_c - measured_at_c(sweep)
    kept = study.natural_curves(sweep.workload, sweep.granularity) if sweep.state == "natural" else {}
    if any(kernel.name not in kept for kernel in sweep.kernels):
        return sweep, predict_iteration(sweep.kernels, curves_of_rows(sweep), limit_w=limit_w, warmer_c=warmer_c)
    return sweep, iteration_of_curves(study, sweep, curves_of(sweep, kept).curves, limit_w=limit_w, warmer_c=warmer_c)


def iteration_of_curves(
    study: Study, sweep: Sweep, curves: Sequence[KernelCurve], *, limit_w: float | None = None, warmer_c: float = 0.0
) -> PredictedIteration:
    """What curves at natural clocks say, held to the power that the runs were held to which they were estimated from.

    Args:
        study: with these runs.
        sweep: whose kernels run in the iteration.
        curves: of these.
        limit_w: see :func:`predict_iteration`.
        warmer_c: see there.

    Raises:
        BadInputError: see there.
        InfeasibleError: see there.
    """
    limit_sd = 0.0
    if limit_w is None:
        runs = [unpacked_timeline(each.content) for each in study.timelines(sweep.workload, granularity=sweep.granularity)]
        limit_w, limit_sd = held_in_runs(curves, runs), HELD_SD
    return predict_iteration(sweep.kernels, curves, limit_w=limit_w, limit_sd=limit_sd, warmer_c=warmer_c)


def measured_at_c(sweep: Sweep) -> float:
    """Mean temperature of the GPU over the measurements of a sweep.

    Raises:
        BadInputError: it is not known.
    """
    known = sweep.temperature_c[np.isfinite(sweep.temperature_c)]
    if not len(known):
        raise BadInputError(
            f"`temperature_c`: workload '{sweep.workload}' does not record the temperature of the GPU; leave it out"
        )
    return float(known.mean())


def predict_iteration(
    kernels: Sequence[Kernel],
    curves: Sequence[KernelCurve],
    *,
    limit_w: float | None = None,
    limit_sd: float = 0.0,
    warmer_c: float = 0.0,
    seed: int = 0,
) -> PredictedIteration:
    """Time and energy of a whole iteration, and what a plan gains there.

    Args:
        kernels: of the iteration, in order of execution.
        curves: of the same kernels, in any order.
        limit_w: mean power that the regulator allows; by default what it holds kernels to that are limited by themselves.
        limit_sd: relative standard error of ``limit_w``, where that is given.
        warmer_c: by how much the GPU is warmer in the iteration than when the curves were measured.
        seed: of the draws that errors come from.

    Raises:
        BadInputError: a kernel has no curve, or ``limit_w`` is not given and no kernel is limited.
        InfeasibleError: the iteration is above the limit even at the lowest clocks known.
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
    drawn = [
        (replace(each, power_w=each.power_w * more), drawn_w)
        for each, more, drawn_w in zip(_drawn_costs(costs, own, rng), warmer.tolist(), limits_w.tolist(), strict=True)
    ]
    without = [run_iteration(each, drawn_w) for each, drawn_w in drawn]
    count = costs.count.astype(float)
    chosen_by = (costs, *(each for each, _ in drawn[:_CHOSEN]))
    fastest = [fastest_plan(each, limit) for each in chosen_by]
    saving = [_saving_plan(each, limit, plan) for each, plan in zip(chosen_by, fastest, strict=True)]
    return PredictedIteration(
        tuple(kernels),
        costs,
        limit,
        default,
        Known.of(default.core_mhz, np.array([each.core_mhz for each in without])),
        Known.of(default.time_s, np.array([each.time_s for each in without])),
        Known.of(default.energy_j, np.array([each.energy_j for each in without])),
        float(count @ [curve.auto.time_s for curve in own]),
        float(count @ [curve.auto.energy_j for curve in own]),
        _predicted(fastest, costs, limit, default, drawn, without),
        _predicted(saving, costs, limit, default, drawn, without),
        tuple(
            (curve.kernel, float(curve.core_mhz[0]), float(curve.core_mhz[-1]))
            for curve, beyond in zip(own, default.extrapolated.tolist(), strict=True)
            if beyond
        ),
        drawn,
        without,
    )


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
    near = 0.5 * STEP_MHZ
    seen = np.asarray((core_mhz >= curve.core_mhz[0] - near) & (core_mhz <= curve.core_mhz[-1] + near))
    if not seen.any():
        seen[np.argmin(np.abs(core_mhz - curve.core_mhz[0]))] = True
    return seen


def _common_clocks(curves: Sequence[KernelCurve]) -> FloatArray:
    low = min(float(curve.core_mhz[0]) for curve in curves)
    high = max(float(curve.core_mhz[-1]) for curve in curves)
    first, last = round(low / STEP_MHZ), round(high / STEP_MHZ)
    return np.asarray(STEP_MHZ * np.arange(first, last + 1, dtype=float))


def _predicted(
    plans: Sequence[LimitedPlan],
    costs: ClockCosts,
    limit_w: float,
    default: Iteration,
    drawn: Sequence[tuple[ClockCosts, float]],
    without: Sequence[Iteration],
) -> PredictedPlan:
    """A plan with what to expect of it.

    The best of numbers with errors looks better than it is. Plans chosen by drawn costs, whose errors come on top, and
    judged by the costs that they were drawn about, show what choosing so gives; the draws show how far off that may be.

    Args:
        plans: chosen by the costs as estimated, and by some of the drawn ones.
        costs: as estimated.
        limit_w: mean power that the regulator allows.
        default: the iteration without ceilings.
        drawn: what costs and limit may truly be.
        without: the iterations without ceilings by these.
    """
    plan, *others = plans
    capped = [run_iteration(each, drawn_w, plan.ceiling) for each, drawn_w in drawn]
    spread = np.array([changes_of(after, before) for after, before in zip(capped, without, strict=True)])
    expected = np.mean([changes_of(run_iteration(costs, limit_w, each.ceiling), default) for each in others], axis=0)
    time, energy = (
        Known.of(value, value + own - own.mean()) for value, own in zip(expected.tolist(), spread.T, strict=True)
    )
    return PredictedPlan(plan, time, energy)


def _saving_plan(costs: ClockCosts, limit_w: float, fastest: LimitedPlan) -> LimitedPlan:
    """The plan of least energy in no more time than without ceilings."""
    # The clocks to choose from are a little apart, so that the fastest plan may be slower than without ceilings.
    no_more_s = max(run_iteration(costs, limit_w).time_s, fastest.iteration.time_s)
    return least_energy_plan(costs, limit_w, no_more_s, fastest)


def changes_of(after: Iteration, before: Iteration) -> tuple[float, float]:
    """Change of time and of energy, as fractions."""
    return after.time_s / before.time_s - 1.0, after.energy_j / before.energy_j - 1.0
