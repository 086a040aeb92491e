"""Power inside kernels on H200s, from data/h200/fingrav.

Powers are means, and so are the times beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from benchmarks.kept import DATA
from docs.make.page import Page, filled, png, read_json, signed, table
from testbed.raw_runs import read_runs
from wastenot.core.arrays import FloatArray
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import BurstRun, Channel
from wastenot.devices.nvidia.published import power_sensor
from wastenot.profiles.design import window_end_s
from wastenot.profiles.response import Response, fit_response
from wastenot.profiles.runs import TimedRun, on_host_clock
from wastenot.profiles.surface import Surface, fit_surface

RUNS = DATA / "h200" / "fingrav"
ALONE, FIRST = "GPU-ab2c43fa", "GPU-5b450c73"  # cards
KERNELS = ("gemm-8192", "gemm-4096", "gemm-2048", "gemv-8192", "gemv-4096", "gemv-2048")
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
        for path in sorted((RUNS / self.card).glob(f"{self.name}-[0-9].npz")):
            metadata, runs_of_file = read_runs(path)
            group = metadata["executions_in_unit"]
            assert isinstance(group, list)
            loaded += [(run, group[-1]) for run in runs_of_file]
        loaded.sort(key=lambda one: float(one[0].begin_s[0]))
        runs = [run for run, _ in loaded]
        trips = [trip for run in runs for trip in run.round_trips]
        return on_host_clock(runs, _Stamps(), fit_clocks(trips)), [group for _, group in loaded]  # type: ignore[arg-type]

    def _execution_us(self, *, long: bool, since_s: float) -> float:
        """Mean time of an execution in long or short runs, from a given time on."""
        took_s, executions = 0.0, 0
        for run, group in zip(*self._all, strict=True):
            own = (run.kernel == run.kernel.max()) & (run.begin_s >= since_s)
            if (run.end_s[-1] > LONG_S) == long:
                took_s += float((run.end_s - run.begin_s)[own].sum())
                executions += group * int(np.count_nonzero(own))
        return 1e6 * took_s / executions

    @property
    def exists(self) -> bool:
        """Whether it was measured on this card."""
        return (RUNS / self.card / f"{self.name}-1.npz").exists()

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

    @property
    def early(self) -> Value:
        """Mean power of the kernel in short runs."""
        return Value(*self.surface.mean(0, self.surface.units))

    @property
    def first(self) -> Value:
        """Mean power of the first unit of a short run: an execution, or a millisecond of them."""
        return Value(*self.surface.mean(0, 1))

    @property
    def early_us(self) -> float:
        """Mean time of an execution in short runs."""
        return self._execution_us(long=False, since_s=0.0)

    def readings(self, since_s: float) -> FloatArray:
        """Times and readings of long runs from a given time on; shape (readings, 2)."""
        found = [np.empty((0, 2))]
        for run in self.long:
            log = run.readings["total"]
            seen_s = log.moment_s - LATE_S
            inside = (seen_s > since_s) & (seen_s < run.end_s[-1])
            found.append(np.stack([seen_s[inside], log.power_w[inside]], axis=1))
        return np.concatenate(found)

    @property
    def steady(self) -> Value | None:
        """Mean power of long runs from 0.5 s on; its error from blocks of a second."""
        if not self.long:
            return None
        points = self.readings(SETTLED_S)[:, 1]
        blocks = [block.mean() for block in np.array_split(points, max(len(points) // 10, 1))]
        return Value(float(points.mean()), float(np.std(blocks) / np.sqrt(len(blocks))))

    @property
    def steady_us(self) -> float:
        """Mean time of an execution in them."""
        return self._execution_us(long=True, since_s=SETTLED_S)

    @property
    def slower(self) -> float:
        """By which an execution takes longer from 0.5 s on than from rest, in per cent."""
        return 100.0 * (self.steady_us / self.early_us - 1.0)

    @property
    def memory(self) -> float | None:
        """Mean memory power in steady state (its readings are means over a second)."""
        found = [
            log.power_w[(log.moment_s > 1.2) & (log.moment_s < run.end_s[-1])]
            for run in self.long
            for log in [run.readings["memory"]]
        ]
        power = np.concatenate(found) if found else np.empty(0)
        return float(power.mean()) if len(power) else None

    @property
    def kept(self) -> dict[str, Any] | None:
        """What the profile said when it was made."""
        path = RUNS / self.card / f"{self.name}.json"
        return read_json(path) if path.exists() else None

    @property
    def against_counter(self) -> float | None:
        """The profile's difference from the energy counter over a run not used for it, in per cent."""
        counter = self.kept and self.kept["counter"]
        return 100.0 * (counter[1] / counter[0] - 1.0) if counter else None


