"""Several power profiles side by side: components, shapes, and a kernel alone and after others (FinGraV, Figs. 8 to 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.devices.instrument import TOTAL
from wastenot.pages.figure import Figure, inline, layered, name_axis, specification_of, tooltips
from wastenot.pages.formatting import change, percent, quantity, shortened
from wastenot.profiles.page.description import channel_names, meanings, shown_before, steady, subject, timed_channels, watts
from wastenot.profiles.page.drawing import BLUE, altair, with_error
from wastenot.profiles.result import Profile

CONTEXTS = "profiles-contexts"
"""The figure of kernels alone and after others, which pages leave out where no kernel is both."""
SHAPES = "profiles-shapes"
_STEP = 34  # height of a bar with its margins, in pixels
_NAME_WIDTH, _ALL_WIDTH, _LINES_WIDTH, _LINES_HEIGHT = 120, 780, 410, 230
_LONGEST_NAME = 36
_MOST_LINES = 8
_SHAPES = 2  # channels whose shape is drawn: the total and the first component; the levels of all are bars
_LETTER, _WIDEST_NAME = 6.2, 330  # pixels
_ALONE = "alone, SSP"
_ROOM = 1.57  # of the width, in which text stands right of every bar


@dataclass(frozen=True, slots=True)
class _Scale:
    """Watts, or per cent of the largest mean of each channel; of two profiles also what differs, and by how much."""

    relative: bool
    largest_w: Mapping[str, float]
    differing: str
    differences_w: Mapping[str, float]

    def scaled(self, name: str, power_w: float) -> float:
        return 100.0 * power_w / self.largest_w[name] if self.relative else power_w

    @property
    def unit(self) -> str:
        return "% of largest" if self.relative else "W"

    def title(self, name: str) -> str:
        by_w = self.differences_w.get(name)
        return f"{name} power, {self.unit}" if by_w is None else f"{name} power: {watts(by_w, sign=True)}"

    def text(self, name: str, power_w: float, error_w: float) -> str:
        return percent(power_w / self.largest_w[name], 1) if self.relative else watts(power_w, error_w)


def components_figure(profiles: Sequence[Profile], *, relative: bool = False) -> Figure:
    """Bars of mean power: a column for each channel, a row for each profile."""
    names = _all_channels(profiles)
    scale = _scale(profiles, names, relative)
    note = f"{meanings(names)}Bars: mean power at steady power{_or_after(profiles)}."
    if any(len({state.unit for state in profile.states}) > 1 for profile in profiles):
        note += " Ticks: of the first execution at full speed."
    if any(set(channel_names(profile)) - set(timed_channels(profile)) for profile in profiles):
        note += " Channels with long averaging times only show the level of steady power."
    if relative:
        note += " 100 % is the largest of each column."
    if scale.differences_w:
        note += f" In bold: the difference, {scale.differing}."
    alt = altair()
    rows = [f"{index}" for index in range(len(profiles))]
    width = max((_ALL_WIDTH - 14 * len(names)) // len(names), 110)
    panels = [_bars(profiles, name, names, scale, rows, width, first=name == names[0]) for name in names]
    return Figure(
        "profiles-components", "Power of components", _subtitle(profiles), note,
        specification_of(alt.hconcat(*panels, spacing=14)),
    )  # fmt: skip


def shapes_figure(profiles: Sequence[Profile], *, relative: bool = False) -> Figure:
    """Power inside SSP against the fraction of the execution: a panel for each channel, a line for each profile."""
    names = [name for name in _all_channels(profiles) if any(_resolved(profile, name) for profile in profiles)]
    names = names[:_SHAPES]
    title, stem = "Power inside an execution", SHAPES
    times = ", ".join(f"{subject(profile)} {quantity(steady(profile).time_s, 's', 3)}" for profile in profiles[:_MOST_LINES])
    note = f"Estimated power over an execution at steady power{_or_after(profiles)}. An execution takes: {times}."
    shown = [profile for profile in profiles if any(_resolved(profile, name) for name in names)]
    if not shown:
        return Figure(stem, title, _subtitle(profiles), "No sensor here resolves the power inside an execution.", None)
    if len(shown) > _MOST_LINES:
        note += f" Only the first {_MOST_LINES} profiles are drawn."
        shown = shown[:_MOST_LINES]
    if len(shown) < len(profiles) <= _MOST_LINES:
        note += " Profiles whose sensor does not resolve the kernel are left out."
    alt = altair()
    scale = _scale(profiles, names, relative)
    labels = _labels(shown)
    panels = [_lines(shown, labels, name, scale) for name in names]
    chart = alt.hconcat(*panels, spacing=24).resolve_scale(color="shared")
    return Figure(stem, title, _subtitle(profiles), note, specification_of(chart))


def _or_after(profiles: Sequence[Profile]) -> str:
    return ", or of the kernel after others" if any(profile.before for profile in profiles) else ""


def _all_channels(profiles: Sequence[Profile]) -> list[str]:
    """Channels for which any profile has a mean, total first."""
    names = dict.fromkeys(name for profile in profiles for name in channel_names(profile))
    return [name for name in names if any(name in steady(profile).channels for profile in profiles)]


def _scale(profiles: Sequence[Profile], names: Sequence[str], relative: bool) -> _Scale:
    largest = {
        name: max(steady(profile).channels[name].mean_w for profile in profiles if name in steady(profile).channels)
        for name in names
    }
    means = [{name: each.mean_w for name, each in steady(profile).channels.items()} for profile in profiles]
    if relative or len(profiles) != 2 or any(name not in mean_w for mean_w in means for name in names):
        return _Scale(relative, largest, "", {})
    labels = _labels(profiles)
    high, low = sorted((0, 1), key=lambda index: -means[index][names[0]])  # by total power
    differing = f"{labels[high]} minus {labels[low]}"
    return _Scale(relative, largest, differing, {name: means[high][name] - means[low][name] for name in names})


def _subtitle(profiles: Sequence[Profile]) -> str:
    """Devices, number of runs, and where the numbers come from."""
    devices = ", ".join(dict.fromkeys(profile.device for profile in profiles))
    origins = " and ".join(dict.fromkeys(profile.origin for profile in profiles))
    runs = sum(profile.runs for profile in profiles)
    golden = sum(profile.golden_runs for profile in profiles)
    return f"{len(profiles)} profiles on {devices} · {runs:,} runs, {golden:,} of them used · {origins} numbers"


def _labels(profiles: Sequence[Profile]) -> list[str]:
    """Distinct names of the profiles."""
    several = len({profile.device for profile in profiles}) > 1
    labels: list[str] = []
    for profile in profiles:
        label = shortened(subject(profile), _LONGEST_NAME) + (f", {profile.device}" if several else "")
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
    for index, profile in enumerate(profiles):
        inside = steady(profile).channels.get(name)
        if inside is None:
            continue
        before = profile.states[0].channels.get(name)
        moved = len({state.unit for state in profile.states}) > 1
        values.append(
            {
                "row": rows[index],
                "label": labels[index],
                **with_error(scale.scaled(name, inside.mean_w), scale.scaled(name, inside.mean_error_w)),
                "sse": scale.scaled(name, before.mean_w) if before is not None and moved else None,
                "text": percent(inside.mean_w / scale.largest_w[name], 0)
                if scale.relative
                else quantity(inside.mean_w, "W", 3),
                "says": scale.text(name, inside.mean_w, inside.mean_error_w),
            }
        )
    # One axis for all components, so that their bars compare; the total has its own.
    alike = [name] if scale.relative or name == TOTAL else [each for each in names if each != TOTAL]
    most = max(
        scale.scaled(each, state.channels[each].mean_w)
        for each in alike
        for profile in profiles
        for state in profile.states
        if each in state.channels
    )
    x = alt.X("p:Q", title=None, scale=alt.Scale(domain=[0.0, 1.36 * most], nice=False), axis=alt.Axis(tickCount=4))
    y = alt.Y("row:O", title=None, sort=rows, scale=alt.Scale(domain=rows), axis=_label_axis(labels) if first else None)
    base = alt.Chart(inline(values)).encode(y=y)
    # A colour for each profile, as their lines have in the next figure.
    color = alt.Color("label:N", sort=labels, scale=alt.Scale(domain=labels), legend=None)
    tooltip = tooltips({"label:N": " ", "says:N": name, "sse:Q": "SSE"})
    layers = [
        base.mark_bar(height=15, opacity=0.8, cornerRadiusEnd=1.5).encode(x=x, color=color, tooltip=tooltip),
        _errors(base, None),
        base.transform_filter("datum.sse != null")
        .mark_tick(style="curve", height=19, thickness=2.4, size=21)
        .encode(x=alt.X("sse:Q", title=None)),
        base.mark_text(style="small-label", align="left", dx=6).encode(
            x=alt.X("high:Q", title=None), text=alt.Text("text:N")
        ),
    ]
    return _panel(layers, scale.title(name), width, _STEP)


def _errors(base: Any, title: str | None) -> Any:
    """The errors of bars."""
    ends = {"x": altair().X("low:Q", title=title), "x2": altair().X2("high:Q")}
    return base.mark_rule(style="curve", strokeWidth=1.6, strokeDash=[1, 0]).encode(**ends)


def _panel(layers: Sequence[Any], title: str, width: int, step: int) -> Any:
    """Layers of bars under a title."""
    alt = altair()
    shown = alt.TitleParams(title, anchor="start", frame="group", fontSize=12.5, offset=4)
    return layered(*layers).properties(width=width, height=alt.Step(step), title=shown, view=alt.ViewBackground(stroke=None))


def _label_axis(labels: list[str]) -> Any:
    width = min(max(_NAME_WIDTH, round(_LETTER * max(map(len, labels)))), _WIDEST_NAME)
    return name_axis(labels, width)


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
                    **with_error(scale.scaled(name, power), scale.scaled(name, error)),
                }
            )
    title = f"{name} power, {scale.unit}"
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
    x = alt.X("share:Q", title="position in the execution, %", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    base = alt.Chart(inline(values)).encode(x=x, color=color)
    scaled = alt.Scale(zero=True, nice=True)
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title, scale=scaled), y2=alt.Y2("high:Q"))
    line = base.mark_line(strokeWidth=2.2).encode(
        y=alt.Y("p:Q", title=title, scale=scaled), tooltip=tooltips({"label:N": " ", "p:Q": title, "share:Q": "%"})
    )
    return layered(band, line).properties(width=_LINES_WIDTH, height=_LINES_HEIGHT)


def contexts_figure(profiles: Sequence[Profile]) -> Figure:
    """Each kernel alone, and after others: total power."""
    stem, title = CONTEXTS, "A kernel alone, and after others"
    groups = _by_kernel(profiles)
    if not groups:
        note = "None of these kernels was profiled both alone and after others (wastenot profile run --after)."
        return Figure(stem, title, _subtitle(profiles), note, None)
    alt = altair()
    most = max(steady(profile).channels[TOTAL].mean_w for members in groups.values() for profile in members)
    last = list(groups)[-1]
    panels = [_context_panel(kernel, members, most, last=kernel == last) for kernel, members in groups.items()]
    note = (
        "Mean total power and time of an execution in steady state (SSP) when the kernel runs on its own, and of one "
        "execution right after other kernels, with standard errors; changes are against the kernel alone."
    )
    shown = [profile for members in groups.values() for profile in members]
    return Figure(stem, title, _subtitle(shown), note, specification_of(alt.vconcat(*panels, spacing=12)))


def _by_kernel(profiles: Sequence[Profile]) -> dict[str, list[Profile]]:
    """Kernels that were profiled both alone and in context on one device; the profile alone comes first."""
    groups: dict[tuple[str, str], list[Profile]] = {}
    for profile in profiles:
        if TOTAL in steady(profile).channels:
            groups.setdefault((profile.kernel, profile.device), []).append(profile)
    both = {}
    for (kernel, device), members in groups.items():
        alone = [profile for profile in members if not profile.before]
        others = [profile for profile in members if profile.before]
        if alone and others:
            several = sum(key[0] == kernel for key in groups) > 1
            both[f"{kernel}, {device}" if several else kernel] = [alone[0], *others]
    return both


def _context_panel(kernel: str, members: list[Profile], most_w: float, *, last: bool) -> Any:
    alt = altair()
    labels = [_ALONE if not profile.before else shortened(shown_before(profile), _LONGEST_NAME) for profile in members]
    rows = [str(index) for index in range(len(members))]
    alone_w = steady(members[0]).channels[TOTAL].mean_w
    values = []
    for index, profile in enumerate(members):
        inside = steady(profile).channels[TOTAL]
        time_s = steady(profile).time_s
        text = f"{watts(inside.mean_w, inside.mean_error_w)}, {quantity(time_s, 's', 3)}"
        if index:
            changes = change(inside.mean_w / alone_w - 1.0, 1), change(time_s / steady(members[0]).time_s - 1.0, 1)
            text = f"{watts(inside.mean_w, inside.mean_error_w)} ({changes[0]}), {quantity(time_s, 's', 3)} ({changes[1]})"
        values.append(
            {
                "row": rows[index],
                "label": labels[index],
                **with_error(inside.mean_w, inside.mean_error_w),
                "text": text,
                "short": f"{inside.mean_w:.0f} W" + (f" ({change(inside.mean_w / alone_w - 1.0, 1)})" if index else ""),
                "alone": index == 0,
            }
        )
    title = "total power, W" if last else ""
    scale = alt.Scale(domain=[0.0, 1.62 * most_w], nice=False)
    x = alt.X("p:Q", title=title, scale=scale, axis=alt.Axis(values=_ticks(most_w), labels=last, ticks=False, domain=False))
    base = alt.Chart(inline(values)).encode(
        y=alt.Y("row:O", title=None, sort=rows, scale=alt.Scale(domain=rows), axis=_label_axis(labels))
    )
    reference = alt.Chart(inline([{"p": alone_w}])).mark_rule(style="rule").encode(x=x)
    bars = base.mark_bar(height=15, color=BLUE, cornerRadiusEnd=1.5).encode(
        x=x, opacity=alt.condition("datum.alone", alt.value(0.85), alt.value(0.45)),
        tooltip=tooltips({"label:N": kernel, "text:N": "total"}),
    )  # fmt: skip
    texts = base.mark_text(style="label", align="left", fontSize=11).encode(
        x=alt.XValue(int(_ALL_WIDTH / _ROOM)), text=alt.Text("text:N")
    )
    return _panel([bars, reference, _errors(base, title), texts], kernel, _ALL_WIDTH, _STEP - 8)


def _ticks(most_w: float) -> list[float]:
    """Round powers, up to the longest bar: the space to its right is for text."""
    step = next(step for step in (20.0, 50.0, 100.0, 200.0, 500.0, 1000.0) if most_w / step < 8.0 or step == 1000.0)
    return [step * index for index in range(int(most_w / step) + 1)]
