"""What H200s said at clocks that nobody set, from data/h200/natural."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from benchmarks.h200 import natural_judge
from benchmarks.kept import DATA
from docs.make.commands import Commands, pictures_by
from docs.make.page import Page, png, read_json, signed, table

NATURAL = DATA / "h200" / "natural"
LOW_MHZ, TOP_MHZ = 1500.0, 1975.0
SHOWN = ("gpt3-xl:", "llama-8b-batch4-flash-adamw:")
SAME = 1.02  # a time at the low clock up to this times that at the top counts as nothing lost
ALL = 0.9  # of the clock's ratio, from which on all is lost

Table = dict[str, NDArray[np.float64]]


def times_by_clock() -> Table:
    """Of each operation (clock in MHz, time of a call in µs), ascending; shape (clocks, 2)."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (NATURAL / "ops-by-clock.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            found[row["name"]].append((float(row["sm_mhz"]), float(row["us_per_call"])))
    return {name: np.array(sorted(points)) for name, points in found.items()}


def time_at(points: NDArray[np.float64], mhz: float) -> float:
    """Time at a clock, interpolated in logarithms; NaN beyond 2 % outside of those seen."""
    if mhz < 0.98 * points[0, 0] or mhz > 1.02 * points[-1, 0]:
        return float("nan")
    return float(np.exp(np.interp(np.log(mhz), np.log(points[:, 0]), np.log(points[:, 1]))))


def ratios() -> dict[str, float]:
    """Time at 1.50 GHz relative to that at 1.975, of operations that were seen at both."""
    found = {name: time_at(points, LOW_MHZ) / time_at(points, TOP_MHZ) for name, points in times_by_clock().items()}
    return {name: ratio for name, ratio in found.items() if np.isfinite(ratio)}


def label(name: str) -> str:
    """An operation as the page names it."""
    workload, _, kernel = name.partition(":")
    return f"{kernel} ({'GPT-3 XL' if workload.startswith('gpt3') else 'Llama 8B'})" if kernel else workload


def kernel_table() -> str:
    """What kernels of GPT-3 XL and Llama 8B training lose at 1.50 GHz, the least first."""
    rows = sorted((ratio, name) for name, ratio in ratios().items() if name.startswith(SHOWN))
    times = times_by_clock()
    return table(
        "kernel | time at 1.975 GHz, µs | at 1.50 GHz, relative | of what the clock lost",
        [
            [
                label(name), f"{time_at(times[name], TOP_MHZ):,.1f}", f"{ratio:.3f}",
                f"{max(np.log(ratio) / np.log(TOP_MHZ / LOW_MHZ), 0.0):.0%}",
            ]
            for ratio, name in rows
        ],
    )  # fmt: skip


def counts() -> str:
    """How many operations lose nothing and how many all."""
    found = np.array(list(ratios().values()))
    lost = np.log(found) / np.log(TOP_MHZ / LOW_MHZ)
    return (
        f"Of {len(found)} light operations that were seen at both clocks, {int((found <= SAME).sum())} take at most 2 % longer at "
        f"1.50 GHz than at 1.975,\n{int((lost >= ALL).sum())} lose nine tenths or more of what the clock lost, and the other "
        f"{int(((found > SAME) & (lost < ALL)).sum())} lie in between.\n"
    )


