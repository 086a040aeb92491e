"""Simulated GPUs beside sweeps of real ones that others measured, which are not part of the project."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import altair as alt
import numpy as np

from benchmarks.kept import BESIDE
from docs.make.page import Page, percent, png, signed, table
from wastenot.devices.simulated import model
from wastenot.kernels.calibration.accuracy import fits_without_some, ratios
from wastenot.kernels.calibration.fit import Calibration
from wastenot.kernels.calibration.points import Points, points_of_sweep
from wastenot.pages.theme import LIGHT
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.study.sweep import Sweep
from wastenot.study.sweep_file import read_sweep

CARDS = {
    "RTX 3080 Ti": ("rtx3080ti-polybench/sweep.csv", 350.0),
    "GTX 980": ("gpu-dvfs/gtx980.csv", None),
    "V100": ("gpu-dvfs/v100.csv", None),
}
SWEEPS = {"each kernel once": "rtx3080ti-polybench/sweep.csv", "equal shares": "rtx3080ti-polybench/sweep-share.csv"}
SLOWDOWNS = (0.0, 0.01, 0.02, 0.05, 0.10)
LOW_MHZ = 810.0
ORIGIN = "held-out measurements of apAdomas/GPU-FREQUENCY-DVFS and blackjack2015/NV-DVFS-Benchmark"


@cache
def held_out(card: str) -> dict[str, np.ndarray]:
    """Absolute errors in per cent, and the clocks, of every held-out point."""
    file, limit_w = CARDS[card]
    points = points_of_sweep(read_sweep(BESIDE / file))
    parts = []
    for fit, left_out in fits_without_some(points, limit_w):
        error = 100 * np.abs(ratios(fit.device, fit.kernels, points, left_out) - 1)
        parts.append(np.vstack([error, points.core_mhz[left_out > 0], points.memory_mhz[left_out > 0]]))
    return dict(zip(("time", "energy", "core", "memory"), np.concatenate(parts, axis=1), strict=True))


def cumulative() -> bytes:
    """Fraction of held-out points with an error below a bound."""
    found = {card: held_out(card) for card in CARDS}
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
    chart = (
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
    return png(chart, config=LIGHT)


def by_clock() -> bytes:
    """Median errors of the held-out points of the RTX 3080 Ti at each pair of clocks."""
    errors, rows = held_out("RTX 3080 Ti"), []
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
    chart = (
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
    return png(chart, config=LIGHT)


@cache
def low_memory_tables() -> dict[str, str]:
    """What optimal plans of the RTX 3080 Ti choose of low memory clocks, and what the model is worth there."""
    chosen, errors, made = [], [], []
    points = points_of_sweep(read_sweep(BESIDE / SWEEPS["equal shares"]))
    ((fit, left_out),) = fits_without_some(points, CARDS["RTX 3080 Ti"][1])
    for what, file in SWEEPS.items():
        sweep = read_sweep(BESIDE / file)
        predicted = predicted_sweep(sweep, points, fit)
        planner, by_model = Planner(sweep), Planner(predicted)
        without_low = Planner(_rows(predicted, ~(predicted.memory_mhz <= LOW_MHZ)))
        for slowdown in SLOWDOWNS:
            best = planner.plan(Objective("waste", slowdown))
            number, saved = low_memory_share(best)
            total = len(best.assignments)
            chosen.append(
                [
                    what,
                    percent(slowdown, 0),
                    f"{number} of {total} ({percent(number / total, 0)})",
                    percent(saved, 0),
                    percent(saving(best)),
                ]
            )
            made.append([what, percent(slowdown, 0), *model_plan(sweep, slowdown, planner, by_model, without_low)])
    error = dict(zip(("time", "energy"), ratios(fit.device, fit.kernels, points, left_out) - 1.0, strict=True))
    low = points.memory_mhz[left_out > 0] <= LOW_MHZ
    best = planner.plan(Objective("waste", 0.02))
    picked = np.array(
        [
            (core, memory) == (best.assignments[kernel].core_mhz, best.assignments[kernel].memory_mhz)
            for kernel, core, memory in left_out_of(points, left_out)
        ]
    )
    for name, mask in (
        ("held-out points above 810 MHz", ~low),
        ("held-out points at 810 MHz or less", low),
        ("of these, chosen by the optimal plan at 2 % (equal shares)", low & picked),
    ):
        sizes = [percent(of(np.abs(error[what][mask]))) for what in error for of in (np.median, np.mean, _p90)]
        errors.append([name, str(int(mask.sum())), ", ".join(sizes[:3]), ", ".join(sizes[3:])])
    return {
        "low-memory-choices": table(
            "counts | slowdown allowed | kernels at 405 or 810 MHz | of the saving | saving in all", chosen
        ),
        "low-memory-errors": table(
            "points | number | time: median, mean, 90th percentile | energy: median, mean, 90th percentile", errors
        ),
        "model-plans": table(
            "counts | slowdown allowed | best plan saves | model's plan: promised | measured | "
"best plan at that slowdown saves | lost | model's plan without 405 and 810 MHz, measured", made
        ),
    }  # fmt: skip


def predicted_sweep(sweep: Sweep, points: Points, fit: Calibration) -> Sweep:
    """The sweep as a GPU calibrated on some of its points predicts it, whatever its counts; the default clocks as measured."""
    time_s = model.time_s(fit.device, fit.kernels, points.core_mhz, points.memory_mhz)
    power_w = model.power_w(fit.device, fit.kernels, points.core_mhz, points.memory_mhz, time_s)
    new_time_s, new_energy_j = sweep.time_s.copy(), sweep.energy_j.copy()
    for row in np.flatnonzero(np.isfinite(sweep.core_mhz)).tolist():
        kernel = sweep.kernel_index[row]
        same = (points.time_s[kernel] == sweep.time_s[row]) & (points.mask[kernel] > 0)
        (place,) = np.flatnonzero(same)[:1]
        new_time_s[row] = time_s[kernel, place]
        new_energy_j[row] = time_s[kernel, place] * power_w[kernel, place]
    return replace(sweep, time_s=new_time_s, energy_j=new_energy_j)


def model_plan(sweep: Sweep, slowdown: float, planner: Planner, by_model: Planner, without_low: Planner) -> list[str]:
    """Cells about the plan made on predicted numbers, and what it is worth by the measured ones."""
    cells = [percent(saving(planner.plan(Objective("waste", slowdown))))]
    for model_planner in (by_model, without_low):
        plan = model_planner.plan(Objective("waste", slowdown))
        time_change, energy_change = measured_change(sweep, plan)
        measured = f"{percent(-energy_change)} at {signed(100 * time_change, 2)} %"
        if model_planner is by_model:
            fair = planner.plan(Objective("waste", max(time_change, 0.0)))
            lost = saving(fair) + energy_change
            cells += [percent(saving(plan)), measured, percent(saving(fair)), f"{100 * lost:.1f} points"]
        else:
            cells.append(measured)
    return cells


def measured_change(sweep: Sweep, plan: Plan) -> tuple[float, float]:
    """Change of time and energy by a plan's settings, by the numbers of a sweep."""
    index = {kernel.name: number for number, kernel in enumerate(sweep.kernels)}
    totals = np.zeros((2, 2))
    for one in plan.assignments:
        of_kernel = sweep.kernel_index == index[one.kernel]
        for which, (core, memory) in enumerate(((None, None), (one.core_mhz, one.memory_mhz))):
            row = np.flatnonzero(of_kernel & _is(sweep.core_mhz, core) & _is(sweep.memory_mhz, memory))[0]
            totals[which] += one.count * np.array([sweep.time_s[row], sweep.energy_j[row]])
    time_change, energy_change = (totals[1] / totals[0] - 1.0).tolist()
    return time_change, energy_change


