"""What each part of the method contributes: synchronised clocks, binning, and the number of runs (FinGraV, Fig. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import TOTAL
from wastenot.pages.figure import Figure, inline, layered, series_color, series_opacity
from wastenot.profiles.page.description import channel_names, timed_channels
from wastenot.profiles.page.drawing import (
    BLUE,
    FAINT,
    RED,
    TimeUnit,
    altair,
    drawn_readings,
    points,
    polynomial_trend,
    profile_figure,
    span_of,
)
from wastenot.profiles.result import Profile

METHOD = "profile-method"
"""The figure of what each step of the method changes, which pages fold away."""
_WIDTH, _HEIGHT = 262, 250
_MOST = 1200  # readings in a panel
FEW_RUNS = 50
_LINE_POINTS = 80


def method_figure(profile: Profile) -> Figure:
    """Three panels of total power, each without and with one part of the method."""
    total = profile.channels[0].channel
    averaged = total.span_s > float(profile.unit_time_s[-1])
    note = (
        "First: readings with host and GPU clocks synchronised, and where they would lie if the first reading under load "
        "were taken as the start of each run. Second: readings of golden runs, and of all other runs. Third: a polynomial "
        f"of degree 4 through the readings of golden runs over the run, from all runs and from the first {FEW_RUNS}."
    )
    chart = None
    if TOTAL not in timed_channels(profile) or averaged:
        note = "The sensor averages over more than one execution, so there is nothing to compare."
    else:
        chart = _chart(profile)
    title = "Effect of clock synchronisation, binning and more runs"
    return profile_figure(profile, METHOD, title, note, chart)


def _chart(profile: Profile) -> Any:
    alt = altair()
    span_s = span_of(profile)
    unit = TimeUnit.of(span_s[1])
    logged = profile.logged
    synced, _ = drawn_readings(profile, TOTAL, span_s, most=_MOST)
    unsynced, _ = drawn_readings(profile, TOTAL, span_s, unsynchronised=True, most=_MOST)
    golden, golden_unsynced = synced[logged.golden[synced] == 1], unsynced[logged.golden[unsynced] == 1]
    others = synced[logged.golden[synced] == 0]
    power_w = logged.power_w[np.concatenate([synced, unsynced])]
    margin_w = 0.05 * max(float(np.ptp(power_w)), 1.0)
    limits_w = max(float(power_w.min()) - margin_w, 0.0), float(power_w.max()) + margin_w
    panel = _Panel(unit, span_s, limits_w, _WIDTH)
    sync = [
        panel.dots(logged.unsynchronised_s[golden_unsynced], logged.power_w[golden_unsynced], "not synchronised"),
        panel.dots(logged.moment_s[golden], logged.power_w[golden], "synchronised"),
    ]
    bins = [
        panel.dots(logged.moment_s[others], logged.power_w[others], "other runs"),
        panel.dots(logged.moment_s[golden], logged.power_w[golden], "golden runs"),
    ]
    kinds = {"synchronised": (BLUE, 0.6), "not synchronised": (RED, 0.4)}
    first = panel.drawn(sync, kinds, "Synchronised clocks")
    second = panel.drawn(bins, {"golden runs": (BLUE, 0.6), "other runs": (BLUE, 0.2)}, "Runs in one bin")
    panels = (first, second, _few(profile, panel, golden))
    together = alt.hconcat(*panels, spacing=16)
    return together.resolve_scale(color="independent", opacity="independent")


def _few(profile: Profile, panel: _Panel, golden: IndexArray) -> Any:
    logged = profile.logged
    end_s = float(profile.unit_begin_s[-1] + profile.unit_time_s[-1])
    index = channel_names(profile).index(TOTAL)
    used = (logged.channel == index) & (logged.golden == 1) & (logged.moment_s >= 0.0) & (logged.moment_s <= end_s)
    at = np.linspace(0.0, end_s, _LINE_POINTS)
    layers = [panel.dots(logged.moment_s[golden], logged.power_w[golden], "readings")]
    kinds = {"readings": (FAINT, 0.25)}
    first = int(logged.run[used].max(initial=0)) + 1
    for label, most, color in ((f"{profile.runs} runs", first, BLUE), (f"{FEW_RUNS} runs", FEW_RUNS, RED)):
        chosen = used & (logged.run < most)
        line = polynomial_trend(logged.moment_s[chosen], logged.power_w[chosen], at)
        if line is not None and label not in kinds:
            layers.append(panel.line(at, line, label, dashed=color == RED))
            kinds[label] = (color, 1.0)
    return panel.drawn(layers, kinds, f"Only {FEW_RUNS} runs")


class _Panel:
    """Panels of one figure, which share axes."""

    def __init__(self, unit: TimeUnit, span_s: tuple[float, float], power_w: tuple[float, float], width: int) -> None:
        self._unit, self._span_s, self._power_w, self._width = unit, span_s, power_w, width

    def _axes(self) -> tuple[Any, Any]:
        alt = altair()
        x = alt.X(
            "t:Q",
            title=f"time in the run, {self._unit.name}",
            scale=alt.Scale(domain=[self._unit.factor * end for end in self._span_s], nice=False),
            axis=alt.Axis(tickCount=5),
        )
        return x, alt.Y("p:Q", title="total power, W", scale=alt.Scale(domain=list(self._power_w), nice=True))

    def _chart(self, moment_s: FloatArray, power_w: FloatArray, kind: str) -> Any:
        return altair().Chart(inline(points(self._unit, moment_s, power_w, kind=[kind] * len(moment_s))))

    def dots(self, moment_s: FloatArray, power_w: FloatArray, kind: str) -> Any:
        """Readings."""
        x, y = self._axes()
        return self._chart(moment_s, power_w, kind).mark_circle(size=13, stroke=None).encode(x=x, y=y)

    def line(self, moment_s: FloatArray, power_w: FloatArray, kind: str, *, dashed: bool) -> Any:
        """A line through readings."""
        x, y = self._axes()
        dash = [6, 4] if dashed else [1, 0]
        return self._chart(moment_s, power_w, kind).mark_line(strokeWidth=2.2, strokeDash=dash, clip=True).encode(x=x, y=y)

    def drawn(self, layers: list[Any], kinds: dict[str, tuple[str, float]], title: str) -> Any:
        """Layers with one legend."""
        alt = altair()
        color = series_color(
            "kind:O", {kind: color for kind, (color, _) in kinds.items()}, columnPadding=12, symbolSize=60, offset=4
        )
        opacity = series_opacity("kind:O", {kind: opacity for kind, (_, opacity) in kinds.items()})
        return layered(*(layer.encode(color=color, opacity=opacity) for layer in layers)).properties(
            width=self._width,
            height=_HEIGHT,
            title=alt.TitleParams(title, anchor="start", frame="group", fontSize=12.5, offset=2),
        )