def wake() -> bytes:
    """The clock after products, counted and as NVML says."""
    seen = np.load(NATURAL / "probe-wake_gelu.npz")
    start = float(seen["begin_s"][0])
    trips = seen["round_trips"]
    offset = float(np.median(trips[:, 1] - 0.5 * (trips[:, 0] + trips[:, 2])))
    until = 1.05
    groups = [
        {"at": 1e3 * (begin - start), "mhz": mhz, "what": "products" if subject == 0 else "GELU", "clock": "counted"}
        for begin, mhz, subject in zip(seen["begin_s"], seen["core_mhz"], seen["subject"], strict=True)
        if begin - start < until
    ]
    said = [
        {"at": 1e3 * (at + offset - start), "mhz": mhz} for at, mhz, _ in seen["nvml"] if 0 <= at + offset - start < until
    ]
    drawn = [
        {"at": 1e3 * (at + offset - start), "watts": watts}
        for at, watts in zip(seen["total_s"], seen["total_w"], strict=True) if 0 <= at + offset - start < until
    ]  # fmt: skip
    time = alt.X("at:Q", title="time, ms", scale=alt.Scale(domain=[0, 1e3 * until]))
    mhz = alt.Y("mhz:Q", title="SM clock, MHz", scale=alt.Scale(domain=[1200, 2000]))
    counted = alt.Chart(alt.Data(values=groups)).mark_point(filled=True, size=8, opacity=1)
    nvml = alt.Chart(alt.Data(values=said)).mark_line(interpolate="step-after", color="#999999", strokeDash=[4, 2])
    upper = alt.layer(
        nvml.encode(x=time, y=mhz),
        counted.encode(
            x=time, y=mhz, color=alt.Color("what:N", title="counted, in", scale=alt.Scale(range=["#f58518", "#4c78a8"]))
        ),
    ).properties(width=720, height=220)
    lower = alt.Chart(alt.Data(values=drawn)).mark_point(filled=True, color="#e45756", size=45)
    watts = alt.Y("watts:Q", title="power readings, W", scale=alt.Scale(domain=[400, 900]))
    chart = alt.vconcat(upper, lower.encode(x=time, y=watts).properties(width=720, height=110))
    return png(chart.properties(title="An H200 by itself, measured: products, then GELU, in turn; dashed: NVML's clock"))


def curves() -> bytes:
    """Time by clock of the light kernels of both models."""
    lines = []
    for name, points in times_by_clock().items():
        ratio = ratios().get(name)
        if ratio is None or not name.startswith(SHOWN):
            continue
        top = time_at(points, TOP_MHZ)
        lines += [
            {"kernel": label(name), "mhz": mhz, "relative": us / top, "lost": float(np.log(ratio) / np.log(TOP_MHZ / LOW_MHZ))}
            for mhz, us in points if mhz >= 1400
        ]  # fmt: skip
    clock = alt.X("mhz:Q", title="SM clock by counting cycles, MHz", scale=alt.Scale(domain=[1400, 1990]))
    relative = alt.Y("relative:Q", title="time of a call, relative to 1,975 MHz", scale=alt.Scale(domain=[0.98, 1.42]))
    lost = alt.Color(
        "lost:Q", title="of the clock lost", scale=alt.Scale(scheme="turbo", domain=[0, 1]), legend=alt.Legend(format="%")
    )
    seen = alt.Chart(alt.Data(values=lines)).encode(x=clock, y=relative, color=lost, detail="kernel:N")
    bound = [{"mhz": mhz, "relative": TOP_MHZ / mhz} for mhz in range(1400, 1980, 5)]
    slowest = alt.Chart(alt.Data(values=bound)).mark_line(strokeDash=[4, 3], color="#888888").encode(x=clock, y=relative)
    chart = alt.layer(slowest, seen.mark_line(strokeWidth=1.3), seen.mark_point(filled=True, size=14)).properties(
        width=640,
        height=380,
        title="Light kernels of GPT-3 XL and Llama 8B training on an H200, measured; dashed: all of the clock lost",
    )
    return png(chart)


STUDIES = {
    "gpt3-xl": "GPT-3 XL training",
    "llama-training": "Llama 8B training",
    "llama-prefill": "Llama 8B prefill",
    "llama-decode": "Llama 8B decode",
}


