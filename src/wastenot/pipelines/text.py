"""A pipeline's plan as text: what its page says, and the tables below that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wastenot.core.wording import counted
from wastenot.pipelines.page.listings import frontier_table, stages_table
from wastenot.pipelines.page.story import story_of
from wastenot.pipelines.plan.overview import pipeline_overview
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.terminal.panels import sentence_text
from wastenot.terminal.tables import Group, Paragraph, RenderableType, Text, headline, named_rows, rich_table

_LESS = ("Times per iteration", "Energy before", "Time before", "Above the bound by at most")


def pipeline_text(plan: PipelinePlan, out: Path | None = None, *, frontier: bool = False) -> RenderableType:
    """The whole, for a terminal.

    Args:
        plan: the plan.
        out: file that it was written to.
        frontier: show its frontier as well.
    """
    overview = pipeline_overview(plan)
    tone, effect, verdict, panels = story_of(overview)
    stages, ranks = counted(plan.stages, "stage"), len(plan.ranks)
    where = stages if ranks == plan.stages else f"{stages} on {counted(ranks, 'rank')}"
    what = f"{where} × {counted(plan.micro_batches, 'micro-batch')}, {plan.schedule}"
    rows = [
        (panel.title, " ".join((panel.sentence, "; ".join(f"{line.label}: {line.text}" for line in panel.lines))))
        for panel in panels
    ]
    tables = [stages_table(overview), frontier_table(overview) if frontier else None]
    return Group(
        Paragraph(headline(plan.name, plan.device, plan.origin, what)),
        sentence_text(f"{effect}: {verdict}", tone),
        "",
        named_rows([*rows, ("Assumed", "; ".join(plan.notes))] if plan.notes else rows),
        *(
            part
            for table in tables
            if table is not None
            for part in ("", Text(table.title, style="bold"), rich_table(replace(table, fold=None), _LESS))
        ),
        *_next(plan, out),
    )


def _next(plan: PipelinePlan, out: Path | None) -> list[RenderableType]:
    """What to do with it."""
    if out is None:
        return ["", Paragraph(Text("To use it, write it to a file: --out pipeline.json", style="dim"))]
    if plan.until_s is not None:  # for as long as another pipeline is slow: the server of stragglers says when
        return []
    return [Text(f"Next: wastenot apply {out} -- torchrun ... train.py", style="green")]
