"""Plans that a driver can carry out: a setting lasts as long as it takes to change, and a little time is kept in reserve.

    planned for each instruction   |1400|1700|1400|1700|1400|     instructions shorter than a switch
    as a driver can do it          |     1600     |   1500  |     settings that last, within the same deadline

    1  `of`          replan the graph with a reserve on each instruction that is slowed down; times and gaps of that plan
    2  `first`       on each rank a dynamic programme (:mod:`wastenot.frontiers.stays`): the cheapest settings that last,
                     with no instruction slower than in 1; some become faster, and time is won
    3  `on_time`     late or early switches slow critical instructions down: raise the slower side until all is on time
    4  `improved`    spend the time won where it saves most energy per second: slow stays down while the deadline is kept
    5  `at_prices`   likewise at prices of time, which lets instructions be slower than in 1 where others are faster;
       `unchanging`  and one setting for each rank, which is best where switching takes longer than an iteration
    6  `annealed`    the best of these, changed at random on all ranks (:mod:`wastenot.pipelines.plan.annealing`)
    7  `exactly`     the plan of these settings, without reserve, checked against the deadline as a fraction

Ranks are coupled by dependencies alone, so 2 and 5 take them one by one; the others look at the longest path of the whole
graph. No step proves that it found the best: :func:`with_switching` tries several margins and two plans to begin with, and
keeps the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wastenot.core.arrays import IndexArray
from wastenot.core.blas import single_threaded
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.plan.annealing import annealed
from wastenot.pipelines.plan.lasting import LastingProblem
from wastenot.pipelines.plan.lasting_bound import lasting_bound_j
from wastenot.pipelines.plan.planner import PlannedPipeline
from wastenot.planning.switching import SwitchTime

RESERVE = 0.004
"""Fraction of an instruction's time that one which is slowed down may take longer without the deadline being missed.

No more than :data:`_LATE` of a switch, for that is about what one that is late or early costs. Set by hand, once raised from
0.25 %: with it 63 of 64 simulated jobs kept their slowdown to 0.1 points where executions vary by 0.3 %
(`docs/judged-pipelines.md`)."""

_MARGINS = (0.0, 1.645, 6.0, 12.0, 30.0, 100.0, 1e6)
"""Standard deviations by which ways may be slower than they seem next to the default clocks, tried until the plan is as sure
to keep its slowdown as was asked; at the last one only the default clocks are left for what is critical. The second is the
95 % quantile for one way by itself, the others were chosen by hand."""

_LOOKED_AT = 4  # of the settings to search from, the cheapest by the numbers with reserve


@single_threaded()
def with_switching(made: PlannedPipeline, switching: SwitchTime, *, reserve: float = RESERVE) -> PlannedPipeline:
    """The plan of a pipeline whose settings last as long as switching takes, within the same deadline.

    Where switching takes no time, the plan stays as it is; so do plans whose kernels have settings of their own inside
    instructions, and these note it.

    Args:
        made: the plan, as if switching took no time.
        switching: how long the device takes to switch.
        reserve: see :data:`RESERVE`; nothing is kept for instructions that are as fast as they can be.

    Raises:
        InfeasibleError: never but by rounding, as each instruction may be as fast as it can be.
    """
    if max(switching.core_s, switching.memory_s, switching.stall_s, switching.memory_stall_s) == 0.0:
        return made
    found: PlannedPipeline | None = None
    # Where no slowdown is allowed, margin 0 keeps that with an even chance at best, so that it is not worth trying.
    hopeless = made.plan.promise is not None and not made.plan.max_slowdown and made.plan.until_s is None
    for margin in _MARGINS[hopeless:]:
        begun: list[tuple[LastingProblem, IndexArray]] = []
        for effort in (Effort(steps=0), None):  # a worse plan to begin with can end as the better one
            if (problem := LastingProblem.of(made, switching, reserve, margin, effort)) is None:
                break
            begun.append((problem, problem.improved(problem.on_time(problem.first()))))
            tried = problem.exactly(begun[-1][1])
            found = tried if found is None else max(found, tried, key=_worth)
        if found is None:
            break
        if _worth(found)[0] >= 1.0:
            if (better := _searched(begun)) is not None:
                found = max(found, better, key=_worth)
            break
    if found is None:
        note = "settings change within instructions, planned as if switches between instructions took no time"
        plan = made.plan.model_copy(update={"notes": (*made.plan.notes, note)})
        return replace(made, plan=plan.sealed())
    bound_j = lasting_bound_j(made, switching, reserve)
    if bound_j is not None:
        bound_j = min(max(bound_j, made.plan.lower_bound_j), found.plan.predicted.energy_j)
    plan = found.plan.model_copy(
        update={"switching": switching, "free": made.plan.predicted, "lasting_lower_bound_j": bound_j}
    )
    return replace(found, plan=plan.sealed())


def _searched(begun: list[tuple[LastingProblem, IndexArray]]) -> PlannedPipeline | None:
    """The best plan that is found from some settings, of all ranks at once; ``None`` where none of them is on time."""
    problem = begun[-1][0]
    begun = [*begun, *((problem, setting) for setting in _others(problem))]
    kept = [(problem, setting) for problem, setting in begun if problem.keeps(setting)]
    if not kept:
        return None
    # Where stays are in fact too short they are joined first, and searched from there.
    cheapest = sorted(kept, key=lambda each: each[0].cost(each[1]))[:_LOOKED_AT]
    joined = [(problem, problem.exactly(setting)) for problem, setting in cheapest]
    problem, plan = min(joined, key=lambda each: each[1].plan.predicted.energy_j)
    return problem.exactly(annealed(problem.waiting_as(plan), problem.settings_of(plan)))


def _others(problem: LastingProblem) -> Iterator[IndexArray]:
    """Settings to begin with that do not come from the plan of each instruction by itself."""
    for setting in [problem.at_prices(), *problem.unchanging()]:
        if (quick := problem.quickened(setting)) is not None:
            yield problem.improved(quick)


def _worth(made: PlannedPipeline) -> tuple[float, float]:
    """How sure the plan keeps its slowdown, as far as that was asked for; of plans that are as sure, what they save."""
    promise = made.plan.promise
    return 1.0 if promise is None else min(promise.sure / promise.confidence, 1.0), -made.plan.predicted.energy_j
