"""Plans that a driver can carry out: a setting lasts as long as it takes to change, and a little time is kept in reserve.

    planned for each instruction   |1400|1700|1400|1700|1400|     instructions shorter than a switch
    as a driver can do it          |     1600     |   1500  |     settings that last, within the same deadline

    1  `of`          replan the graph with a reserve on each instruction that is slowed down; times and gaps of that plan
    2  `first`       on each rank a dynamic programme (:mod:`wastenot.frontiers.stays`): the cheapest settings that last,
                     with no instruction slower than in 1; some become faster, and time is won
    3  `on_time`     late or early switches slow critical instructions down: raise the slower side until all is on time
    4  `improved`    spend the time won where it saves most energy per second: slow stays down while the deadline is kept
    5  `at_prices`   likewise at prices of time, which lets instructions be slower than in 1 where others are faster;
       `cheapest_unchanging`  where no switch fits into an iteration, one setting a rank: the best, unless ranks are many
    6  `annealed`    the best of these, changed at random on all ranks (:mod:`wastenot.pipelines.plan.annealing`)
    7  `exactly`     the plan of these settings, without reserve, checked against the deadline as a fraction

Ranks are coupled by dependencies alone, so 2 and 5 take them one by one; the others look at the longest path of the whole
graph. No step proves that it found the best: :func:`with_switching` tries several margins, and begins with the plans that
it finds without switches and within tighter limits, none of which it is ever worse than.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from wastenot.core.arrays import IndexArray
from wastenot.core.blas import single_threaded
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.plan.annealing import annealed
from wastenot.pipelines.plan.lasting import LastingProblem, deadline_of
from wastenot.pipelines.plan.lasting_bound import lasting_bound_j
from wastenot.pipelines.plan.lasting_search import at_prices, first, improved, on_time, quickened
from wastenot.pipelines.plan.planner import FrontierPlan, PlannedPipeline, replanned
from wastenot.pipelines.plan.unchanging import cheapest_unchanging
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

_QUICK = Effort(steps=0)  # for plans in which settings change at will, to begin with
_LIMITS = (0.0, 0.02, 0.1)  # within which plans are looked for first, where a limit is looser; more of them take longer
_NEVER = SwitchTime(core_s=1e6, memory_s=1e6, basis="assumed", source="no switch within an iteration")


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
        if (problem := LastingProblem.of(made, switching, reserve, margin, _QUICK)) is None:
            break
        begun = on_time(problem, first(problem))
        for each in (begun, quickened(problem, begun)):  # the first may be too late for the reserve, and not sure
            if each is not None and (found is None or _worth(found)[0] < 1.0):
                tried = problem.exactly(improved(problem, each))
                found = tried if found is None else max(found, tried, key=_worth)
        assert found is not None
        if _worth(found)[0] >= 1.0:
            found = max([found, *_searched(problem, switching, reserve, margin)], key=_worth)
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


@single_threaded()
def with_lasting(made: PlannedPipeline, found: Iterable[FrontierPlan]) -> Iterator[FrontierPlan]:
    """Plans of a frontier with settings that last as long as those of the pipeline's own plan, within their deadlines.

    They are found by steps 1 to 4 alone, which take about as long as the frontier. Of a plan whose settings need not last
    they stay as they are.
    """
    switching, plan = made.plan.switching, made.plan.model_copy(update={"promise": None})
    for each in found:
        until_s = each.within_s if each.stragglers_only else None
        limit = {"until_s": until_s, "max_slowdown": each.within_s / plan.baseline.time_s - 1.0}
        rung = replace(made, plan=plan.model_copy(update=limit), solved=each.solved)
        problem = None if switching is None else LastingProblem.of(rung, switching, RESERVE, 0.0, _QUICK)
        if problem is None:
            yield each
        else:
            yield replace(each, solved=problem.exactly(improved(problem, on_time(problem, first(problem)))).solved)


def _searched(own: LastingProblem, switching: SwitchTime, reserve: float, margin: float) -> Iterator[PlannedPipeline]:
    """Plans within tighter limits and then within the pipeline's own, each searched for from those before.

    Within each limit, at first without switches, where the best is found unless ranks are many: within a looser limit it
    never costs more. What is found with switches within one of :data:`_LIMITS` depends on it alone, so that a plan within
    any looser limit is never worse, nor is one with switches than one without. Between two other limits, or two switching
    times, nothing is promised; nor where plans are made with confidence, as then times are less sure.
    """
    made = own.made
    found: dict[bool, PlannedPipeline] = {}
    for tight in _tighter(made):
        for never in (True, False):
            problem = own
            if never or tight is not made:
                other = LastingProblem.of(tight, _NEVER if never else switching, reserve, margin, _QUICK)
                assert other is not None
                problem = other
            if not never and problem.never_changes:
                continue
            known = [problem.settings_of(found[each]) for each in (True, False) if each in found and each >= never]
            if plans := [problem.exactly(each) for each in [*known, *_begun(problem)]]:
                found[never] = best = min(plans, key=_energy_j)
                if not problem.never_changes:
                    changed = problem.exactly(annealed(problem.waiting_as(best), problem.settings_of(best)))
                    found[never] = min(best, changed, key=_energy_j)
                yield found[never] if tight is made else replanned(made, found[never].solved.way)


def _tighter(made: PlannedPipeline) -> Iterator[PlannedPipeline]:
    """The same within each of some tighter limits, and as it is."""
    deadline, plan = deadline_of(made), made.plan.model_copy(update={"promise": None, "until_s": None})
    for limit in _LIMITS:
        tight = replace(made, plan=plan.model_copy(update={"max_slowdown": limit}), solved=made.fastest)
        if deadline_of(tight) >= deadline:
            break
        yield tight
    yield made


def _begun(problem: LastingProblem) -> list[IndexArray]:
    """Settings to search from, in time: those from prices and from the plan in which all change, or the best if none may."""
    if problem.never_changes:
        found = [cheapest_unchanging(problem)[0]]
    else:
        found = [on_time(problem, first(problem)), at_prices(problem)]
    quick = (quickened(problem, each) for each in found if each is not None)
    return [improved(problem, each) for each in quick if each is not None]


def _energy_j(made: PlannedPipeline) -> float:
    return made.plan.predicted.energy_j


def _worth(made: PlannedPipeline) -> tuple[float, float]:
    """How sure the plan keeps its slowdown, as far as that was asked for; of plans that are as sure, what they save."""
    promise = made.plan.promise
    return 1.0 if promise is None else min(promise.sure / promise.confidence, 1.0), -made.plan.predicted.energy_j
