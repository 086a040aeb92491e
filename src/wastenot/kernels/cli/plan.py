"""Commands that plan: ``kernel plan``, ``kernel frontier``, and ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    AsMeasuredOption,
    GranularityOption,
    JsonOption,
    OutOption,
    PlanOptions,
    PriceOptions,
    SweepOptions,
    ToleranceOption,
)

if TYPE_CHECKING:
    from wastenot.planning.comparison import Comparison, WholeFrontier

_BOUNDS = (0.0, 0.01, 0.02, 0.05, 0.1)  # slowdown limits


def plan(
    source: SweepOptions,
    goal: PlanOptions,
    price_options: PriceOptions,
    out: OutOption = None,
    in_full: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show how to apply it, every kernel, and all numbers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the lowest-energy clocks within a slowdown limit.

    If the study has repeats or standard errors, the plan stays within the limit with 95 % confidence. It comes with a
    certificate: a lower bound on the energy of any plan within the limit.
    """
    from wastenot.terminal.output import console, print_json, say

    price = price_options.price()
    made = goal.plan(source.read(goal.granularity))
    if out is not None:
        made.write(out)
        say(f"{out}: plan written")
    if as_json:
        print_json("plan", made.document())
    else:
        from wastenot.kernels.cli.plan_text import plan_text
        from wastenot.kernels.page.provenance import Files

        console().print(plan_text(made, price, Files(source.study, out), in_full=in_full))


def frontier(
    source: SweepOptions,
    bounds: Annotated[
        quantities.Floats | None,
        option("Slowdown limits to solve exactly; default: 0,1%,2%,5%,10%.", "X,X,...", parser=quantities.slowdowns),
    ] = None,
    compare: Annotated[bool, option("Compare objectives, granularities and scopes at these limits instead.")] = False,
    granularity: GranularityOption = "kernel",
    clock_tolerance: ToleranceOption = 0.0,
    as_measured: AsMeasuredOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the plans that are optimal at some price of time.

    Also the exact optimum at each slowdown limit, all by the numbers as measured.
    """
    from wastenot.core.values import json_text
    from wastenot.planning.comparison import Comparison, compare as compare_plans, whole_frontier
    from wastenot.terminal.output import console, say

    limits = bounds or _BOUNDS
    found: Comparison | WholeFrontier
    if compare:
        found = compare_plans(
            source.read(),
            bounds=[limit for limit in limits if limit],  # the strict one is always compared
            clock_tolerance_mhz=clock_tolerance,
            as_measured=as_measured,
        )
    else:
        found = whole_frontier(
            source.read(granularity), limits, granularity=granularity, clock_tolerance_mhz=clock_tolerance
        )
    if out is not None:
        found.write(out)
        say(f"{out}: {'comparison' if compare else 'frontier'} written")
    if as_json:
        print(json_text(found.document()))
    else:
        from wastenot.kernels.cli.plan_text import comparison_text, frontier_text

        console().print(comparison_text(found) if isinstance(found, Comparison) else frontier_text(found))


def diff(
    first: Annotated[Path, argument("A plan.", "A.json")],
    second: Annotated[Path, argument("Another plan.", "B.json")],
    study: Annotated[
        str | None, option("Study with which to evaluate both plans on B's energies, such as those in context.", "FILE|URL")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how two plans differ.

    With a study, also what the state of their energies changes.
    """
    from wastenot.core.values import as_values
    from wastenot.kernels.model.context import context_change
    from wastenot.kernels.page.tables import context_table
    from wastenot.planning.difference import difference
    from wastenot.planning.plan_file import read_plan
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json
    from wastenot.terminal.tables import Group, rich_table

    plans = read_plan(first), read_plan(second)
    between = difference(*plans)
    change = None
    if study is not None:
        held = open_study(study)
        alone, within = (held.read(plan.workload, plan.state, plan.measured_granularity) for plan in plans)
        change = context_change(alone, within, *plans)
    if as_json:
        document = as_values(between)
        if change is not None:
            names = {"differing": [one.kernel for one in change.differing], "moved": [one.kernel for one in change.moved]}
            document["states"] = as_values(change) | names | {"energy_j": change.energy_j}
        print_json("diff", document)
        return
    from wastenot.kernels.cli.plan_text import difference_text, validated_text

    console().print(difference_text(between, plans[0], str(first), str(second)))
    line = validated_text(plans[0], plans[1], first, second)
    if line is not None:
        console().print(line)
    if change is not None:
        console().print(Group("", rich_table(context_table(change))))
