"""Prints the tables and draws the figures of the H200 section of docs/fingrav.md, from the runs in data/h200/fingrav.

PYTHONPATH=src:. python docs/make_fingrav.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl

from tests.support.raw_runs import read_runs
from wastenot.arrays import FloatArray
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import BurstRun, Channel
from wastenot.devices.nvidia.published import power_sensor
from wastenot.profiling.design import window_end_s
from wastenot.profiling.response import Response, fit_response
from wastenot.profiling.runs import TimedRun, on_host_clock
from wastenot.profiling.surface import Surface, fit_surface

ROOT = Path(__file__).parents[1]
DATA, IMAGES = ROOT / "data" / "h200" / "fingrav", ROOT / "docs" / "images"
ALONE, FIRST, PAIR = "GPU-ab2c43fa", "GPU-5b450c73", "GPU-28638b72"  # cards
KERNELS = ("gemm-8192", "gemm-4096", "gemm-2048", "gemv-8192", "gemv-4096", "gemv-2048")
SIZES = ("64KB", "128KB", "512MB", "1GB")
LONG_S, SETTLED_S, LATE_S = 0.1, 0.5, 0.012


class _Stamps:
    """The clocks of the files' timestamps, and what is known about the sensors in advance."""

    executions_by, readings_by = "gpu", "host"

    def __init__(self) -> None:
        sensor = power_sensor("Hopper", "NVIDIA H200")
        assert sensor is not None
        total = Channel("total", sensor.period_s, sensor.window_s, sensor.delay_s, noise_w=2.0, source=sensor.source,
                        lag_s=sensor.lag_s, delay_error_s=sensor.delay_error_s, sample_s=sensor.sample_s)  # fmt: skip
        self.channels = (total, Channel("memory", 0.1, 1.0))


