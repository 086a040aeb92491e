"""Power profiles of several kernels side by side: their components (FinGraV, Figs. 8 and 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.profiling.result import Profile
from wastenot.reporting.figure import Figure, inline
from wastenot.reporting.profile.rows import altair, color_of, specification_of
from wastenot.reporting.profile.words import channel_names, steady, subject, timed_channels, watts
from wastenot.reporting.words import percent, quantity, shortened

STEP = 34  # height of a bar with the room around it, in pixels
_NAME_WIDTH, ALL_WIDTH, _LINES_HEIGHT = 225, 700, 230
LONGEST_NAME = 36
_MOST_LINES = 8
_LETTER, _WIDEST_NAME = 6.2, 330  # pixels


@dataclass(frozen=True, slots=True)
class _Scale:
    """Watts, or shares of the largest mean of each channel, in per cent."""

    relative: bool
    largest_w: Mapping[str, float]

    def of(self, name: str, power_w: float) -> float:
        return 100.0 * power_w / self.largest_w[name] if self.relative else power_w

    @property
    def unit(self) -> str:
        return "% of largest" if self.relative else "W"

    def words(self, name: str, power_w: float, error_w: float) -> str:
        return percent(power_w / self.largest_w[name], 1) if self.relative else watts(power_w, error_w)


def components_figure(profiles: Sequence[Profile], *, relative: bool = False) -> Figure:
    """Bars of mean power: a column for each channel, a row for each profile."""
    names = _all_channels(profiles)
    scale = _scale(profiles, names, relative)
    note = (
        "Bars: mean power in SSP, or of the kernel after others, with its standard error; ticks: in SSE, where that is "
        "another execution. Levels of channels that average over long times are of steady power."
    )
    if relative:
        note += " 100 % is the largest of each column."
    alt = altair()
    rows = [f"{place}" for place in range(len(profiles))]
    width = max((ALL_WIDTH - 14 * len(names)) // len(names), 110)
    panels = [_bars(profiles, name, names, scale, rows, width, first=name == names[0]) for name in names]
    return Figure(
        "profiles-components", "Power of components, side by side", subtitle_of(profiles), note,
        specification_of(alt.hconcat(*panels, spacing=14)),
    )  # fmt: skip


def shapes_figure(profiles: Sequence[Profile], *, relative: bool = False) -> Figure:
    """Power inside SSP by share of the execution: a panel for each channel, a line for each profile."""
    names = [name for name in _all_channels(profiles) if any(_resolved(profile, name) for profile in profiles)]
    title, stem = "Power inside an execution, side by side", "profiles-shapes"
    note = (
        "Power as found inside SSP, or inside the kernel after others, with its standard error, by share of the execution."
    )
    shown = [profile for profile in profiles if any(_resolved(profile, name) for name in names)]
    if not shown:
        return Figure(stem, title, subtitle_of(profiles), "No sensor here resolves what is inside an execution.", None)
    if len(shown) > _MOST_LINES:
        note += f" The first {_MOST_LINES} profiles are drawn; the others are left out."
        shown = shown[:_MOST_LINES]
    if len(shown) < len(profiles) <= _MOST_LINES:
        note += " Profiles whose sensor does not resolve the kernel are left out."
    alt = altair()
    scale = _scale(profiles, names, relative)
    labels = _labels(shown)
    panels = [_lines(shown, labels, name, scale) for name in names]
    # Two panels a row.
    rows = [alt.hconcat(*panels[place : place + 2], spacing=24) for place in range(0, len(panels), 2)]
    chart = alt.vconcat(*rows, spacing=18).resolve_scale(color="shared")
    return Figure(stem, title, subtitle_of(profiles), note, specification_of(chart))


def _all_channels(profiles: Sequence[Profile]) -> list[str]:
    """Channels that any profile has a mean of, total first."""
    names = dict.fromkeys(name for profile in profiles for name in channel_names(profile))
    return [name for name in names if any(name in steady(profile).channels for profile in profiles)]


def _scale(profiles: Sequence[Profile], names: Sequence[str], relative: bool) -> _Scale:
    largest = {
        name: max(steady(profile).channels[name].mean_w for profile in profiles if name in steady(profile).channels)
        for name in names
    }
    return _Scale(relative, largest)


def subtitle_of(profiles: Sequence[Profile]) -> str:
    """On what devices, of how many runs, and where the numbers come from."""
    devices = ", ".join(dict.fromkeys(profile.device for profile in profiles))
    origins = " and ".join(dict.fromkeys(profile.origin for profile in profiles))
    runs = sum(profile.runs for profile in profiles)
    golden = sum(profile.golden_runs for profile in profiles)
    return f"{len(profiles)} profiles on {devices} · {runs:,} runs, {golden:,} golden · {origins} numbers"


def _labels(profiles: Sequence[Profile]) -> list[str]:
    """Names of profiles that tell them apart."""
    several = len({profile.device for profile in profiles}) > 1
    labels: list[str] = []
    for profile in profiles:
        label = shortened(subject(profile), LONGEST_NAME) + (f", {profile.device}" if several else "")
        taken = labels.count(label)
        labels.append(f"{label} ({taken + 1})" if taken else label)
    return labels


def _resolved(profile: Profile, name: str) -> bool:
    inside = steady(profile).channels.get(name)
    return inside is not None and inside.resolved and name in timed_channels(profile)


def _bars(
    profiles: Sequence[Profile], name: str, names: Sequence[str], scale: _Scale, rows: list[str], width: int, *, first: bool
) -> Any:
    alt = altair()
    labels = _labels(profiles)
    values = []
    for place, profile in enumerate(profiles):
        inside = steady(profile).channels.get(name)
        if inside is None:
            continue
        before = profile.states[0].channels.get(name)
        moved = len({state.unit for state in profile.states}) > 1
        values.append(
            {
                "row": rows[place],
                "label": labels[place],
                "p": scale.of(name, inside.mean_w),
                "low": scale.of(name, inside.mean_w - inside.mean_error_w),
                "high": scale.of(name, inside.mean_w + inside.mean_error_w),
                "sse": scale.of(name, before.mean_w) if before is not None and moved else None,
                "text": percent(inside.mean_w / scale.largest_w[name], 0)
                if scale.relative
                else quantity(inside.mean_w, "W", 3),
                "says": scale.words(name, inside.mean_w, inside.mean_error_w),
            }
        )
    most = max(max(value["high"], value["sse"] or 0.0) for value in values)  # type: ignore[call-overload]
    x = alt.X("p:Q", title=scale.unit, scale=alt.Scale(domain=[0.0, 1.36 * most], nice=False), axis=alt.Axis(tickCount=4))
    y = alt.Y("row:O", title=None, sort=rows, scale=alt.Scale(domain=rows), axis=name_axis(labels) if first else None)
    base = alt.Chart(inline(values)).encode(y=y)
    color = color_of(name, tuple(names))
    tooltip = [alt.Tooltip("label:N", title=" "), alt.Tooltip("says:N", title=name), alt.Tooltip("sse:Q", title="SSE")]
    layers = [
        base.mark_bar(height=15, color=color, opacity=0.8, cornerRadiusEnd=1.5).encode(x=x, tooltip=tooltip),
        base.mark_rule(style="curve", strokeWidth=1.6, strokeDash=[1, 0]).encode(
            x=alt.X("low:Q", title=scale.unit), x2="high:Q"
        ),
        base.transform_filter("datum.sse != null")
        .mark_tick(style="curve", height=19, thickness=2.4, size=21)
        .encode(x=alt.X("sse:Q", title=scale.unit)),
        base.mark_text(style="small-label", align="left", dx=6).encode(x=alt.X("high:Q", title=scale.unit), text="text:N"),
    ]
    return alt.layer(*layers).properties(
        width=width,
        height=alt.Step(STEP),
        title=alt.TitleParams(name, anchor="start", frame="group", fontSize=12.5, offset=4),
        view=alt.ViewBackground(stroke=None),
    )


def name_axis(labels: list[str]) -> Any:
    """An axis of rows by place, whose labels are looked up: names may repeat."""
    from wastenot.reporting.plan.kernels_figure import expression

    width = min(max(_NAME_WIDTH, round(_LETTER * max(map(len, labels)))), _WIDEST_NAME)
    return altair().Axis(
        labelExpr=f"{expression(labels)}[datum.value]",
        labelLimit=width,
        minExtent=width,
        maxExtent=width,
        ticks=False,
        domain=False,
        grid=False,
        labelPadding=8,
        labelFontSize=12,
    )


def _lines(profiles: Sequence[Profile], labels: list[str], name: str, scale: _Scale) -> Any:
    alt = altair()
    values = []
    for label, profile in zip(labels, profiles, strict=True):
        if not _resolved(profile, name):
            continue
        inside = steady(profile).channels[name]
        for share, power, error in zip(inside.share, inside.power_w, inside.error_w, strict=True):
            values.append(
                {
                    "label": label,
                    "share": round(100.0 * float(share), 2),
                    "p": round(scale.of(name, float(power)), 2),
                    "low": round(scale.of(name, float(power - error)), 2),
                    "high": round(scale.of(name, float(power + error)), 2),
                }
            )
    title = f"{name}, {scale.unit}"
    color = alt.Color(
        "label:N",
        title=None,
        sort=labels,
        scale=alt.Scale(domain=labels),
        legend=alt.Legend(
            orient="top",
            columns=3,
            symbolOpacity=1,
            columnPadding=18,
            symbolType="stroke",
            symbolStrokeWidth=3,
            labelLimit=400,
        ),
    )
    x = alt.X("share:Q", title="share of the execution, %", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    base = alt.Chart(inline(values)).encode(x=x, color=color)
    scaled = alt.Scale(zero=True, nice=True)
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title, scale=scaled), y2="high:Q")
    line = base.mark_line(strokeWidth=2.2).encode(
        y=alt.Y("p:Q", title=title, scale=scaled),
        tooltip=[alt.Tooltip("label:N", title=" "), alt.Tooltip("p:Q", title=title), alt.Tooltip("share:Q", title="%")],
    )
    return alt.layer(band, line).properties(width=410, height=_LINES_HEIGHT)
