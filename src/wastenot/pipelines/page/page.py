"""The page of a pipeline's plan, as HTML and as figure files."""

from __future__ import annotations

from wastenot.pages.figure import Figure
from wastenot.pages.page import Page
from wastenot.pipelines.page.clocks_figure import clocks_figure
from wastenot.pipelines.page.drawing import about
from wastenot.pipelines.page.energy_figure import energy_figure
from wastenot.pipelines.page.frontier_figure import frontier_figure
from wastenot.pipelines.page.listings import frontier_table, ranks_table, stages_table, stragglers_table
from wastenot.pipelines.page.power_figure import power_figure
from wastenot.pipelines.page.savings_figure import savings_figure
from wastenot.pipelines.page.schedule_figure import schedule_figure
from wastenot.pipelines.page.story import next_step, story_of
from wastenot.pipelines.plan.overview import PipelineOverview, pipeline_overview
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.planner import PlannedPipeline
from wastenot.pipelines.plan.savings import savings_by_shape


def pipeline_figures(overview: PipelineOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    savings = savings_figure(overview)
    return (
        schedule_figure(overview),
        power_figure(overview),
        energy_figure(overview),
        frontier_figure(overview),
        clocks_figure(overview),
        *([] if savings is None else [savings]),
    )


def pipeline_page(overview: PipelineOverview) -> Page:
    """The page of a pipeline's plan.

    Args:
        overview: what to show, of :func:`wastenot.pipelines.plan.overview.pipeline_overview`.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    plan = overview.plan
    tone, effect, verdict, panels = story_of(overview)
    return Page(
        verb="pipeline",
        brand="pipeline plan",
        title=(plan.name, f"in {plan.stages} stages on {plan.device}"),
        origin=plan.origin,
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=next_step(plan),
        figures=pipeline_figures(overview),
        tables=[
            ("stages", stages_table(overview)),
            ("ranks", ranks_table(overview)),
            ("stragglers", stragglers_table(overview)),
            ("frontier", frontier_table(overview)),
        ],
        tone=tone,
        notes=_notes(overview),
        about=about(overview),
        device=plan.device,
        made_from=(("Plan", plan.digest),),
    )


def plan_page(plan: PipelinePlan) -> Page:
    """The page of a plan as it was written; arguments and errors are those of :func:`pipeline_page`."""
    return pipeline_page(pipeline_overview(plan))


def planned_page(made: PlannedPipeline) -> Page:
    """The page of a plan just made, which also shows what plans of other shapes would save."""
    return pipeline_page(pipeline_overview(made.plan, savings=savings_by_shape(made.profile, made.schedule)))


def _notes(overview: PipelineOverview) -> list[str]:
    notes = [f"Assumed: {note}{'' if note.endswith('.') else '.'}" for note in overview.plan.notes]
    if overview.plan.baseline_clocks == "highest":
        notes.insert(0, "The profile has no numbers at the default clocks: the highest clock stands in for them.")
    return notes
