"""The page of policies that steer an engine's clock, as HTML and as figure files: energy, deadlines, and time lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.wording import sentence
from wastenot.pages.figure import Figure, inline, series_color, specification_of, tooltips
from wastenot.pages.formatting import SPACE, percent
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Folded, Page
from wastenot.serving.model.steering import Steered, Steering
from wastenot.serving.page import steer_words
from wastenot.serving.page.over_time import panels_over_time
from wastenot.serving.page.policies_chart import ROLE_COLORS, PolicyBar, Role, policies_chart
from wastenot.serving.page.simulated_words import simulated_origin, steps_text


def policies_figure(found: Steering) -> Figure:
    """A bar for each policy; with assumed clocks, where those were asked for, below."""
    bars = _bars(found)
    if found.with_assumed is not None:
        bars += _bars(found.with_assumed, assumed=True)
    saves = any(bar.role == "headline" for bar in bars)
    note = "Strong bar: the headline, with what it saves dotted. " if saves else ""
    note += f"Green: up to {percent(1.0 - found.share, 0)} of requests may miss a deadline"
    note += "." if all(bar.attains for bar in bars) else "; policies beyond that save at the users' expense."
    if found.with_assumed is not None:
        note += " Blue: known clocks only; orange: assumed ones, too."
    chart = policies_chart(bars, allowed=1.0 - found.share, late="late requests, %")
    return Figure(
        "serving-policies", "Energy and deadlines by policy", steer_words.about(found), note, specification_of(chart)
    )


def _bars(found: Steering, *, assumed: bool = False) -> list[PolicyBar]:
    shown = found.best if assumed else found.headline
    bars = []
    for run in found.runs[1:] if assumed else found.runs:
        strong: Role = "second" if assumed else "compared with" if run is found.runs[0] else "headline"
        weak: Role = "other, assumed" if assumed else "other"
        bars.append(
            PolicyBar(
                _name_of(run, assumed=assumed), strong if run is shown or run is found.runs[0] else weak,
                *(run.result.energy_per_token_j,) * 3, None if run is found.runs[0] else found.saved(run),
                1.0 - run.result.attainment, found.attains(run),
            )
        )  # fmt: skip
    return bars


def _name_of(run: Steered, *, assumed: bool = False) -> str:
    """What figures call a policy: a fixed clock by its MHz."""
    name, mhz = run.result.policy, run.result.mean_core_mhz
    if run.name in ("fixed", "greatest") and mhz is not None:
        fixed = run.name == "fixed"
        name = f"{'fixed' if fixed else 'maximum clock,'} {mhz:,.0f}{SPACE}MHz{', in hindsight' * fixed}"
    return f"{name}, assumed" if assumed else name


_BINS = 240  # of a picture
_CLOSE_S = 60.0  # of the stretch that is looked at closely
_PANELS = {
    "mhz": "core clock, MHz",
    "batch": "requests in the batch",
    "watts": "power, W",
    "gap_ms": "longest gap, ms",
    "first": "first token, % of its deadline",
}


def timeline_figures(found: Steering) -> tuple[Figure, ...]:
    """The whole load, and the busiest minute of it where it is longer than some."""
    shown = _shown(found)
    if not shown:
        return ()

    def figure(name: str, title: str, note: str, begin_s: float, end_s: float) -> Figure:
        return Figure(name, title, steer_words.about(found), note, specification_of(_chart(found, shown, begin_s, end_s)))

    figures = [figure("serving-timeline", "Timeline", _READ, 0.0, found.duration_s)]
    if found.duration_s > 3 * _CLOSE_S:
        begin_s = _busiest_s(shown[0][1])
        figures.append(figure("serving-minute", "The busiest minute", _MINUTE, begin_s, begin_s + _CLOSE_S))
    return tuple(figures)


def _shown(found: Steering) -> list[tuple[Steering, Steered, Role]]:
    """The maximum clock, what the headline is of, and what a card says of assumed clocks where those were asked for.

    Each after the policies that it is one of.
    """
    roles: dict[str, Role] = {found.headline.name: "headline", found.runs[0].name: "compared with"}
    runs = [(found, run, _name_of(run), roles[run.name]) for run in found.runs if run.name in roles]
    more = found.with_assumed
    if more is not None and (best := more.best) is not more.runs[0]:
        runs.append((more, best, _name_of(best, assumed=True), "second"))
    return [
        (of, replace(run, result=replace(run.result, policy=name)), role)
        for of, run, name, role in runs
        if run.served.timeline is not None
    ]


def _busiest_s(run: Steered) -> float:
    """When the minute with most tokens begins."""
    timeline = run.served.timeline
    assert timeline is not None
    bins = max(round(_CLOSE_S / timeline.bin_s), 1)
    made = np.convolve(timeline.tokens, np.ones(bins), mode="valid")
    return float(np.argmax(made)) * timeline.bin_s if len(made) else 0.0


_READ = (
    "Gap: the longest between two tokens of any request. First token: the slowest of those that arrived, as a percentage "
    "of the deadline for its prompt. Dotted lines mark the deadlines."
)
_MINUTE = "The minute in which most tokens were generated, from the timeline above; panels and lines are the same."


def _chart(found: Steering, shown: list[tuple[Steering, Steered, Role]], begin_s: float, end_s: float) -> Any:
    alt = load("altair")
    rows = [row for of, run, _ in shown for row in timeline_rows(of, run, begin_s, end_s)]
    colors = {run.result.policy: ROLE_COLORS[role] for _, run, role in shown}
    minutes = end_s - begin_s > 3 * _CLOSE_S
    unit_s = 60.0 if minutes else 1.0
    limits = {"gap_ms": 1e3 * found.deadlines.tbt_s, "first": 100.0}
    tip = tooltips({"policy:N": "policy", "at:Q": "minute" if minutes else "second"})
    panels = {field: title for field, title in _PANELS.items() if any(row[field] is not None for row in rows)}

    def draw(field: str, x: Any, y: Any) -> list[Any]:
        color = series_color("policy:N", colors, symbolType="stroke", symbolStrokeWidth=3, labelLimit=300)
        shape = {"interpolate": "step-after"} if field == "mhz" else {}
        lines = alt.Chart(inline(rows)).mark_line(strokeWidth=1.4, opacity=0.9, clip=True, **shape)
        lines = lines.encode(x=x, y=y, color=color, tooltip=tip)
        if field not in limits:
            return [lines]
        return [alt.Chart(inline([{field: limits[field]}])).mark_rule(style="rule").encode(y=y), lines]

    title = f"{'minutes' if minutes else 'seconds'} since the start"
    return panels_over_time(panels, title, (begin_s / unit_s, end_s / unit_s), draw)


def timeline_rows(found: Steering, run: Steered, begin_s: float, end_s: float) -> list[dict[str, object]]:
    """A stretch of a run in bins: what each was like; ``None`` where nothing was."""
    timeline = run.served.timeline
    assert timeline is not None
    first = min(int(begin_s / timeline.bin_s), len(timeline.tokens) - 1)
    last = min(int(np.ceil(end_s / timeline.bin_s)), len(timeline.tokens))
    together = max((last - first) // _BINS, 1)
    starts = np.arange(first, last, together)
    unit_s = 60.0 if end_s - begin_s > 3 * _CLOSE_S else 1.0
    lasted = np.add.reduceat(timeline.lasted_s[first:last], starts - first)
    mhz = np.add.reduceat((timeline.core_mhz * timeline.lasted_s)[first:last], starts - first)
    batch = np.add.reduceat(timeline.running[first:last], starts - first) / np.diff([*starts, last])
    energy = np.add.reduceat(timeline.energy_j[first:last], starts - first)
    gaps = np.fmax.reduceat(timeline.longest_gap_s[first:last], starts - first)
    edges = np.array([*starts, last]) * timeline.bin_s
    waits = _slowest_first(found, run, edges)
    return [
        {
            "policy": run.result.policy,
            "at": edges[index] / unit_s,
            "mhz": None if mhz[index] == 0 else mhz[index] / lasted[index],
            "batch": batch[index],
            "watts": energy[index] / lasted[index],
            "gap_ms": None if np.isnan(gaps[index]) else 1e3 * gaps[index],
            "first": None if np.isnan(waits[index]) else 100.0 * waits[index],
        }
        for index in range(len(starts))
    ]


def _slowest_first(found: Steering, run: Steered, edges_s: FloatArray) -> FloatArray:
    """Of the requests that came in each bin, the longest wait for the first token over its bound; ``nan`` for none."""
    requests = run.served.requests
    part = (run.served.first_token_s - requests.arrival_s) / found.deadlines.ttft_of(requests.prompt_tokens)
    of = np.searchsorted(edges_s, requests.arrival_s, side="right") - 1
    inside = (of >= 0) & (of < len(edges_s) - 1)
    slowest = np.full(len(edges_s) - 1, -np.inf)
    np.maximum.at(slowest, of[inside], part[inside])
    return np.where(np.isinf(slowest), np.nan, slowest)


def steer_figures(found: Steering) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return (policies_figure(found), *timeline_figures(found))


def steer_page(found: Steering) -> Page:
    """The page of policies that steer an engine's clock.

    Args:
        found: what to show, of :func:`wastenot.serving.model.steering.steer`.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    engine = found.engine
    figures = steer_figures(found)
    return Page(
        verb="serving",
        brand="serving",
        title=(engine.model or "engine", f"on {engine.device or 'an unnamed device'}"),
        origin=simulated_origin((engine,)),
        effect=steer_words.effect_text(found),
        verdict=steer_words.verdict_text(found),
        panels=steer_words.panels(found),
        next_step=steer_words.next_step(found),
        figures=figures[:2],
        tables=[],
        folded=Folded(
            "All policies",
            f"what each does, its numbers{', and the busiest minute' if figures[2:] else ''}",
            figures[2:],
            [("meanings", steer_words.about_table(found)), ("policies", steer_words.policies_table(found))],
        ),
        notes=[sentence(note) for note in steer_words.notes_on(found)],
        about=steer_words.about(found),
        device=engine.device,
        made_from=[
            *([("Trace", found.trace)] if found.trace else []),
            ("Engine", ", ".join(filter(None, (found.source, steps_text((engine,)))))),
        ],
    )
