"""What is left of a saving by how long switches take, and what refining adds: GPT-3 XL on simulated cards, swept anew."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import wastenot as wn
from docs.make.page import Page, table
from wastenot.kernels.plan.curves import SwitchingCurve, switching_curve
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study

CARDS = ("rtx-3080-ti", "h200", "v100")
REFINED_CARDS = ("rtx-3080-ti", "rtx-a4000", "v100", "h200", "mi300x")
MAX_SLOWDOWN = 0.02
AROUND_MHZ = 105.0  # half a step of the default grid


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


def refined() -> str:
    """What schedules save before and after their clocks were refined, by card."""
    rows = []
    for card in REFINED_CARDS:
        with TemporaryDirectory() as folder:
            study = Path(folder) / f"{card}.db"
            swept = wn.sweep("gpt3-xl", f"sim:{card}", study).measured
            again = wn.Finalists(each=1, around_mhz=AROUND_MHZ, repeats=1)
            found = wn.refine(study, f"sim:{card}", max_slowdown=MAX_SLOWDOWN, finalists=again)
        changes = [
            f"{0.0 - 100 * change:.2f} %"
            for plan in (found.before, found.after)
            for change in (plan.today.energy_change, plan.headline.energy_change)
        ]
        rows.append((card, f"{swept:,}", *changes[:2], str(found.outcome.measured), *changes[2:]))
    return table("card | points swept | schedule | if instant | points added | schedule | if instant", rows)


PAGES = (Page("kernels", {"switching": switching, "refined": refined}),)
