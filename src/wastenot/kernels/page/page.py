"""The report of a plan: a self-contained HTML page, and its figures as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wastenot.core.files import PathLike
from wastenot.core.wording import counted
from wastenot.kernels.model.context import change_in_context
from wastenot.kernels.page.curve_figure import curve_figure, switching_figure
from wastenot.kernels.page.desirability_figure import desirability_figure
from wastenot.kernels.page.kernels_figure import kernels_figure
from wastenot.kernels.page.plan_figure import if_instant
from wastenot.kernels.page.provenance import Files, provenance, report_call
from wastenot.kernels.page.schedule_figure import compared_figures, schedule_figures
from wastenot.kernels.page.settings_figure import coarse_figure, kernel_figure
from wastenot.kernels.page.story import next_step, story_of
from wastenot.kernels.page.summary import plan_numbers, warnings
from wastenot.kernels.page.tables import applicable_table, comparison_table, context_table, kernel_table
from wastenot.kernels.page.verdict import range_of
from wastenot.kernels.plan.overview import PlanOverview, make_overview
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import SPACE, saved_range
from wastenot.pages.page import Folded, Numbers, Page
from wastenot.pages.panel import Line, Panel
from wastenot.pages.price import Price
from wastenot.pages.table import Fold, Table
from wastenot.planning.plan import Plan
from wastenot.planning.plan_file import read_plan
from wastenot.planning.planner import Planner, plan as make_plan
from wastenot.study.store import Source, open_study
from wastenot.study.sweep import Sweep

MOST_TABLE_ROWS = 200
_OF_SETTINGS, _OF_KERNELS = 2, 4  # of a report's last figures


def report(
    source: Source,
    out: PathLike,
    *,
    plan: PathLike | Plan | None = None,
    workload: str | None = None,
    figures: PathLike | None = None,
    price: Price | None = None,
    planner: Planner | None = None,
    command: str | None = None,
    notes: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Write a plan's report as one page that needs no network, and its figures as files.

        >>> import wastenot as wn
        >>> wn.report("my.db", "report.html")
        (PosixPath('report.html'),)

    Args:
        source: what the kernels cost: a study (its file, URL or the open study) or a sweep.
        out: the HTML file to create or replace.
        plan: to report, or its file; by default the one of least energy without any slowdown.
        workload: its name; by default the plan's, or the only one.
        figures: folder to write every figure to as SVG, PDF and PNG.
        price: of electricity; without it no costs are shown.
        planner: that made the plan, if it is at hand: what it has estimated is not estimated again.
        command: that makes the page again, shown in its foot; by default this call, without passwords.
        notes: more to know of the plan, shown above the figures.

    Returns:
        The files written.

    Raises:
        BadInputError: the plan was made from another sweep, or a file cannot be written.
        StudyError: the study cannot be read.
        MissingExtraError: the ``report`` extra is not installed.
    """
    made = None if plan is None else read_plan(plan)
    if isinstance(source, Sweep):
        held, study = source, None
    else:
        study = open_study(source)
        measured = (None, None, None) if made is None else (made.workload, made.state, made.measured_granularity)
        held = study.read(workload or measured[0], *measured[1:])
    made = make_plan(held) if made is None else made
    context = None if study is None else change_in_context(study, held, made)
    overview = make_overview(held, made, context, planner)
    called = report_call(source, out, plan=plan, workload=workload, figures=figures, price=price)
    files = Files(None if study is None else str(study), Path(plan) if isinstance(plan, str | os.PathLike) else None)
    page = plan_page(overview, price=price, made_from=provenance(study, held), files=files, notes=notes)
    page.write(out, command=command or called)
    return (Path(out), *([] if figures is None else page.export(figures)))


def plan_page(
    overview: PlanOverview,
    *,
    price: Price | None = None,
    made_from: Sequence[tuple[str, str]] = (),
    files: Files | None = None,
    notes: Sequence[str] = (),
) -> Page:
    """The page of a plan.

    Args:
        overview: what to show.
        price: of electricity; without it no costs are shown.
        made_from: what the numbers come from, as (name, text) pairs.
        files: to name in commands.
        notes: more to know, after what the plan itself warns of.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    plan = overview.plan
    story, applicable = story_of(plan, price, files), applicable_table(plan)
    figures = report_figures(overview)
    # What the plan does to each kernel is not in sight where only a part of it can be applied.
    whole = not if_instant(plan)
    shown = len(figures) - (_OF_SETTINGS if whole else _OF_KERNELS)
    kernels = kernel_table(plan, MOST_TABLE_ROWS)
    kernels = replace(kernels, title=f"{kernels.title}{if_instant(plan)}")
    return Page(
        verb="report",
        brand="energy report",
        title=(plan.workload, f"on {plan.device}"),
        origin=plan.origin,
        effect=story.effect,
        verdict=story.known,
        panels=story.panels if story.bound is None else _with_range(story.panels, plan),
        next_step=next_step(plan, files or Files()),
        figures=figures[:shown],
        tables=[
            *([("kernels", _folded(kernels))] if whole else []),
            *([] if overview.context is None else [("context", context_table(overview.context))]),
        ],
        tone=story.tone,
        panel_kinds=("plan", "today", "rest") if story.bound is None else ("today", "plan", "rest"),
        notes=(*warnings(plan), *notes),
        about=f"{plan.workload} on {plan.device} · {plan.origin} numbers",
        device=plan.device,
        made_from=(*made_from, ("Plan", plan.digest)),
        numbers=Numbers(
            "The plan in numbers",
            "cost, waste, proof, switches, and the plan at each granularity",
            plan_numbers(plan, price),
            [
                *([] if applicable is None else [("applicable", applicable)]),
                ("comparison", _folded(comparison_table(overview.comparison))),
            ],
        ),
        before_notes="No plan: ",
        folded=(
            Folded("More about settings", "single kernels, and what EDP (energy × delay) prefers", figures[shown:])
            if whole
            else Folded(
                "If switching were instant",
                "what the plan would do to each kernel, and every setting",
                figures[shown:],
                [("kernels", _folded(kernels))],
            )
        ),
    )


def _with_range(panels: Sequence[Panel], plan: Plan) -> tuple[Panel, ...]:
    """The panels with the range in which the first one's change lies, which a terminal has in its sentence."""
    first, *others = panels
    known, energy = range_of(plan, plan.today), plan.today.energy_change_interval
    if known and energy is not None and not plan.objective.saves_time:
        known = f"{saved_range(energy)} (95{SPACE}%)"
    lines = (Line("Expected", known), *first.lines) if known and plan.today.sets_something else first.lines
    return (replace(first, lines=lines), *others)


def _folded(table: Table) -> Table:
    """A table that is shown when asked for."""
    return replace(table, fold=Fold(0, f"Show {counted(len(table.rows), 'row')}"))


def report_figures(overview: PlanOverview) -> tuple[Figure, ...]:
    """All figures in the order they are shown, including those that have nothing to draw and say why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return (
        *compared_figures(overview.plan),
        *schedule_figures(overview.plan),
        curve_figure(overview),
        switching_figure(overview),
        kernels_figure(overview),
        coarse_figure(overview),
        kernel_figure(overview),
        desirability_figure(overview),
    )
