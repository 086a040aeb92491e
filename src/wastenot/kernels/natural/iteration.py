"""A whole iteration from the curves of its kernels: its time and energy at their common clock, and what a plan gains there.

:mod:`wastenot.kernels.natural.whole` finds the iteration without ceilings, and :mod:`wastenot.planning.power_limit` the best
ceilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.held import HELD_SD, held_in_study
from wastenot.kernels.natural.rows import curves_of_rows
from wastenot.kernels.natural.storage import curves_of
from wastenot.kernels.natural.whole import WholeIteration, changes_of, whole_iteration
from wastenot.planning.power_limit import (
    ClockCosts,
    LimitedPlan,
    fastest_plan,
    least_energy_plan,
    run_iteration,
)
from wastenot.study.store import Study
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import EnergyState

_CHOSEN = 60  # draws by which plans are chosen anew
_HOTTEST_C = 150.0
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
        whole: the iteration without ceilings.
        core_mhz: its clock.
        time_s: its time.
        energy_j: its energy.
        alone_s: sum of the kernels as they run by themselves.
        alone_j: energy of that sum.
        fastest: the plan of least time.
        saving: the plan of least energy in no more time than without ceilings.
        extrapolated: kernels that were not seen at the clock of the iteration, with the clocks that they were seen at.
    """

    whole: WholeIteration
    core_mhz: Known
    time_s: Known
    energy_j: Known
    alone_s: float
    alone_j: float
    fastest: PredictedPlan
    saving: PredictedPlan
    extrapolated: tuple[tuple[str, float, float], ...]


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
        limit_w: see :func:`~wastenot.kernels.natural.whole.whole_iteration`.
        temperature_c: of the GPU in the iteration; by default the mean of the measurements.

    Returns:
        The sweep that was used, and the prediction.

    Raises:
        BadInputError: the study does not know the clocks that kernels ran at, or, where ``temperature_c`` is given, their
            temperature; or no kernel is limited, and ``limit_w`` is not given.
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
        whole = whole_iteration(sweep.kernels, curves_of_rows(sweep), limit_w=limit_w, warmer_c=warmer_c)
    else:
        curves, limit_sd = curves_of(sweep, kept).curves, 0.0
        if limit_w is None:
            limit_w, limit_sd = held_in_study(study, sweep.workload, curves), HELD_SD
        whole = whole_iteration(sweep.kernels, curves, limit_w=limit_w, limit_sd=limit_sd, warmer_c=warmer_c)
    return sweep, predict_iteration(whole)


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


def predict_iteration(whole: WholeIteration) -> PredictedIteration:
    """Time and energy of a whole iteration, and what a plan gains there.

    Raises:
        InfeasibleError: the iteration is above the limit even at the lowest clocks known.
    """
    costs, limit, default, without = whole.costs, whole.limit_w, whole.default, whole.without
    count = costs.count.astype(float)
    chosen_by = (costs, *(each for each, _ in whole.drawn[:_CHOSEN]))
    fastest = [fastest_plan(each, limit) for each in chosen_by]
    saving = [_saving_plan(each, limit, plan) for each, plan in zip(chosen_by, fastest, strict=True)]
    return PredictedIteration(
        whole,
        Known.of(default.core_mhz, np.array([each.core_mhz for each in without])),
        Known.of(default.time_s, np.array([each.time_s for each in without])),
        Known.of(default.energy_j, np.array([each.energy_j for each in without])),
        float(count @ [curve.auto.time_s for curve in whole.curves]),
        float(count @ [curve.auto.energy_j for curve in whole.curves]),
        _predicted(fastest, whole),
        _predicted(saving, whole),
        tuple(
            (curve.kernel, float(curve.core_mhz[0]), float(curve.core_mhz[-1]))
            for curve, beyond in zip(whole.curves, default.extrapolated.tolist(), strict=True)
            if beyond
        ),
    )


def _predicted(plans: Sequence[LimitedPlan], whole: WholeIteration) -> PredictedPlan:
    """A plan with what to expect of it.

    The best of numbers with errors looks better than it is. Plans chosen by drawn costs, whose errors come on top, and
    judged by the costs that they were drawn about, show what choosing so gives; the draws show how far off that may be.

    Args:
        plans: chosen by the costs as estimated, and by some of the drawn ones.
        whole: the iteration without ceilings.
    """
    plan, *others = plans
    capped = [run_iteration(each, drawn_w, plan.ceiling) for each, drawn_w in whole.drawn]
    spread = np.array([changes_of(after, before) for after, before in zip(capped, whole.without, strict=True)])
    expected = np.mean(
        [changes_of(run_iteration(whole.costs, whole.limit_w, each.ceiling), whole.default) for each in others], axis=0
    )
    time, energy = (
        Known.of(value, value + own - own.mean()) for value, own in zip(expected.tolist(), spread.T, strict=True)
    )
    return PredictedPlan(plan, time, energy)


def _saving_plan(costs: ClockCosts, limit_w: float, fastest: LimitedPlan) -> LimitedPlan:
    """The plan of least energy in no more time than without ceilings."""
    # The clocks to choose from are a little apart, so that the fastest plan may be slower than without ceilings.
    no_more_s = max(run_iteration(costs, limit_w).time_s, fastest.iteration.time_s)
    return least_energy_plan(costs, limit_w, no_more_s, fastest)
