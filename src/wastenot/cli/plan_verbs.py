"""Verbs that plan: plan, frontier, compare, diff, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli.options import (
    ConfidenceOption,
    CurrencyOption,
    EnergiesOption,
    ExponentOption,
    GranularityOption,
    JsonOption,
    ObjectiveOption,
    OutOption,
    PriceOption,
    ScopeOption,
    SlowdownOption,
    StudyOption,
    ToleranceOption,
    WorkloadOption,
)
from wastenot.planning.objective import Objective, parse_bounds

if TYPE_CHECKING:
    from wastenot.analyses.context import ContextChange
    from wastenot.planning.plan import Plan
    from wastenot.study.sweep import Sweep
    from wastenot.workloads.identity import EnergyState, Granularity


def _sweep(study: str, workload: str | None, energies: EnergyState | None, granularity: Granularity = "kernel") -> Sweep:
    from wastenot.study.store import open_study

    return open_study(study).read(workload, energies, granularity, finer=True)


def plan(
    study: StudyOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    objective: ObjectiveOption = "waste",
    max_slowdown: SlowdownOption = None,
    edp_exponent: ExponentOption = 1.0,
    confidence: ConfidenceOption = None,
    granularity: GranularityOption = "kernel",
    scope: ScopeOption = "global",
    clock_tolerance: ToleranceOption = 0.0,
    price_per_kwh: PriceOption = 0.15,
    currency: CurrencyOption = "USD",
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the clocks that save the most energy within the slowdown allowed, and prove it."""
    from wastenot.cli.output import console, print_json, say
    from wastenot.planning.planner import plan as make_plan
    from wastenot.reporting.price import Price

    price = Price(price_per_kwh, currency)
    found = make_plan(
        _sweep(study, workload, energies, granularity),
        Objective(objective, max_slowdown, edp_exponent, confidence),
        granularity=granularity,
        scope=scope,
        clock_tolerance_mhz=clock_tolerance,
    )
    if out is not None:
        found.write(out)
        say(f"{out}: plan written")
    if as_json:
        print_json(found.document())
    else:
        from wastenot.cli.plan_text import described_plan

        console().print(described_plan(found, price))


def _context(study: str, sweep: Sweep, made: Plan) -> ContextChange | None:
    """What energies in context change, where the study has them of the same clocks."""
    from wastenot.analyses.context import context_change, plan_as
    from wastenot.errors import BadInputError, InfeasibleError
    from wastenot.study.store import open_study

    try:
        source, by = open_study(study), sweep.granularity
        alone, within = source.read(sweep.workload, "ssp", by), source.read(sweep.workload, "context", by)
        first, second = (made if each.key == sweep.key else plan_as(each, made) for each in (alone, within))
        return context_change(alone, within, first, second)
    except (BadInputError, InfeasibleError):
        return None


def frontier(
    study: StudyOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    bounds: Annotated[
        str, typer.Option("--bounds", metavar="X,X,...", help="Slowdowns to solve exactly, 0.02 being 2 %.")
    ] = "0,0.01,0.02,0.05,0.1",
    granularity: GranularityOption = "kernel",
    clock_tolerance: ToleranceOption = 0.0,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every plan that is best for some price of time, and the exact best one at each slowdown bound."""
    from wastenot.cli.output import as_values, console, print_json, say
    from wastenot.files import write_text
    from wastenot.planning.comparison import whole_frontier

    found = whole_frontier(
        _sweep(study, workload, energies, granularity),
        parse_bounds(bounds),
        granularity=granularity,
        clock_tolerance_mhz=clock_tolerance,
    )
    document = as_values(found)
    if out is not None:
        import json

        write_text(out, json.dumps(document, indent=2) + "\n")
        say(f"{out}: frontier written")
    if as_json:
        print_json(document)
    else:
        from wastenot.cli.plan_text import described_frontier

        console().print(described_frontier(found))


def compare(
    study: StudyOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    bounds: Annotated[
        str, typer.Option("--bounds", metavar="X,X,...", help="Relaxed bounds to show besides the strict one.")
    ] = "0.01,0.02,0.05,0.1",
    clock_tolerance: ToleranceOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """EDP and waste, coarse and fine, local and global, side by side."""
    from wastenot.cli.output import as_values, console, print_json
    from wastenot.planning.comparison import compare as make_comparison

    found = make_comparison(
        _sweep(study, workload, energies), bounds=parse_bounds(bounds), clock_tolerance_mhz=clock_tolerance
    )
    if as_json:
        print_json(as_values(found))
    else:
        from wastenot.cli.plan_text import described_comparison

        console().print(described_comparison(found))


def diff(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="A plan.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Another plan.")],
    study: Annotated[
        str | None,
        typer.Option("--study", metavar="FILE|URL", help="Set both into the state of B, such as in context, by this study."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What two plans do differently; with a study also what the state of their energies changes."""
    from wastenot.cli.output import as_values, console, print_json
    from wastenot.planning.difference import difference
    from wastenot.planning.plan import read_plan

    plans = read_plan(first), read_plan(second)
    found = difference(*plans)
    change = None
    if study is not None:
        from wastenot.analyses.context import context_change
        from wastenot.study.store import open_study

        source = open_study(study)
        ours, theirs = (source.read(plan.workload, plan.state, plan.measured_granularity) for plan in plans)
        change = context_change(ours, theirs, *plans)
    if as_json:
        document = as_values(found)
        if change is not None:
            names = {"differing": [one.kernel for one in change.differing], "moved": [one.kernel for one in change.moved]}
            document["states"] = as_values(change) | names | {"energy_j": change.energy_j}
        print_json(document)
    else:
        from wastenot.cli.plan_text import described_change, described_difference

        console().print(described_difference(found, str(first), str(second)))
        if change is not None:
            console().print(described_change(change))


def report(
    study: StudyOption,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="The page to write.")],
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    objective: ObjectiveOption = "waste",
    max_slowdown: SlowdownOption = None,
    edp_exponent: ExponentOption = 1.0,
    confidence: ConfidenceOption = None,
    granularity: GranularityOption = "kernel",
    scope: ScopeOption = "global",
    clock_tolerance: ToleranceOption = 0.0,
    price_per_kwh: PriceOption = 0.15,
    currency: CurrencyOption = "USD",
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write every figure as SVG, PDF and PNG.")
    ] = None,
) -> None:
    """One page, for a browser without a network: totals, curves, settings, kernels, tables."""
    from wastenot.analyses.plan_overview import make_overview
    from wastenot.cli.output import say
    from wastenot.planning.planner import plan as make_plan
    from wastenot.reporting.plan.page import write_report
    from wastenot.reporting.price import Price

    price = Price(price_per_kwh, currency)
    sweep = _sweep(study, workload, energies, granularity)
    goal = Objective(objective, max_slowdown, edp_exponent, confidence)
    made = make_plan(sweep, goal, granularity=granularity, scope=scope, clock_tolerance_mhz=clock_tolerance)
    overview = make_overview(sweep, made, _context(study, sweep, made))
    write_report(overview, out, price=price)
    say(f"{out}: report written")
    if figures is not None:
        from wastenot.reporting.plan.page import write_figures

        written = write_figures(overview, figures)
        say(f"{figures}: {len(written)} figure files written")