@dataclass(frozen=True)
class Measured:
    """All runs of one subject on one card.

    Attributes:
        card: the card it was measured on.
        name: name of the files.
    """

    card: str
    name: str

    @cached_property
    def _all(self) -> tuple[list[TimedRun], list[int]]:
        """Runs in order of time, and the executions per unit of each."""
        loaded: list[tuple[BurstRun, int]] = []
        for path in sorted((DATA / self.card).glob(f"{self.name}-[0-9].npz")):
            metadata, runs_of_file = read_runs(path)
            group = metadata["executions_in_unit"]
            assert isinstance(group, list)
            loaded += [(run, group[-1]) for run in runs_of_file]
        loaded.sort(key=lambda one: float(one[0].begin_s[0]))
        runs = [run for run, _ in loaded]
        trips = [trip for run in runs for trip in run.round_trips]
        return on_host_clock(runs, _Stamps(), fit_clocks(trips)), [group for _, group in loaded]  # type: ignore[arg-type]

    def _execution_us(self, *, long: bool, since_s: float) -> float:
        """Median time of an execution in long or short runs, from a given time on."""
        found = []
        for run, group in zip(*self._all, strict=True):
            own = (run.kernel == run.kernel.max()) & (run.begin_s >= since_s)
            if (run.end_s[-1] > LONG_S) == long:
                found.append(float(np.median((run.end_s - run.begin_s)[own])) / group)
        return 1e6 * float(np.median(found))

    @property
    def exists(self) -> bool:
        """Whether it was measured on this card."""
        return (DATA / self.card / f"{self.name}-1.npz").exists()

    @property
    def short(self) -> list[TimedRun]:
        """Runs from rest."""
        return [run for run in self._all[0] if run.end_s[-1] < LONG_S]

    @property
    def long(self) -> list[TimedRun]:
        """Runs in steady state."""
        return [run for run in self._all[0] if run.end_s[-1] > 2.0 * LONG_S]

    @cached_property
    def response(self) -> Response:
        """The sensor's response in short runs."""
        kernels = int(self.short[0].kernel.max()) + 1
        return fit_response(self.short, _Stamps().channels[0], kernels=kernels, own=kernels - 1, group=1)

    @property
    def explained(self) -> list[TimedRun]:
        """Short runs with known delays of their readings."""
        late = self.response.late_s.tolist()
        return [replace(run, late_s=by) for run, by in zip(self.short, late, strict=True) if not np.isnan(by)]

    @cached_property
    def surface(self) -> Surface:
        """Power over these runs."""
        kernels = int(self.short[0].kernel.max()) + 1
        return fit_surface(self.explained, self.response.channel, kernels=kernels, own=kernels - 1)

    def early(self) -> str:
        """Mean power of the kernel in short runs."""
        power_w, error_w = self.surface.mean(0, self.surface.units)
        return f"{power_w:.0f} ± {max(error_w, 1.0):.0f} W"

    def early_us(self) -> float:
        """Median time of an execution in them, without the beginning of each run."""
        return self._execution_us(long=False, since_s=1e-3)

    def readings(self, since_s: float) -> FloatArray:
        """Times and readings of long runs from a given time on; shape (readings, 2)."""
        found = [np.empty((0, 2))]
        for run in self.long:
            log = run.readings["total"]
            seen_s = log.moment_s - LATE_S
            inside = (seen_s > since_s) & (seen_s < run.end_s[-1])
            found.append(np.stack([seen_s[inside], log.power_w[inside]], axis=1))
        return np.concatenate(found)

    def steady(self) -> str:
        """Mean power of long runs from 0.5 s on; its error from blocks of a second."""
        if not self.long:
            return ""
        points = self.readings(SETTLED_S)[:, 1]
        blocks = [block.mean() for block in np.array_split(points, max(len(points) // 10, 1))]
        return f"{points.mean():.0f} ± {max(np.std(blocks) / np.sqrt(len(blocks)), 1.0):.0f} W"

    def steady_us(self) -> str:
        """Median time of an execution in them."""
        return f"{self._execution_us(long=True, since_s=SETTLED_S):.1f} µs" if self.long else ""

    def memory(self) -> str:
        """Mean memory power in steady state (its readings are means over a second)."""
        found = [
            log.power_w[(log.moment_s > 1.2) & (log.moment_s < run.end_s[-1])]
            for run in self.long
            for log in [run.readings["memory"]]
        ]
        power = np.concatenate(found) if found else np.empty(0)
        return f"{power.mean():.0f} W" if len(power) else ""

    def counter(self) -> str:
        """The profile's difference from the energy counter over a run not used for it."""
        path = DATA / self.card / f"{self.name}.json"
        counter = json.loads(path.read_text())["counter"] if path.exists() else None
        return "" if counter is None else f"{100.0 * (counter[1] / counter[0] - 1.0):+.2f} %"

    def sensor(self) -> str:
        """The sensor's response in words."""
        found = self.response.channel
        kept = int(np.count_nonzero(~np.isnan(self.response.late_s)))
        return (
            f"lag {1e3 * found.lag_s:.1f} ms, drift {1e3 * found.delay_drift:.2f} ms/s, noise {self.surface.noise_w:.1f} W, "
            f"{kept} of {len(self.short)} runs"
        )


def main() -> None:
    """Print the tables and draw the figures."""
    rows: list[dict[str, object]] = []
    print("| kernel | from rest | execution | from 0.5 s on | execution | memory | against the counter |")
    for kernel in KERNELS:
        measured = next(found for found in (Measured(ALONE, kernel), Measured(FIRST, kernel)) if found.exists)
        print(
            f"| {kernel} | {measured.early()} | {measured.early_us():.1f} µs | {measured.steady()} | "
            f"{measured.steady_us()} | {measured.memory()} | {measured.counter()} | {measured.sensor()}",
            flush=True,
        )
        rows += points_of(measured)
    draw_readings(rows)
    print("| after | power | execution | alone |")
    for card in sorted(path.name for path in DATA.iterdir() if path.is_dir()):
        for name in sorted({path.name[:-6] for path in (DATA / card).glob("*-after-*-1.npz")}):
            context = Measured(card, name)
            alone = Measured(card, name.partition("-after-")[0])
            alone = alone if alone.exists else Measured(ALONE, alone.name)
            print(
                f"| {card} {name} | {context.early()} | {context.early_us():.1f} µs | {alone.early()}, "
                f"{alone.early_us():.1f} µs ({alone.card}) | {context.sensor()}",
                flush=True,
            )
    print("| collective | execution | from rest | from 0.5 s on | memory | against the counter |")
    for kind in ("all-gather", "all-reduce"):
        for size in SIZES:
            found = Measured(PAIR, f"{kind}-{size}")
            print(
                f"| {kind}-{size} | {found.early_us():.1f} µs | {found.early()} | {found.steady()} | {found.memory()} | "
                f"{found.counter()} | {found.sensor()}",
                flush=True,
            )
    largest = Measured(ALONE, "gemm-8192")
    band = largest.surface.inside(4, largest.surface.units)
    print(
        f"inside gemm-8192, of {len(largest.explained)} runs: {band.power_w.min():.0f} to {band.power_w.max():.0f} W, "
        f"error {np.sqrt(np.mean(band.error_w**2)):.0f} W"
    )
    draw_sensor(largest, band.power_w, band.error_w)


def points_of(measured: Measured) -> list[dict[str, object]]:
    """Readings of short and long runs, for the figure."""
    rows: list[dict[str, object]] = [
        {"kernel": measured.name, "what": "long runs", "ms": 1e3 * at, "W": power} for at, power in measured.readings(0.1)
    ]
    for run in measured.explained:
        readings = run.readings["total"]
        rows += [
            {"kernel": measured.name, "what": "readings from rest", "ms": 1e3 * at, "W": power}
            for at, power in zip(window_end_s(run, measured.response.channel), readings.power_w, strict=True)
            if -0.01 < at < 0.06
        ]
    return rows


def draw_readings(rows: list[dict[str, object]]) -> None:
    """Runs from rest on the left, the first seconds of long runs on the right."""
    table = pl.DataFrame(rows).with_columns(pl.col("ms").cast(pl.Float64), pl.col("W").cast(pl.Float64))
    colour = alt.Color("kernel:N", sort=list(KERNELS), title=None, legend=alt.Legend(orient="top"))
    power = alt.Y("W:Q", title="reading, W", scale=alt.Scale(domain=[0, 950]))
    size = {"width": 330, "height": 260}
    rest = (
        alt.Chart(table.filter(pl.col("what") == "readings from rest"), title="from rest, 26 ms of executions")
        .mark_circle(size=16, clip=True)
        .encode(x=alt.X("ms:Q", title="ms from the first execution, delay removed"), y=power, color=colour)
        .properties(**size)
    )
    later = (
        alt.Chart(table.filter(pl.col("what") == "long runs"), title="long runs")
        .mark_circle(size=10, clip=True)
        .encode(
            x=alt.X("ms:Q", title="ms from the first execution", scale=alt.Scale(domain=[0, 3000])), y=power, color=colour
        )
        .properties(**size)
    )
    limit = alt.Chart(pl.DataFrame({"W": [700.0]})).mark_rule(strokeDash=[4, 3], color="gray").encode(y="W:Q")
    head = "Power readings of an H200 (measured; the sensor is a first-order lag of 12.5 ms; dashed: the power limit)"
    alt.hconcat(rest + limit, later + limit, title=head).save(IMAGES / "h200-fingrav.png", scale_factor=2)


def draw_sensor(measured: Measured, power_w: FloatArray, error_w: FloatArray) -> None:
    """The sensor's delay from run to run, and power inside an execution."""
    found = measured.response
    at_s = np.array([run.zero_s for run in measured.short])
    delay_s = found.channel.delay_s + found.channel.delay_drift * (at_s - found.channel.delay_at_s) + found.late_s
    known = ~np.isnan(delay_s)
    track = pl.DataFrame({"s": at_s[known] - at_s[0], "ms": 1e3 * delay_s[known]})
    left = (
        alt.Chart(track, title="delay of the power sensor")
        .mark_circle(size=12, clip=True)
        .encode(
            x=alt.X("s:Q", title="s since the first run"),
            y=alt.Y("ms:Q", title="delay, ms", scale=alt.Scale(domain=[0, 25])),
        )
        .properties(width=330, height=240)
    )
    share = (np.arange(len(power_w)) + 0.5) / len(power_w)
    inside = pl.DataFrame({"share": share, "W": power_w, "low": power_w - 1.96 * error_w, "high": power_w + 1.96 * error_w})
    base = alt.Chart(inside, title="inside an execution of gemm-8192, 1.37 ms, with 95 % band").encode(
        x=alt.X("share:Q", title="fraction of the execution", scale=alt.Scale(domain=[0, 1]))
    )
    right = (
        base.mark_area(opacity=0.25, clip=True).encode(
            y=alt.Y("low:Q", title="power, W", scale=alt.Scale(domain=[0, 1300])), y2="high:Q"
        )
        + base.mark_line().encode(y="W:Q")
    ).properties(width=330, height=240)
    head = "An H200 (measured): its sensor's delay drifts and jumps; power inside one GEMM"
    alt.hconcat(left, right, title=head).save(IMAGES / "h200-sensor.png", scale_factor=2)


if __name__ == "__main__":
    main()
