"""What the runs of a job have used beyond the cheapest pair, in their order."""

from __future__ import annotations

from typing import Any

from wastenot.jobs.page.drawing import WIDE, about
from wastenot.jobs.page.words import runs_of
from wastenot.jobs.plan.overview import JobOverview, RunInHistory
from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips, words
from wastenot.pages.optional_imports import load

_HEIGHT = 230
_OURS, _DEFAULT = "this job", "always the default (expected)"


def regret_figure(overview: JobOverview) -> Figure:
    """What learning cost (cumulative regret), beside what always running the default would have."""
    title = "What learning cost"
    known = [each for each in overview.history if each.regret is not None and each.run.outcome != "running"]
    cheapest = overview.cheapest
    if not known or cheapest is None:
        note = "Not known before a run has reached the target and its speed was measured."
        return Figure("job-regret", title, about(overview), note, None)
    note = (
        f"What the runs used beyond as many {runs_of(cheapest)}, the cheapest choice known now, counted in such runs "
        "(regret). It levels off once the choice is right."
    )
    if _extra_of_default(overview) is not None:
        note += " The other line: always the default, as expected"
        all_reached = all(each.run.outcome == "reached" for each in known)
        note += "." if all_reached else ", counted where a run reached the target: it is flat where none did."
    return Figure("job-regret", title, about(overview), note, specification_of(_regret(overview)))


def paid_back_after(overview: JobOverview) -> int | None:
    """The run from which on learning had paid for itself; ``None`` where it has not, or cost nothing."""
    extra = _extra_of_default(overview)
    if extra is None:
        return None
    runs = _beside_default(overview, extra)
    ahead = [(each.regret or 0.0) <= of_default for each, of_default in runs]
    if not ahead or not ahead[-1] or all(ahead):
        return None
    last_behind = max(index for index, each in enumerate(ahead) if not each)
    return runs[last_behind + 1][0].run.number


def _regret(overview: JobOverview) -> Any:
    alt = load("altair")
    extra = _extra_of_default(overview)
    rows: list[dict[str, object]] = []
    for each, of_default in _beside_default(overview, extra or 0.0):
        rows.append({"run": each.run.number, "regret": each.regret, "series": _OURS, "text": f"{each.regret:.2f}"})
        if extra is not None:
            rows.append({"run": each.run.number, "regret": of_default, "series": _DEFAULT, "text": f"{of_default:.2f}"})
    colors = {_OURS: "#2f6fde"} | ({} if extra is None else {_DEFAULT: "#e08a00"})
    tip = tooltips({"series:N": " ", "run:Q": "run", "text:N": "regret"})
    base = alt.Chart(inline(rows)).encode(
        x=_run_axis(overview),
        y=alt.Y("regret:Q", title="extra cost, in runs", scale=alt.Scale(zero=True, nice=True)),
        color=series_color("series:N", colors, symbolType="stroke", symbolStrokeWidth=2.5, labelLimit=300),
    )
    line = base.mark_line(strokeWidth=2)
    points = base.mark_point(size=60, filled=True, opacity=0).encode(tooltip=tip)
    layers = [line, points]
    number = paid_back_after(overview)
    if number is not None:
        at = alt.Chart(inline([{"run": number, "text": f"paid back after run {number:,}"}]))
        layers.append(at.mark_rule(style="rule", tooltip=None).encode(x=_run_axis(overview)))
        told = at.encode(x=_run_axis(overview), y=alt.YValue(_HEIGHT), text=alt.Text("text:N"))
        layers += words(told, align="right", baseline="bottom", dx=-6, dy=-6)
    return layered(*layers).properties(width=WIDE, height=_HEIGHT)


def _extra_of_default(overview: JobOverview) -> float | None:
    """What a run of the default costs beyond one of the cheapest pair, in such runs; ``None`` where that is not known."""
    default, cheapest = overview.default, overview.cheapest
    if default is None or cheapest is None or default.forecast or overview.changed_at:
        return None
    return default.cost(overview.terms) / cheapest.cost(overview.terms) - 1.0


def _beside_default(overview: JobOverview, extra: float) -> list[tuple[RunInHistory, float]]:
    """Each run whose regret is known, and that of the default for as often as the target was reached."""
    reached, found = 0, []
    for each in overview.history:
        if each.run.outcome != "running" and each.regret is not None:
            reached += each.run.outcome == "reached"
            found.append((each, extra * reached))
    return found


def _run_axis(overview: JobOverview) -> Any:
    alt = load("altair")
    numbers = [each.run.number for each in overview.history]
    first, last = min(numbers), max(numbers)
    axis = alt.Axis(tickCount=min(12, last - first + 1), tickMinStep=1, format=",d", grid=False)
    return alt.X("run:Q", title="run", scale=alt.Scale(domain=[first - 0.5, last + 0.5], nice=False), axis=axis)
