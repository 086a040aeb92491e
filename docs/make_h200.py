"""Draws the figure and prints the table of docs/h200.md from data/h200: python docs/make_h200.py."""

from __future__ import annotations

import csv
from pathlib import Path

import altair as alt
import vl_convert

from wastenot.workloads.build import build_workload

ROOT = Path(__file__).parents[1]


def rows() -> list[dict[str, object]]:
    """The kernels of the latest run, in order of execution."""
    with (ROOT / "data" / "h200" / "gpt3-xl-4-trials.csv").open(newline="") as stream:
        trials = {row["kernel"]: row for row in csv.DictReader(stream)}
    found = []
    for kernel in build_workload("gpt3-xl").kernels:
        trial = trials[kernel.name]
        time_s, energy_j = float(trial["time_s"]), float(trial["energy_j"])
        found.append({
            "kernel": kernel.name, "count": kernel.count, "time": time_s * 1e6, "power": energy_j / time_s,
            "memory": float(trial["memory_power_w"]), "core": float(trial["core_mhz"]),
            "held": float(trial["throttled_share"]), "energy": kernel.count * energy_j,
        })  # fmt: skip
    return found


def main() -> None:
    """Write docs/images/h200-kernels.png, print the table."""
    kernels = rows()
    whole = sum(float(row["energy"]) for row in kernels)  # type: ignore[arg-type]
    print("| kernel | count | time, µs | power, W | memory, W | core, MHz | throttled | fraction of energy |")
    print("|---|---|---|---|---|---|---|---|")
    for row in kernels:
        print("| {kernel} | {count} | {time:,.1f} | {power:.0f} | {memory:.0f} | {core:.0f} | {held:.0%} |".format(**row)
              + f" {float(row['energy']) / whole:.1%} |")  # type: ignore[arg-type]  # fmt: skip
    base = alt.Chart(alt.Data(values=kernels)).encode(y=alt.Y("kernel:N", sort=None, title=None))
    total = base.mark_bar(color="#9ecae9").encode(x=alt.X("power:Q", title="power at the default clocks, W (dark: memory)"))
    memory = base.mark_bar(color="#4c78a8").encode(x="memory:Q")
    limit = alt.Chart(alt.Data(values=[{"x": 700}])).mark_rule(strokeDash=[4, 3]).encode(x="x:Q")
    clock = base.mark_point(color="#e45756", filled=True, size=40).encode(
        x=alt.X("core:Q", title="core clock, MHz", scale=alt.Scale(domain=[1200, 2000]))
    )
    chart = alt.hconcat(
        alt.layer(total, memory, limit).properties(width=420),
        clock.properties(width=240).encode(y=alt.Y("kernel:N", sort=None, axis=None)),
    ).properties(title="GPT-3 XL training on an H200 at the default clocks, measured 2026-11-21; dashed: the power limit")
    picture = vl_convert.vegalite_to_png(chart.to_dict(), scale=1.5)
    (ROOT / "docs" / "images" / "h200-kernels.png").write_bytes(picture)


if __name__ == "__main__":
    main()
