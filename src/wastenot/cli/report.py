"""The verb report: any result as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wastenot.core.wording import counted
from wastenot.terminal.options import FiguresOption, JsonOption, PlanOptions, PriceOptions, ReportSource, SweepOptions

_NO_PAGES = (".pdf", ".png", ".svg", ".json", ".md", ".csv", ".db")


def report(
    shown: ReportSource,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="The page to write.")],
    goal: PlanOptions,
    price_options: PriceOptions,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="PLAN.json", help="Show this plan, such as one that validate wrote; by default makes one."
        ),
    ] = None,
    applied: Annotated[
        Path | None,
        typer.Option(
            "--applied", metavar="RUN.json", help="Show a run under a plan, from what 'wastenot apply --out' wrote."
        ),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option("--pipeline", metavar="PIPELINE.json", help="Show a pipeline's plan, which 'wastenot pipeline' wrote."),
    ] = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a plan, or a run under one, as a self-contained page.

    Headline numbers, figures and tables; it needs no network.
    """
    from wastenot.core.errors import BadInputError
    from wastenot.kernels.verbs import report as write_report
    from wastenot.planning.plan import read_plan
    from wastenot.terminal.output import print_json, say, typed_command

    if out.suffix.lower() in _NO_PAGES:
        raise BadInputError(
            f"--out {out}: the page is HTML: name it .html; for SVG, PDF and PNG of each figure: --figures DIR"
        )
    if applied is not None:
        _report_of_a_run(applied, out, figures, as_json=as_json)
        return
    if pipeline is not None:
        _report_of_a_pipeline(pipeline, out, figures, as_json=as_json)
        return
    price, source = price_options.price(), shown.sweep()
    if plan is None:
        made = goal.plan(source.read(goal.granularity))
    else:
        _refuse_a_goal_beside_a_plan(source, goal)
        made = read_plan(plan)
    command = typed_command(source.study)
    page, *files = write_report(source.study, out, plan=made, figures=figures, price=price, command=command)
    say(f"{page}: report written")
    if figures is not None:
        say(f"{figures}: {counted(len(files), 'figure file')} written")
    if as_json:
        print_json("report", {"page": str(page), "figures": list(map(str, files)), "plan": made.document()})


def _report_of_a_run(applied: Path, out: Path, figures: Path | None, *, as_json: bool) -> None:
    from wastenot.control.page.page import applied_page
    from wastenot.control.status import read_summary
    from wastenot.terminal.output import print_json, typed_command
    from wastenot.terminal.written_page import write_page

    summary = read_summary(applied)
    files = write_page(applied_page(summary), out, figures, command=typed_command(str(applied)))
    if as_json:
        run = summary.model_dump(mode="json", by_alias=True)
        print_json("report", {"page": str(out), "figures": list(map(str, files)), "plan": None, "run": run})


def _report_of_a_pipeline(plan: Path, out: Path, figures: Path | None, *, as_json: bool) -> None:
    from wastenot.pipelines.page.page import pipeline_page
    from wastenot.pipelines.plan.overview import pipeline_overview
    from wastenot.pipelines.plan.plan_file import read_pipeline_plan
    from wastenot.terminal.output import print_json, typed_command
    from wastenot.terminal.written_page import write_page

    overview = pipeline_overview(read_pipeline_plan(plan))
    files = write_page(pipeline_page(overview), out, figures, command=typed_command(str(plan)))
    if as_json:
        written = {"page": str(out), "figures": list(map(str, files))}
        print_json("report", {**written, "plan": None, "pipeline": overview.plan.document()})


def _refuse_a_goal_beside_a_plan(source: SweepOptions, goal: PlanOptions) -> None:
    """A plan that is made already knows what it is of and for."""
    from dataclasses import replace

    from wastenot.core.errors import BadInputError

    if goal != PlanOptions() or source != replace(source, workload=None, energies=None):
        raise BadInputError(
            "--plan: the plan in the file has its workload, objective and limit already; leave out what asks for another"
        )