def _rows(sweep: Sweep, kept: np.ndarray) -> Sweep:
    columns = {one.name: getattr(sweep, one.name) for one in fields(sweep)}
    return replace(sweep, **{name: of[kept] for name, of in columns.items() if isinstance(of, np.ndarray)})


def _is(column: np.ndarray, value: float | None) -> np.ndarray:
    return np.isnan(column) if value is None else column == value


def low_memory_share(plan: Plan) -> tuple[int, float]:
    """How many kernels of a plan run memory at 810 MHz or less, and their fraction of what it saves."""
    saved_j = [one.count * one.energy_j * (1.0 / (1.0 + one.energy_change) - 1.0) for one in plan.assignments]
    low = [one.memory_mhz is not None and one.memory_mhz <= LOW_MHZ for one in plan.assignments]
    return sum(low), sum(saved for saved, its in zip(saved_j, low, strict=True) if its) / sum(saved_j)


def left_out_of(points: Points, left_out: np.ndarray) -> list[tuple[int, float, float]]:
    """Kernel and clocks of the points of a mask, in its order."""
    kernels = np.broadcast_to(np.arange(len(left_out))[:, None], left_out.shape)[left_out > 0]
    core, memory = points.core_mhz[left_out > 0], points.memory_mhz[left_out > 0]
    return list(zip(kernels.tolist(), core.tolist(), memory.tolist(), strict=True))


def saving(plan: Plan) -> float:
    """Fraction of the energy that a plan saves, by the numbers it was made on."""
    return -plan.predicted.energy_change


def _p90(sizes: np.ndarray) -> float:
    return float(np.quantile(sizes, 0.9))


def low_memory(which: str) -> str:
    """Plans and low memory clocks."""
    return low_memory_tables()[which]


PAGES = (
    Page(
        "calibration",
        {name: partial(low_memory, name) for name in ("low-memory-choices", "low-memory-errors", "model-plans")},
        {"calibration-errors.png": cumulative, "calibration-by-clock.png": by_clock},
    ),
)
