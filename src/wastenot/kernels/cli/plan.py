"""Commands that plan: ``kernel plan``, ``kernel frontier``, and ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.pages.formatting import change, megahertz, percent, quantity
from wastenot.pages.price import Price
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
from wastenot.workloads.identity import STATE_DESCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from wastenot.kernels.page.provenance import Files
    from wastenot.pages.panel import Story
    from wastenot.planning.comparison import Comparison, WholeFrontier
    from wastenot.planning.difference import PlanDifference
    from wastenot.planning.plan import Plan
    from wastenot.planning.profiles import ProfileOutcome
    from wastenot.study.coverage import Coverage

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
    from wastenot.kernels.page.provenance import Files
    from wastenot.terminal.output import console, print_json, say

    price = price_options.price()
    made = goal.plan(source.read(goal.granularity))
    if out is not None:
        made.write(out)
        say(f"{out}: plan written")
    if as_json:
        print_json("plan", made.document())
    else:
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
        console().print(comparison_text(found) if isinstance(found, Comparison) else _frontier_text(found))


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
    console().print(_difference_text(between, plans[0], str(first), str(second)))
    line = _validated_text(plans[0], plans[1], first, second)
    if line is not None:
        console().print(line)
    if change is not None:
        console().print(Group("", rich_table(context_table(change))))


def plan_text(plan: Plan, price: Price, files: Files, *, in_full: bool) -> RenderableType:
    """What of the plan can be had today, what the whole of it would do, and what to do next; in full, the details, too."""
    from wastenot.kernels.page.story import story_of
    from wastenot.kernels.page.summary import plan_numbers, warnings
    from wastenot.kernels.page.tables import applicable_table, kernel_table
    from wastenot.terminal.tables import Group, Paragraph, Text, headline, named_rows, rich_table

    state = "" if plan.state == "ssp" else f"energies of {STATE_DESCRIPTIONS[plan.state]}"
    head = headline(plan.workload, plan.device, plan.origin, state)
    notes = [Paragraph(Text(f"note: {warning}", style="yellow")) for warning in warnings(plan)]
    story = story_of(plan, price, files)
    if not in_full:
        return Group(Paragraph(head), *_sentences(story), *notes, *_next_steps(plan, files))
    numbers = ((each.label, f"{each.value}: {each.detail}") for each in plan_numbers(plan, price))
    applicable = applicable_table(plan)
    tables = [kernel_table(plan, brief=True), *([] if applicable is None else [applicable])]
    return Group(
        Paragraph(head),
        story_text(story),
        *notes,
        *([""] if notes else []),
        Text("The plan in numbers", style="bold"),
        named_rows(numbers),
        *(part for table in tables for part in ("", Text(table.title, style="bold"), rich_table(table))),
    )


def _next_steps(plan: Plan, files: Files) -> list[RenderableType]:
    """What to do with a plan, commands on lines of their own, and where the rest of it is told."""
    from wastenot.kernels.page.applicable_panels import apply_command, setting_commands
    from wastenot.terminal.tables import Paragraph, Text

    today, before = plan.today, ""
    commands = () if today.row is None else setting_commands(plan, today.row)
    if commands and plan.origin != "measured":
        before = f", once you have swept the real card (these numbers are {plan.origin})"
    elif today.sets_something and not commands:
        commands = (apply_command(plan, files),)
        before = "" if files.plan is not None else f", write it to a file with --out {files.plan_text}, then"
    steps: list[RenderableType] = [] if not commands else [Paragraph(Text(f"To apply it{before}:"))]
    return [*steps, *(Text(f"  {each}", style="green") for each in commands), Text("How to apply it, and each kernel: -v")]


def story_text(story: Story) -> RenderableType:
    """What a plan says in ten seconds: what can be had today, what the whole of it would do, and how."""
    from wastenot.terminal.panels import panel_text
    from wastenot.terminal.tables import Group

    return Group(*_sentences(story), "", *map(panel_text, story.panels))


def _sentences(story: Story) -> list[RenderableType]:
    from wastenot.terminal.panels import sentence_text
    from wastenot.terminal.tables import Paragraph, Text

    sentences: list[RenderableType] = [sentence_text(story.sentence, story.tone)]
    return sentences if story.bound is None else [*sentences, Paragraph(Text(f"{story.bound}."))]


def comparison_text(comparison: Comparison) -> RenderableType:
    """Effect of granularity, scope and objective (the paper's Table 2)."""
    from wastenot.kernels.page.tables import comparison_table
    from wastenot.terminal.tables import Group, headline, rich_table

    head = headline(comparison.workload, comparison.device, comparison.origin, "change from auto")
    table = rich_table(comparison_table(comparison))
    return Group(head, "", table, *_beside(comparison.profiles), *_missing_points(comparison.coverage))


def _beside(profiles: Sequence[ProfileOutcome]) -> list[RenderableType]:
    """What the vendor's own profiles do, where they were measured."""
    from wastenot.pages.table import Listed
    from wastenot.terminal.tables import Text, listed

    def with_error(value: float, error: float | None) -> str:
        return change(value, 3) if error is None else f"{change(value, 3)} ± {percent(error, 2)}"

    if not profiles:
        return []
    columns: tuple[Listed[ProfileOutcome], ...] = (
        Listed("profile", lambda each: each.name, numeric=False),
        Listed("time change", lambda each: with_error(each.time_change, each.time_error)),
        Listed("energy change", lambda each: with_error(each.energy_change, each.energy_error)),
    )
    title = Text("the vendor's profiles, clocks left to the driver, as measured ± standard error", style="bold")
    return ["", title, listed(profiles, columns)]


def _missing_points(coverage: Coverage | None) -> list[Text | str]:
    """A note on points that were not measured, where there are any."""
    from wastenot.kernels.page.summary import coverage_note
    from wastenot.terminal.tables import Text

    note = coverage_note(coverage)
    return [] if note is None else ["", Text(f"note: {note}", style="yellow")]


def _frontier_text(frontier: WholeFrontier) -> RenderableType:
    """All vertices of the hull, then the exact optimum at each limit."""
    from wastenot.kernels.page.summary import among
    from wastenot.pages.table import Listed
    from wastenot.terminal.tables import Group, Text, headline, listed

    fields: tuple[Listed[Any], ...] = (  # of vertices and of points at a limit alike
        Listed("time", lambda point: quantity(point.time_s, "s", 6)),
        Listed("energy", lambda point: quantity(point.energy_j, "J", 6)),
        Listed("time change", lambda point: change(point.time_change, 3)),
        Listed("energy change", lambda point: change(point.energy_change, 3)),
    )
    limit: Listed[Any] = Listed("slowdown limit", lambda point: percent(point.max_slowdown))
    gap: Listed[Any] = Listed("gap", lambda point: percent(point.gap, 4) if point.gap else "0")
    hull, bounds = listed(frontier.hull, fields), listed(frontier.bounds, (limit, *fields, gap))
    impossible = ", ".join(percent(bound) for bound in frontier.impossible_bounds)
    tail = [
        f"no plan is within {impossible}: by the numbers as measured, at most {percent(-frontier.least_slowdown)} faster "
        "is possible"
    ]
    return Group(
        headline(frontier.workload, frontier.device, frontier.origin, f"frontier by {frontier.granularity}, as measured"),
        "",
        Text(
            f"the {len(frontier.hull)} plans of {among(frontier.coverage)} that are optimal at some price of time",
            style="bold",
        ),
        hull,
        "",
        Text("the exact optimum at each slowdown limit", style="bold"),
        bounds,
        *(tail if impossible else []),
        *_missing_points(frontier.coverage),
    )


def _validated_text(a: Plan, b: Plan, first: Path, second: Path) -> str | None:
    """Which of two plans was measured again."""
    validated = [str(path) for plan, path in ((a, first), (b, second)) if plan.validation is not None]
    if not validated:
        return None
    return "both were validated" if len(validated) == 2 else f"{validated[0]} was validated, the other was not"


def _difference_text(difference: PlanDifference, made: Plan, first: str, second: str) -> RenderableType:
    """What the second plan does differently from the first, which was ``made`` before."""
    from wastenot.terminal.tables import Group, Paragraph, Text, plain_table

    def signed(value: float, unit: str) -> str:
        return ("+" if value > 0 else "") + quantity(value, unit)

    def text(setting: Setting | None) -> Text:
        if setting is None or setting.is_auto:
            return Text("absent" if setting is None else "auto")
        limit = "" if setting.power_limit_w is None else f", {setting.power_limit_w:g} W"
        limit += "" if setting.profile is None else f", {setting.profile}"
        return Text(f"{megahertz(setting.core_mhz)} / {megahertz(setting.memory_mhz)}{limit}")

    names = (Path(first).name, Path(second).name)
    table = plain_table(("kernel", *(names if names[0] != names[1] else (first, second))), ("time", "energy"))
    for row in difference.kernels:
        table.add_row(
            Text(row.kernel),
            text(row.first),
            text(row.second),
            "–" if row.time_s is None else signed(row.time_s, "s"),
            "–" if row.energy_j is None else signed(row.energy_j, "J"),
        )
    total = (
        f"{counted(difference.same, 'kernel')} equal, {len(difference.kernels)} different; per iteration the second plan "
        f"takes {signed(difference.time_s, 's')} ({change(difference.time_s / made.predicted.time_s)}) and "
        f"{signed(difference.energy_j, 'J')} ({change(difference.energy_j / made.predicted.energy_j)}) relative to the first"
    )
    if not difference.kernels:
        return Group(Paragraph(Text("the plans are equal: " + total)))
    title = Text("Clocks: core / memory, MHz", style="bold")
    return Group(title, table, "", Paragraph(Text(total)))