@dataclass(frozen=True)
class Value:
    """A power and its standard error, in watts."""

    power_w: float
    error_w: float

    def __str__(self) -> str:
        return f"{self.power_w:.0f} ± {max(self.error_w, 1.0):.0f} W".replace("-", "−")


@cache
def runs_on(card: str, name: str) -> Measured:
    """The same object for the same runs: several tables need what is fitted to them."""
    return Measured(card, name)


def alone(kernel: str) -> Measured:
    """A kernel by itself, on the card that most were measured on."""
    return next(found for found in (runs_on(ALONE, kernel), runs_on(FIRST, kernel)) if found.exists)


def six_kernels() -> dict[str, Measured]:
    """The kernels of the page by name."""
    return {kernel: alone(kernel) for kernel in KERNELS}


def watts(value: float | None) -> str:
    """Watts in a table."""
    return "" if value is None else f"{value:.0f} W"


def microseconds(value: float) -> str:
    """Microseconds in a table."""
    return f"{value:,.{0 if value >= 1000 else 1}f} µs"


def signed_percent(value: float | None, digits: int = 2) -> str:
    """A signed percentage in a table."""
    return "not compared" if value is None else f"{signed(value, digits)} %"


def kernel_table() -> str:
    """The six kernels."""
    rows = []
    for name, one in six_kernels().items():
        steady = one.steady
        label = name + (" (in the cache)" if name in ("gemv-4096", "gemv-2048") else "")
        later = [str(steady), microseconds(one.steady_us), signed_percent(one.slower, 1)] if steady else ["", "", ""]
        cells = [label, str(one.first), str(one.early), microseconds(one.early_us), *later]
        rows.append([*cells, watts(one.memory), signed_percent(one.against_counter)])
    return table(
        "kernel | first millisecond | first 26 ms from rest | execution | from 0.5 s on | execution | "
"change of time | memory | against the counter", rows,
    )  # fmt: skip


def regulator() -> str:
    """How the power limit holds GEMMs."""
    heavy = [alone("gemm-8192"), alone("gemm-4096")]
    early = [one.early.power_w for one in heavy]
    slower = [one.slower for one in heavy]
    steady = [one.steady.power_w for one in heavy if one.steady]
    return filled(
        f"The card lets the two large GEMMs draw {min(early):.0f} to {max(early):.0f} W, {100 * (min(early) / 700 - 1):.0f} to "
        f"{100 * (max(early) / 700 - 1):.0f} % above its limit, for about 30 ms. Then it holds them by lowering the clock "
        f"({between(slower, 1)} % time), and about once per second it overcorrects for 0.2 s, "
        f'which brings the mean to {min(steady):.0f} to {max(steady):.0f} W. The "SSP" of a GEMM is the mean of all executions '
        "from about 0.3 to 0.7 s on; it is determined by the regulator, and the profile notes that power oscillates."
    )


def between(values: list[float], digits: int) -> str:
    """From the least to the greatest, or the one that both round to."""
    low, high = signed(min(values), digits), signed(max(values), digits)
    return low if low == high else f"{low} to {high}"


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


def readings_chart() -> bytes:
    """Runs from rest on the left, the first seconds of long runs on the right."""
    rows = [row for kernel in KERNELS for row in points_of(alone(kernel))]
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
    return png(alt.hconcat(rest + limit, later + limit, title=head), 2)


PAGES = (
    Page(
        "fingrav",
        {"kernels": kernel_table, "regulator": regulator},
        {"h200-fingrav.png": readings_chart},
    ),
)