def forecasts() -> str:
    """What capping core clocks would save, before natural clocks were measured and after."""
    rows = []
    for name, title in STUDIES.items():
        said = read_json(NATURAL / f"{name}.json")
        natural = said["forecast"]["natural"]
        measured, missing = len(said["kernels"]), [note for note in said["notes"] if "not measured yet" in note]
        whole = int(missing[0].split()[2]) if missing else measured
        within = {one["max_slowdown"]: one["energy_change"] for one in natural["within_range"]}
        rows.append([
            title, f"{measured} of {whole}", f"{said['seconds']:.0f} s", interval(natural["without"]),
            *(interval(within[bound]) for bound in (0.0, 0.02, 0.05)),
        ])  # fmt: skip
    return table(
        " | kernels | measured in | 2 % slower, from the default clocks alone | 0 % slower | 2 % slower | 5 % slower",
        rows,
    )


def interval(found: dict[str, Any]) -> str:
    """A median and its 95 % interval."""
    low, high = found["central_95"]
    if max(abs(low), abs(high)) < 5e-4:
        return "0"
    return f"{signed(100 * found['median'], 1)} % ({signed(100 * low, 1)} to {signed(100 * high, 1)})"


def held_out() -> str:
    """Predictions from curves against what was measured besides."""
    with (NATURAL / "held-out.csv").open(newline="") as stream:
        kept = [row for row in csv.DictReader(stream) if row["time_error"]]
    at_clock = [np.abs([float(row[f"{name}_error"]) for row in kept]) for name in ("energy", "time")]
    mixtures = natural_judge.mixtures()
    energy, time = (100 * np.abs([getattr(one, name) for one in mixtures]) for name in ("energy", "time"))
    apart = natural_judge.cards_apart()
    light = [100 * value for name, value in apart.items() if not name.endswith("_gemm")]
    products = [100 * value for name, value in apart.items() if name.endswith("_gemm")]
    goal = "≤ 2 % each, 1 % on average"
    rows = [
        [f"{len(kept)} mixtures (6 kernels, 2 shares with products, 2 cards) at the clock that they had",
         "energy by the counter", goal, mean_and_most(at_clock[0])],
        ["", "time", "", mean_and_most(at_clock[1])],
        ["the same at the clock that is predicted too", "energy by the counter", goal, mean_and_most(energy)],
        ["", "time", "", mean_and_most(time)],
    ]  # fmt: skip
    for one in natural_judge.iterations():
        goal = "for comparison" if one.what == "sum of kernels alone" else "time ≤ 0.5 %, energy ≤ 1 %"
        reached = f"time {signed(100 * one.time, 2)} %, energy {signed(100 * one.energy, 2)} %"
        rows.append([f"GPT-3 XL: {one.what}, card {one.card + 1}", "time and energy", goal, reached])
    rows.append(
        ["time by clock on two cards, 25 light kernels", "RMS over clocks", "≤ 1 %",
         f"median {np.median(light):.2f} %, at most {max(light):.2f} %"]
    )  # fmt: skip
    rows.append(["the same, 21 products", "", "", f"median {np.median(products):.2f} %, at most {max(products):.2f} %"])
    assert (len(light), len(products), len(mixtures)) == (25, 21, 24)
    return table("predicted from single kernels | what | goal | difference to measured", rows)


def mean_and_most(errors: NDArray[np.float64]) -> str:
    """Of errors in per cent."""
    return f"{errors.mean():.2f} % on average, at most {errors.max():.2f} %"


FIGURES = Commands(
    ("wastenot kernel natural gpt3-xl --study natural.db --figures figures",), (("natural.db", NATURAL / "gpt3-xl.db.xz"),)
)

PAGES = (
    Page(
        "natural",
        {"counts": counts, "kernels": kernel_table, "forecasts": forecasts, "held-out": held_out},
        {"natural-clock.png": wake, "natural-time.png": curves}
        | pictures_by(
            FIGURES,
            [("natural-by-clock.png", "figures/natural-curves.png"), ("natural-joules.png", "figures/natural-joules.png")],
        ),
    ),
)
