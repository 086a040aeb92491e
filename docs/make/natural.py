"""What H200s said at clocks that nobody set, from data/h200/natural."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.h200 import natural_judge
from benchmarks.kept import DATA
from docs.make.page import Page, read_json, signed, table

NATURAL = DATA / "h200" / "natural"
LOW_MHZ, TOP_MHZ = 1500.0, 1975.0
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


def counts() -> str:
    """How many operations lose nothing and how many all."""
    found = np.array(list(ratios().values()))
    lost = np.log(found) / np.log(TOP_MHZ / LOW_MHZ)
    return (
        f"Of {len(found)} light operations that were seen at both clocks, {int((found <= SAME).sum())} take at most 2 % longer at "
        f"1.50 GHz than at 1.975,\n{int((lost >= ALL).sum())} lose nine tenths or more of what the clock lost, and the other "
        f"{int(((found > SAME) & (lost < ALL)).sum())} lie in between.\n"
    )


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
        measured, missing = len(said["kernels"]), [note for note in said["notes"] if "not measured" in note]
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
    mixtures = natural_judge.mixtures()
    energy, time = (100 * np.abs([getattr(one, name) for one in mixtures]) for name in ("energy", "time"))
    apart = natural_judge.cards_apart()
    light = [100 * value for name, value in apart.items() if not name.endswith("_gemm")]
    products = [100 * value for name, value in apart.items() if name.endswith("_gemm")]
    rows = [
        ["24 mixtures (6 kernels, 2 shares with products, 2 cards), energy by the counter", "≤ 2 % each, 1 % on average",
         mean_and_most(energy)],
        ["the same, time", "", mean_and_most(time)],
    ]  # fmt: skip
    for one in natural_judge.iterations():
        if one.what != "iteration":  # at the cards' temperatures, stands with its errors under "Under a power limit"
            continue
        reached = f"time {signed(100 * one.time, 2)} %, energy {signed(100 * one.energy, 2)} %"
        rows.append([f"GPT-3 XL: {one.what}, card {one.card + 1}", "time ≤ 0.5 %, energy ≤ 1 %", reached])
    rows.append(
        ["time by clock on two cards, 25 light kernels", "RMS over clocks ≤ 1 %",
         f"median {np.median(light):.2f} %, at most {max(light):.2f} %"]
    )  # fmt: skip
    rows.append(["the same, 21 products", "", f"median {np.median(products):.2f} %, at most {max(products):.2f} %"])
    assert (len(light), len(products), len(mixtures)) == (25, 21, 24)
    return table("predicted from single kernels | goal | difference to measured", rows)


def mean_and_most(errors: NDArray[np.float64]) -> str:
    """Of errors in per cent."""
    return f"{errors.mean():.2f} % on average, at most {errors.max():.2f} %"


PAGES = (
    Page("natural", {"counts": counts, "forecasts": forecasts}),
    Page("judged-kernels", {"held-out": held_out}),
)
