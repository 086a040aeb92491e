"""The page of a pipeline's plan, as HTML and as figure files."""

from __future__ import annotations

from wastenot.core.wording import sentence
from wastenot.pages.figure import Figure
from wastenot.pages.page import Folded, Page
from wastenot.pipelines.page.clocks_figure import clocks_figure
from wastenot.pipelines.page.drawing import about
from wastenot.pipelines.page.energy_figure import energy_figure
from wastenot.pipelines.page.frontier_figure import frontier_figure
from wastenot.pipelines.page.listings import frontier_table, stages_table, stragglers_table
from wastenot.pipelines.page.savings_figure import savings_figure
from wastenot.pipelines.page.schedule_figure import schedule_figure
from wastenot.pipelines.page.story import next_step, size_text, story_of
from wastenot.pipelines.plan.overview import PipelineOverview, pipeline_overview
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.planner import PlannedPipeline
from wastenot.pipelines.plan.savings import savings_by_shape


def pipeline_figures(overview: PipelineOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    drawn = (
        energy_figure(overview),
        schedule_figure(overview),
        clocks_figure(overview),
        frontier_figure(overview),
        savings_figure(overview),
    )
    return tuple(figure for figure in drawn if figure is not None)


def pipeline_page(overview: PipelineOverview) -> Page:
    """The page of a pipeline's plan.

    Args:
        overview: what to show, of :func:`wastenot.pipelines.plan.overview.pipeline_overview`.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    plan = overview.plan
    tone, effect, verdict, panels = story_of(overview)
    figures, instant = (
        pipeline_figures(overview),
        [("stragglers", stragglers_table(overview)), ("frontier", frontier_table(overview))],
    )
    folded = None
    if plan.switching is not None:  # what is planned for other times assumes that switching takes none
        names = ("pipeline-frontier", "pipeline-savings")
        assuming = [figure for figure in figures if figure.name in names and figure.specification is not None]
        figures = tuple(figure for figure in figures if figure.name not in names)
        if assuming or any(table is not None for _, table in instant):
            folded = Folded(panels[2].title, "plans at other deadlines, stragglers, and other shapes", assuming, instant)
            instant = []
    return Page(
        verb="pipeline",
        brand="pipeline plan",
        title=(plan.name, f"in {plan.stages} stages on {plan.device}"),
        origin=plan.origin,
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=next_step(plan),
        figures=figures,
        tables=[("stages", stages_table(overview)), *instant],
        folded=folded,
        tone=tone,
        notes=_notes(overview),
        about=about(overview),
        device=plan.device,
        made_from=(("Plan", plan.digest), ("Ranks", size_text(plan))),
    )


def plan_page(plan: PipelinePlan) -> Page:
    """The page of a plan as it was written; arguments and errors are those of :func:`pipeline_page`."""
    return pipeline_page(pipeline_overview(plan))


def planned_page(made: PlannedPipeline) -> Page:
    """The page of a plan just made, which also shows what plans of other shapes would save."""
    return pipeline_page(pipeline_overview(made.plan, savings=savings_by_shape(made.profile, made.schedule)))


def _notes(overview: PipelineOverview) -> list[str]:
    notes = [sentence(f"{'' if place else 'assumed: '}{note}") for place, note in enumerate(overview.plan.notes)]
    if overview.plan.baseline_clocks == "highest":
        notes.insert(0, "The profile has no numbers at the default clocks: the highest clock stands in for them.")
    return notes
