"""Draws the figure of docs/schedule.md and computes its table: GPT-3 XL on three simulated cards, swept anew.

PYTHONPATH=src:. python docs/make_schedule.py [FOLDER]

With a folder, studies in it named CARD.db are taken as they are, and those missing are made there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import altair as alt
import vl_convert

import wastenot as wn
from docs.blocks import table, write_blocks
from wastenot.kernels.plan.switching_curve import SwitchingCurve, switching_curve
from wastenot.pages.theme import LIGHT
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study

PAGE = Path(__file__).parent / "schedule.md"
CARDS = ("rtx-3080-ti", "h200", "v100")
MAX_SLOWDOWN = 0.02
LEAST_S = 1e-4  # where switches that take no time are drawn


def main() -> None:
    """Write the blocks of the page, and docs/images/switching-gpt3-xl.png."""
    with TemporaryDirectory() as folder:
        curves = {card: curve_of(card, Path(sys.argv[1] if len(sys.argv) > 1 else folder)) for card in CARDS}
    columns = ("switch", *CARDS)
    rows = [
        (f"{1e3 * points[0].switch_s:g} ms", *(f"{0.0 - 100 * point.energy_change:.2f} %" for point in points))
        for points in zip(*(curve.points for curve in curves.values()), strict=True)
    ]
    own = [
        f"{-100 * (curve.own_energy_change or 0.0):.2f} % at {1e3 * (curve.own_s or 0.0):g} ms" for curve in curves.values()
    ]
    write_blocks(PAGE, {"switching": table(columns, [*rows, ("as the card switches", *own)])})
    png = vl_convert.vegalite_to_png(chart(curves).to_dict() | {"config": LIGHT}, scale=2)
    (PAGE.parent / "images" / "switching-gpt3-xl.png").write_bytes(png)


def curve_of(card: str, folder: Path) -> SwitchingCurve:
    """What is left at each switching time on a simulated card."""
    study = folder / f"{card}.db"
    if not study.exists():
        wn.sweep("gpt3-xl", f"sim:{card}", study)
    planner = Planner(open_study(study).read())
    curve = switching_curve(planner, wn.plan(planner, max_slowdown=MAX_SLOWDOWN))
    assert curve is not None
    return curve


def chart(curves: dict[str, SwitchingCurve]) -> Any:
    """A line for each card, its own switches as a diamond."""
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
    return alt.layer(
        drawn.mark_line(strokeWidth=2),
        drawn.mark_point(filled=True, size=50),
        marked.mark_point(filled=True, size=180, shape="diamond", stroke="black", strokeWidth=1),
    ).properties(
        width=720,
        height=320,
        title={
            "text": "GPT-3 XL: what saving is left at each switching time, at most 2 % slower",
            "subtitle": "Simulated numbers. Lines: all switches take so long, on time. Diamonds: the card's own switches.",
        },
    )


if __name__ == "__main__":
    main()
