"""Draws the figures of docs/calibration.md from ../shared/data: python docs/make_calibration_images.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from wastenot.reporting.theme import LIGHT
from wastenot.study.sweep_file import read_sweep
from wastenot.tuning.calibration.accuracy import fits_without_some, ratios
from wastenot.tuning.calibration.points import points_of_sweep

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
CARDS = {
    "RTX 3080 Ti": ("rtx3080ti-polybench/sweep.csv", 350.0),
    "GTX 980": ("gpu-dvfs/gtx980.csv", None),
    "V100": ("gpu-dvfs/v100.csv", None),
}
ORIGIN = "held-out measurements of apAdomas/GPU-FREQUENCY-DVFS and blackjack2015/NV-DVFS-Benchmark"


def main() -> None:
    """Write docs/images/calibration-errors.png and calibration-by-clock.png."""
    found = {card: held_out(*CARDS[card]) for card in CARDS}
    save(cumulative(found), "calibration-errors.png")
    save(by_clock(found["RTX 3080 Ti"]), "calibration-by-clock.png")


def held_out(file: str, limit_w: float | None) -> dict[str, np.ndarray]:
    """Absolute errors in per cent, and the clocks, of every held-out point."""
    points = points_of_sweep(read_sweep(DATA / file))
    parts = []
    for fit, left_out in fits_without_some(points, limit_w):
        error = 100 * np.abs(ratios(fit.device, fit.kernels, points, left_out) - 1)
        parts.append(np.vstack([error, points.core_mhz[left_out > 0], points.memory_mhz[left_out > 0]]))
    return dict(zip(("time", "energy", "core", "memory"), np.concatenate(parts, axis=1), strict=True))


def cumulative(found: dict[str, dict[str, np.ndarray]]) -> alt.Chart:
    """Fraction of held-out points with an error below a bound."""
    rows: list[dict[str, Any]] = []
    bounds = np.geomspace(0.1, 40, 120)
    for card, errors in found.items():
        for quantity in ("time", "energy"):
            shares = (errors[quantity][:, None] <= bounds).mean(axis=0)
            label = f"{card} ({len(errors['time'])} points)"
            rows += [
                {"card": label, "quantity": quantity, "error": bound, "share": share}
                for bound, share in zip(bounds.tolist(), shares.tolist(), strict=True)
            ]
    line = (
        alt.Chart()
        .mark_line(strokeWidth=2.2, clip=True)
        .encode(
            x=alt.X("error:Q", title="error of the prediction, %", scale=alt.Scale(type="log", domain=[0.1, 40], nice=False))
            .axis(values=[0.1, 0.3, 1, 3, 10, 30], grid=True),
            y=alt.Y("share:Q", title="fraction of points below", scale=alt.Scale(domain=[0, 1])).axis(format="%"),
            color=alt.Color("card:N", title=None, sort=list(found), legend=alt.Legend(orient="bottom")),
        )
    )  # fmt: skip
    goal = alt.Chart().mark_rule(strokeDash=[4, 3], color="#5d6b7e").encode(x=alt.datum(3))
    half = alt.Chart().mark_rule(strokeDash=[4, 3], color="#5d6b7e").encode(y=alt.datum(0.5))
    return (
        alt.layer(line, goal, half, data=alt.Data(values=rows))
        .properties(width=360, height=260)
        .facet(column=alt.Column("quantity:N", title=None, sort=["time", "energy"]).header(labelFontSize=14))
        .properties(
            title=alt.Title(
                "Errors on held-out points",
                subtitle=[
                    "8 points of each kernel fitted, the others predicted (V100: 4 of 5). Goal: half of them within 3 %",
                    f"Predicted against {ORIGIN}",
                ],
            )
        )
    )


def by_clock(errors: dict[str, np.ndarray]) -> alt.Chart:
    """Median energy error of the held-out points at each pair of clocks."""
    rows = []
    core = np.where(errors["core"] > 1900, 1950, errors["core"])
    for pair in sorted({*zip(core.tolist(), errors["memory"].tolist(), strict=True)}):
        here = (core == pair[0]) & (errors["memory"] == pair[1])
        clock = "1,920 to 1,965" if pair[0] == 1950 else f"{pair[0]:,.0f}"
        rows += [
            {"core": clock, "order": pair[0], "memory": pair[1], "quantity": quantity, "points": int(here.sum()),
             "error": float(np.median(errors[quantity][here]))}
            for quantity in ("time", "energy")
        ]  # fmt: skip
    base = alt.Chart().encode(
        x=alt.X("core:O", title="core clock, MHz", sort=alt.SortField("order")).axis(labelAngle=0),
        y=alt.Y("memory:O", title="memory clock, MHz", sort="descending").axis(format=",.0f"),
    )
    scale = alt.Scale(domain=[0, 6], range=["#eef4f2", "#53b3a1", "#0b4f48"])
    cells = base.mark_rect().encode(color=alt.Color("error:Q", title="median error, %", scale=scale))
    dark = alt.condition("datum.error > 3.5", alt.value("white"), alt.value("#1b2533"))
    numbers = base.mark_text(fontSize=12).encode(text=alt.Text("error:Q", format=".1f"), color=dark)
    return (
        alt.layer(cells, numbers, data=alt.Data(values=rows))
        .properties(width=360, height=170)
        .facet(column=alt.Column("quantity:N", title=None, sort=["time", "energy"]).header(labelFontSize=14))
        .properties(
            title=alt.Title(
                "RTX 3080 Ti: median error of held-out points at each pair of clocks, %",
                subtitle=[
                    "Blank: a corner that is fitted for every kernel",
                    "Predicted against held-out measurements of apAdomas/GPU-FREQUENCY-DVFS",
                ],
            )
        )
    )


def save(chart: alt.Chart, name: str) -> None:
    """Write a figure in the style of the reports."""
    specification = chart.to_dict() | {"config": LIGHT}
    (ROOT / "docs" / "images" / name).write_bytes(vl_convert.vegalite_to_png(specification, scale=1.5))


if __name__ == "__main__":
    main()
