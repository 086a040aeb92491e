"""What each batch size has cost, run by run, and what is expected of it."""

from __future__ import annotations

from typing import Any

from wastenot.jobs.page.drawing import OUTCOME_COLORS, WIDE, about, cost_axis, scale_of, sizes_axis
from wastenot.jobs.page.words import cost_beside_default, cost_in_column, pair_text
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips, words
from wastenot.pages.formatting import percent
from wastenot.pages.optional_imports import load

_TITLE = "Energy and time of each batch size"
_HEIGHT = 300
_BEYOND_RUNS = 1.5  # of the highest cost of a run, where the axis ends
_BESIDE_INTERVAL = -9  # pixels from the interval of a batch size to its runs


def sizes_figure(overview: JobOverview) -> Figure:
    """A dot for each run, and the expected cost with its interval."""
    runs = [each for each in overview.history if each.cost]
    if not runs and not overview.outlook:
        return Figure("job-sizes", _TITLE, about(overview), "Nothing is known yet: the job has not run.", None)
    note = "A dot is a run; one that did not reach the target counts with what it had used until then."
    if overview.changed_at:
        note += f" Faint: before run {overview.changed_at[-1]:,}, when the number of epochs needed changed."
    if overview.outlook:
        note += (
            " Lines: 95 % interval of what is expected of a run that reaches the target; for batch sizes without a run, "
            "forecast from their neighbours. Arrow: beyond the axis."
        )
    if _default_cost(overview) is not None and overview.default is not None:
        note += f" Dotted: the default, {pair_text(overview.default)}; runs take the cheapest setting known for their size."
    return Figure("job-sizes", _TITLE, about(overview), note, specification_of(_chart(overview)))


def _default_cost(overview: JobOverview) -> float | None:
    """Cost of the default pair; ``None`` where it is not known, or its setting is what every run has."""
    default = overview.default
    return None if default is None or default.forecast or default.setting.is_auto else default.cost(overview.terms)


def _chart(overview: JobOverview) -> Any:
    alt = load("altair")
    terms = overview.terms
    runs = [each for each in overview.history if each.cost]
    costs = [each.cost or 0.0 for each in runs]
    # What is expected may lie far beyond anything that was run: the axis ends soon after that.
    middle = [each.cost for each in overview.outlook] + costs
    furthest = _BEYOND_RUNS * max(costs) if costs else 10.0 * min(middle)
    shown = [min(max(value, min(middle) / 5.0), furthest) for each in overview.outlook for value in (each.low, each.high)]
    title, factor = cost_axis(overview, max(costs or middle))
    usual = [] if (found := _default_cost(overview)) is None else [found]
    scale = scale_of([factor * value for value in [*costs, *shown, *usual, *(min(each, furthest) for each in middle)]])
    x = sizes_axis("size", terms.batch_sizes)
    y = alt.Y("cost:Q", title=[title, "(logarithmic)"] if scale.type == "log" else title, scale=scale)
    layers: list[Any] = [
        alt.Chart(inline([{"usual": factor * cost}])).mark_rule(style="rule").encode(y=alt.Y("usual:Q", scale=scale))
        for cost in usual
    ]
    expected: list[dict[str, object]] = [
        {
            "size": each.batch_size,
            "cost": factor * each.cost,
            "low": factor * each.low,
            "high": factor * each.high,
            "expected": cost_beside_default(overview, each.cost),
            "beyond": cost_in_column(overview, each.cost),
            "interval": f"{cost_beside_default(overview, each.low)} to {cost_beside_default(overview, each.high)}",
            "chance": percent(each.chance, 0),
            "label": _label(overview, each.batch_size),
            # Above all that is drawn of a batch size, where names keep off the intervals of its neighbours.
            "top": factor
            * max([min(each.high, furthest), *(run.cost or 0.0 for run in runs if run.run.batch_size == each.batch_size)]),
        }
        for each in overview.outlook
    ]
    if runs:
        changed = max(overview.changed_at, default=0)
        rows: list[dict[str, object]] = [
            {
                "size": each.run.batch_size,
                "cost": factor * (each.cost or 0.0),
                "outcome": each.run.outcome,
                "run": each.run.number,
                "text": cost_beside_default(overview, each.cost or 0.0),
                "epochs": each.run.epochs,
                "before": each.run.number < changed,
            }
            for each in runs
        ]
        there = {name: color for name, color in OUTCOME_COLORS.items() if any(row["outcome"] == name for row in rows)}
        tip = tooltips({"run:Q": "run", "outcome:N": "outcome", "epochs:Q": "epochs", "text:N": "cost"})
        dots = alt.Chart(inline(rows)).mark_circle(size=46, clip=True, xOffset=_BESIDE_INTERVAL)
        color = series_color("outcome:N", there, symbolSize=80)
        faint = alt.condition("datum.before", alt.value(0.15), alt.value(0.55))
        layers.append(dots.encode(x=x, y=y, color=color, opacity=faint, tooltip=tip))
    if expected:
        base = alt.Chart(inline(expected))
        tip = tooltips(
            {"size:Q": "batch size", "expected:N": "expected", "interval:N": "95 % interval", "chance:N": "chance"}
        )
        layers.append(
            base.mark_rule(style="interval", clip=True).encode(
                x=x, y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q"), tooltip=tip
            )
        )
        layers.append(base.mark_point(style="dot", clip=True).encode(x=x, y=y, tooltip=tip))
        beyond = base.transform_filter(alt.datum.cost > factor * furthest).transform_calculate(arrow="'↑ ' + datum.beyond")
        above = beyond.mark_text(style="small-label", align="right", dx=-6, baseline="top", dy=4)
        layers.append(above.encode(x=x, y=alt.YValue(0), text=alt.Text("arrow:N"), tooltip=tip))
        following = base.transform_filter("datum.label != ''")
        above = following.encode(x=x, y=alt.Y("top:Q", scale=scale), text=alt.Text("label:N"))
        layers += words(above, align="center", baseline="bottom", dy=-6)
        if overview.next is not None:
            chosen = base.transform_filter(alt.datum.size == overview.next.batch_size)
            layers.append(chosen.mark_point(style="plan").encode(x=x, y=y, tooltip=tip))
    return layered(*layers).properties(width=WIDE, height=_HEIGHT)


def _label(overview: JobOverview, size: int) -> str:
    names = ["default size"] if size == overview.terms.default else []
    return ", ".join([*names, "next"] if overview.next is not None and size == overview.next.batch_size else names)
