"""What is left of a saving by how long switches take: GPT-3 XL on three simulated cards, swept anew."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import altair as alt

import wastenot as wn
from docs.make.page import Page, png, table
from wastenot.kernels.plan.switching_curve import SwitchingCurve, switching_curve
from wastenot.pages.theme import LIGHT
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study

CARDS = ("rtx-3080-ti", "h200", "v100")
MAX_SLOWDOWN = 0.02
LEAST_S = 1e-4  # where switches that take no time are drawn


def switching() -> str:
    """What is left at each switching time, by card."""
    curves = [curve_of(card) for card in CARDS]
    rows = [
        (f"{1e3 * points[0].switch_s:g} ms", *(f"{0.0 - 100 * point.energy_change:.2f} %" for point in points))
        for points in zip(*(curve.points for curve in curves), strict=True)
    ]
    own = [f"{-100 * (curve.own_energy_change or 0.0):.2f} % at {1e3 * (curve.own_s or 0.0):g} ms" for curve in curves]
    return table(f"switch | {' | '.join(CARDS)}", [*rows, ("as the card switches", *own)])


@cache
def curve_of(card: str) -> SwitchingCurve:
    """What is left at each switching time on a simulated card."""
    with TemporaryDirectory() as folder:
        study = Path(folder) / f"{card}.db"
        wn.sweep("gpt3-xl", f"sim:{card}", study)
        planner = Planner(open_study(study).read())
    curve = switching_curve(planner, wn.plan(planner, max_slowdown=MAX_SLOWDOWN))
    assert curve is not None
    return curve


def chart() -> bytes:
    """A line for each card, its own switches as a diamond."""
    curves = {card: curve_of(card) for card in CARDS}
    lines = [
        {"card": card, "x": max(LEAST_S, point.switch_s), "y": -100 * point.energy_change}
        for card, curve in curves.items()
        for point in curve.points
    ]
    own = [
        {"card": card, "x": max(LEAST_S, curve.own_s or 0.0), "y": -100 * (curve.own_energy_change or 0.0)}
        for card, curve in curves.items()
    ]
    label = f"datum.value < {2 * LEAST_S} ? '0' : datum.value < 1 ? format(1000 * datum.value, 'd') + ' ms' : '1 s'"
    axis = alt.Axis(values=[LEAST_S, 0.001, 0.01, 0.1, 1.0], labelExpr=label)
    x = alt.X("x:Q", title="Time that a switch takes", scale=alt.Scale(type="log", domain=[LEAST_S, 1.0]), axis=axis)
    y = alt.Y("y:Q", title="Energy saved (%)")
    color = alt.Color("card:N", title="Simulated card")
    drawn = alt.Chart(alt.Data(values=lines)).encode(x=x, y=y, color=color)
    marked = alt.Chart(alt.Data(values=own)).encode(x=x, y=y, color=color)
    layers = alt.layer(
        drawn.mark_line(strokeWidth=2),
        drawn.mark_point(filled=True, size=50),
        marked.mark_point(filled=True, size=180, shape="diamond", stroke="black", strokeWidth=1),
    )
    whole = layers.properties(
        width=720,
        height=320,
        title={
            "text": "GPT-3 XL: what saving is left at each switching time, at most 2 % slower",
            "subtitle": "Simulated numbers. Lines: all switches take so long, on time. Diamonds: the card's own switches.",
        },
    )
    return png(whole, 2, LIGHT)


PAGES = (Page("schedule", {"switching": switching}, {"switching-gpt3-xl.png": chart}),)
