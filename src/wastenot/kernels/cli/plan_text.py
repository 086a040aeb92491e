"""Plans, frontiers and how plans differ, as text for a terminal. Imports rich: import it inside the command that prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.kernels.page.applicable_panels import apply_command, setting_commands
from wastenot.kernels.page.provenance import Files
from wastenot.kernels.page.story import story_of
from wastenot.kernels.page.summary import among, coverage_note, plan_numbers, warnings
from wastenot.kernels.page.tables import applicable_table, comparison_table, kernel_table
from wastenot.pages.formatting import change, clocks_text, percent, quantity
from wastenot.pages.panel import Story
from wastenot.pages.price import Price
from wastenot.pages.table import Listed
from wastenot.planning.comparison import Comparison, WholeFrontier
from wastenot.planning.difference import PlanDifference
from wastenot.planning.plan import Plan
from wastenot.planning.profiles import ProfileOutcome
from wastenot.study.coverage import Coverage
from wastenot.terminal.panels import panel_text, sentence_text
from wastenot.terminal.tables import Group, Paragraph, Text, headline, listed, named_rows, plain_table, rich_table
from wastenot.workloads.identity import STATE_DESCRIPTIONS


def plan_text(plan: Plan, price: Price, files: Files, *, in_full: bool) -> RenderableType:
    """What of the plan can be had today, what the whole of it would do, and what to do next; in full, the details, too."""
    states = [] if plan.state == "ssp" else [f"energies of {STATE_DESCRIPTIONS[plan.state]}"]
    states += ["of kernels that a CPU runs, not your GPU"] if plan.captured_on == "cpu" else []
    state = ", ".join(states)
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
    return Group(*_sentences(story), "", *map(panel_text, story.panels))


def _sentences(story: Story) -> list[RenderableType]:
    sentences: list[RenderableType] = [sentence_text(story.sentence, story.tone)]
    return sentences if story.bound is None else [*sentences, Paragraph(Text(f"{story.bound}."))]


def comparison_text(comparison: Comparison) -> RenderableType:
    """Effect of granularity, scope and objective (the paper's Table 2)."""
    head = headline(comparison.workload, comparison.device, comparison.origin, "change from auto")
    table = rich_table(comparison_table(comparison))
    return Group(head, "", table, *_beside(comparison.profiles), *_missing_points(comparison.coverage))


def _beside(profiles: Sequence[ProfileOutcome]) -> list[RenderableType]:
    """What the vendor's own profiles do, where they were measured."""

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
    note = coverage_note(coverage)
    return [] if note is None else ["", Text(f"note: {note}", style="yellow")]


def frontier_text(frontier: WholeFrontier) -> RenderableType:
    """All vertices of the hull, then the exact optimum at each limit."""
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


def validated_text(a: Plan, b: Plan, first: Path, second: Path) -> str | None:
    """Which of two plans was measured again."""
    validated = [str(path) for plan, path in ((a, first), (b, second)) if plan.validation is not None]
    if not validated:
        return None
    return "both were validated" if len(validated) == 2 else f"{validated[0]} was validated, the other was not"


def difference_text(difference: PlanDifference, made: Plan, first: str, second: str) -> RenderableType:
    """What the second plan does differently from the first, which was ``made`` before."""

    def signed(value: float, unit: str) -> str:
        return ("+" if value > 0 else "") + quantity(value, unit)

    def text(setting: Setting | None) -> Text:
        if setting is None or setting.is_auto:
            return Text("absent" if setting is None else "auto")
        return Text(clocks_text(setting))

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
