"""The H200's part of docs/fingrav.md: what the runs in data/h200/fingrav say, and the picture.

PYTHONPATH=src:. python docs/make_fingrav.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl

from benchmarks.h200.fingrav_raw import read_runs
from wastenot.devices.fine_grain import Channel
from wastenot.devices.nvidia.published import power_sensor
from wastenot.frontier.points import FloatArray
from wastenot.measurement.fingrav.clocks import fit_clocks
from wastenot.measurement.fingrav.collect import TimedRun, by_host
from wastenot.measurement.fingrav.design import seen_until
from wastenot.measurement.fingrav.response import fit_response
from wastenot.measurement.fingrav.surface import Surface, fit_surface
from wastenot.measurement.fingrav.units import units_of

ROOT = Path(__file__).parents[1]
DATA, PICTURE = ROOT / "data" / "h200" / "fingrav", ROOT / "docs" / "images" / "h200-fingrav.png"
KERNELS = ("gemm-8192", "gemm-4096", "gemm-2048", "gemv-8192", "gemv-4096", "gemv-2048")
# Mean power by the energy counter, idle before and after included, and seconds, of one run that no profile was made of.
COUNTER = {"gemm-2048": (620.817, 3.49999), "gemm-4096": (660.608, 3.30010), "gemv-8192": (474.718, 3.40021)}
CONTEXTS = (
    ("gemv-8192", "gemv-8192-after-gemm-8192x12"),
    ("gemm-2048", "gemm-2048-after-gemm-8192x12"),
    ("gemm-2048", "gemm-2048-after-gemv-8192x600"),
    ("gemm-8192", "gemm-8192-after-gemv-8192x600"),
)
SETTLED_S, LAG_S, LATE_S = 0.1, 0.0125, 0.012


class _Stamps:
    """Which clocks the files' stamps are of."""

    executions_by, readings_by = "gpu", "host"

    def __init__(self) -> None:
        sensor = power_sensor("Hopper", "NVIDIA H200")
        assert sensor is not None
        total = Channel("total", sensor.period_s, sensor.window_s, sensor.delay_s, noise_w=2.0, source=sensor.source,
                        lag_s=sensor.lag_s, delay_error_s=sensor.delay_error_s)  # fmt: skip
        self.channels = (total, Channel("memory", 0.1, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of one file: by one clock, how many executions are a unit of each kernel, and what explains them."""

    runs: list[TimedRun]
    group: list[int]
    channel: Channel
    surface: Surface
    own: int
    kept: int

    def mean(self, first: int, last: int) -> str:
        """Mean power of some units, in watts."""
        band = self.surface.range(first, last)
        return f"{band[0]:.0f} ± {band[1]:.0f}"

    def execution_us(self, unit: int) -> float:
        """Median time of an execution in a unit."""
        units = units_of(self.runs, self.own, 1, self.surface.units)
        return 1e6 * float(np.nanmedian(units.time_s[:, unit])) / self.group[self.own]


def timed(name: str) -> tuple[list[TimedRun], list[int]]:
    """Runs of a file by the host's clock."""
    about, runs = read_runs(DATA / f"{name}.npz")
    group = about["executions_in_unit"]
    assert isinstance(group, list)
    trips = [trip for run in runs for trip in run.round_trips]
    return by_host(runs, _Stamps(), fit_clocks(trips)), group  # type: ignore[arg-type]


def explained(name: str, kernels: int = 1) -> Runs:
    """Short runs from rest, their sensor's delay found from themselves."""
    runs, group = timed(name)
    own = kernels - 1
    found = fit_response(runs, _Stamps().channels[0], kernels=kernels, own=own, group=1)
    kept = [runs[place] for place in found.kept]
    surface = fit_surface(kept, found.channel, kernels=kernels, own=own, shaped=False)
    return Runs(kept, group, found.channel, surface, own, len(runs))


def settled(runs: list[TimedRun]) -> FloatArray:
    """Moments and readings of long runs, those left out that tell of the time before; shape (readings, 2)."""
    found = []
    for run in runs:
        readings = run.readings["total"]
        end_s = readings.moment_s - LATE_S
        inside = (end_s > SETTLED_S) & (end_s < run.end_s[-1])
        found.append(np.stack([end_s[inside], readings.power_w[inside]], axis=1))
    return np.concatenate(found)


def main() -> None:
    """Print the tables and draw the picture."""
    rows: list[dict[str, object]] = []
    print("| kernel | first 26 ms | time | 0.1 to 0.7 s | time | 3 s | memory | the sensor: lag, delay, noise |")
    for kernel in KERNELS:
        short = explained(f"{kernel}-1")
        units = short.surface.units
        late, late_us, counter, memory = "", "", "", ""
        if (DATA / f"{kernel}-2.npz").exists():
            long, group = timed(f"{kernel}-2")
            points = settled(long)
            late = f"{points[:, 1].mean():.0f} ± {points[:, 1].std() / np.sqrt(len(points)):.0f}"
            times = [float(np.median((run.end_s - run.begin_s)[run.begin_s > SETTLED_S])) for run in long]
            late_us = f"{1e6 * float(np.median(times)) / group[0]:.1f}"
            rows += [{"kernel": kernel, "what": "long runs", "ms": 1e3 * at, "W": power} for at, power in points]
        if (DATA / f"{kernel}-3.npz").exists():
            longest, _ = timed(f"{kernel}-3")
            busy_s = float(longest[0].end_s[-1])
            log = longest[0].readings["memory"]
            inside = (log.moment_s > 1.05) & (log.moment_s < busy_s)
            memory = f"{log.power_w[inside].mean():.0f}"
            rows += [{"kernel": kernel, "what": "3 s", "ms": 1e3 * at, "W": power} for at, power in settled(longest)]
            if kernel in COUNTER:
                mean_w, seconds = COUNTER[kernel]
                counter = f"{(mean_w * seconds - short.surface.idle_w * (seconds - busy_s)) / busy_s:.0f}"
        sensor = f"{1e3 * short.channel.lag_s:.1f} ms, {1e3 * short.channel.delay_s:.0f} ms, {short.surface.noise_w:.1f} W"
        print(
            f"| {kernel} | {short.mean(0, units)} W | {short.execution_us(units // 2):.1f} µs | {late} W | {late_us} µs | "
            f"{counter} W | {memory} W | {sensor}; {len(short.runs)} of {short.kept} runs |"
        )
        for run in short.runs:
            readings = run.readings["total"]
            rows += [
                {"kernel": kernel, "what": "readings from rest", "ms": 1e3 * at, "W": power}
                for at, power in zip(seen_until(run, short.channel), readings.power_w, strict=True)
                if -0.01 < at < 0.06
            ]
    print("| kernel, after | power | an execution | alone, from rest |")
    for kernel, name in CONTEXTS:
        context, alone = explained(f"{name}-1", kernels=2), explained(f"{kernel}-1")
        units = min(context.surface.units, alone.surface.units)
        print(
            f"| {name} | {context.mean(0, units)} W | {context.execution_us(units // 2):.1f} µs | {alone.mean(0, units)} W, "
            f"{alone.execution_us(units // 2):.1f} µs | noise {context.surface.noise_w:.1f} W, "
            f"{len(context.runs)} of {context.kept} runs"
        )
    draw(rows)


def draw(rows: list[dict[str, object]]) -> None:
    """From rest on the left, the first second on the right."""
    table = pl.DataFrame(rows).with_columns(pl.col("ms").cast(pl.Float64), pl.col("W").cast(pl.Float64))
    colour = alt.Color("kernel:N", sort=list(KERNELS), title=None, legend=alt.Legend(orient="top"))
    power = alt.Y("W:Q", title="reading, W", scale=alt.Scale(domain=[100, 950]))
    size = {"width": 330, "height": 260}
    rest = (
        alt.Chart(table.filter(pl.col("what") == "readings from rest"), title="from rest, 26 ms of executions")
        .mark_circle(size=16, clip=True)
        .encode(x=alt.X("ms:Q", title="ms from the first execution, the delay taken off"), y=power, color=colour)
        .properties(**size)
    )
    later = (
        alt.Chart(table.filter(pl.col("what") != "readings from rest"), title="long runs")
        .mark_circle(size=16, clip=True)
        .encode(
            x=alt.X("ms:Q", title="ms from the first execution", scale=alt.Scale(domain=[0, 3000])), y=power, color=colour
        )
        .properties(**size)
    )
    limit = alt.Chart(pl.DataFrame({"W": [700.0]})).mark_rule(strokeDash=[4, 3], color="gray").encode(y="W:Q")
    head = "Power readings of an H200 (measured; each answers as a first-order lag of 12.5 ms; dashed: the power limit)"
    chart = alt.hconcat(rest + limit, later + limit, title=head)
    chart.save(PICTURE, scale_factor=2)


if __name__ == "__main__":
    main()
