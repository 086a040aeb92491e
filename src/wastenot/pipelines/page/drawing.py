"""What the figures of a pipeline share: their colours, the axis of time, and what they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.core.wording import counted, listed
from wastenot.pages.formatting import SPACE
from wastenot.pages.optional_imports import load
from wastenot.pipelines.plan.overview import PipelineOverview
from wastenot.pipelines.plan.plan import PipelinePlan

WIDE = 915
BEFORE_COLOR, AFTER_COLOR, BOUND_COLOR = "#e08a00", "#2f6fde", "#0f9b8e"
AFTER = "this plan"
INSTRUCTION_TEXT = {
    "forward": "forward",
    "recomputation": "recomputation",
    "backward": "backward",
    "backward_input": "backward, input",
    "backward_weight": "backward, weights",
    "forward_backward": "forward and backward at once",
    "all_reduce": "all-reduce",
}


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The axis of an iteration's time: its unit, ``factor`` of which make a second, and its end in that unit."""

    unit: str
    factor: float
    end: float

    @classmethod
    def of(cls, overview: PipelineOverview) -> TimeAxis:
        """Seconds, or milliseconds for short iterations; both iterations end on it."""
        last_s = max(overview.before.lasts_s, overview.after.lasts_s)
        unit, factor = ("s", 1.0) if last_s >= 1.0 else ("ms", 1e3)
        return cls(unit, factor, factor * last_s)

    def x(self, field: str, domain: tuple[float, float], *, ticks: int, labels: bool) -> Any:
        """The channel of a field in the axis' unit."""
        alt = load("altair")
        return alt.X(
            f"{field}:Q",
            title=f"time since the start of the iteration, {self.unit}" if labels else None,
            scale=alt.Scale(domain=list(domain), nice=False),
            axis=alt.Axis(tickCount=ticks, labels=labels, grid=False, labelFlush=True),
        )


def before_text(plan: PipelinePlan) -> str:
    """What stands for the default clocks."""
    return "default clocks" if plan.baseline_clocks == "auto" else "highest clocks"


def instruction_text(name: str) -> str:
    """An instruction's name as people say it."""
    return INSTRUCTION_TEXT.get(name, name.replace("_", " "))


def about(overview: PipelineOverview) -> str:
    """Of what a figure is, and where its numbers come from."""
    plan = overview.plan
    return f"{plan.name} on {plan.device} · {shape_text(plan)} · {plan.origin} numbers"


def shape_text(plan: PipelinePlan) -> str:
    """Schedule, stages and micro-batches."""
    stages = counted(plan.stages, "stage")
    on = "" if len(plan.ranks) == plan.stages else f" on {counted(len(plan.ranks), 'rank')}"
    return f"schedule {plan.schedule}, {stages}{on}, {counted(plan.micro_batches, 'micro-batch')}".replace(" ", " ")


def ranks_text(ranks: Sequence[int]) -> str:
    """Some ranks by their numbers."""
    return f"rank{'' if len(ranks) == 1 else 's'} {listed([str(rank) for rank in ranks])}"


def mhz_text(core_mhz: float | None) -> str:
    """A core clock: ``1,410 MHz``, or ``auto``."""
    return "auto" if core_mhz is None else f"{core_mhz:,.0f}{SPACE}MHz"
