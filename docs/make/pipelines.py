"""The plan of GPT-3 175B on simulated H200s that the page makes, as it were if switching were free."""

from __future__ import annotations

from functools import cache, partial

import wastenot as wn
from docs.make.page import Page, figure
from wastenot.pipelines.page.page import pipeline_page
from wastenot.pipelines.plan.overview import PipelineOverview, pipeline_overview
from wastenot.pipelines.plan.savings import savings_by_shape

POINTS, SCALE = 30, 1.6


@cache
def planned() -> PipelineOverview:
    """The plan with its frontier."""
    made = wn.pipeline("gpt3-175b", stages=8, micro_batches=48, device="sim:h200", switch_time_s=0.0, frontier=POINTS)
    return pipeline_overview(made.plan, savings=savings_by_shape(made.profile, made.schedule))


def drawn(name: str) -> bytes:
    """A figure of the plan's page."""
    return figure(pipeline_page(planned()).export, name, SCALE)


PAGES = (Page("pipelines", pictures={"pipeline-schedule.png": partial(drawn, "pipeline-schedule")}),)
