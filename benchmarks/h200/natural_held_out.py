"""What curves from natural runs predict of H200s that they were not fitted to, by energy counter and power readings.

    python -m benchmarks.h200.natural_held_out        # data/h200/natural -> held-out.csv

Mixtures: kernels and products in turn, a task of 7 to 12 ms over and over for 3 s, time by events and energy by the counter.
Their clock is what they had, by cycles counted; how many of them products skip is known from the runs. Readings: of each
light kernel the run `quick` is left out, and its mean power predicted at the clocks that it had. Standard errors are those
of the curves and of what a load draws more or less in a run than usual, as the fit found it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from benchmarks.h200.natural_runs import runs
from benchmarks.kept import DATA
from benchmarks.predicted_mixtures import predict_mixture
from wastenot.kernels.natural.curves import KernelCurve
from wastenot.kernels.natural.delays import at_nominal_delay, with_delays
from wastenot.kernels.natural.estimate import Estimate, estimate
from wastenot.kernels.natural.powers import IDLE
from wastenot.kernels.natural.readings import response_of
from wastenot.kernels.natural.seen import groups_of
from wastenot.kernels.natural.storage import Recorded

FOLDER = DATA / "h200" / "natural"
CARDS = (0, 1)
LEFT_OUT = "quick"
SKIPS_MHZ = np.arange(1250.0, 1981.0, 30.0)


class Row(NamedTuple):
    """A prediction beside what was measured; errors of logarithms, in per cent."""

    card: int
    what: str
    core_mhz: str
    power_w: str
    time_error: str
    energy_error: str
    energy_se: str


def main() -> None:
    rows: list[Row] = []
    for card in CARDS:
        notes, recorded = runs(FOLDER / f"gpt3-xl-{card}.npz.xz")
        context = json.loads((FOLDER / f"context-{card}.json").read_text())
        rows += mixtures(card, estimate(recorded), recorded, context["mixtures"])
        left_out = [run["programme"] == LEFT_OUT for run in notes["runs"]]
        rows += readings(card, recorded, left_out)
    with (FOLDER / "held-out.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Row._fields)
        table.writerows(rows)
    for what, chosen in (
        ("mixtures, energy by the counter", [row for row in rows if row.time_error]),
        ("runs left out, power by readings", [row for row in rows if not row.time_error]),
    ):
        off = np.array([float(row.energy_error) for row in chosen])
        z = off / np.array([float(row.energy_se) for row in chosen])
        print(
            f"{len(off)} {what}: mean error {np.abs(off).mean():.2f} %, largest {np.abs(off).max():.2f} %, "
            f"bias {off.mean():+.2f} %, {np.mean(np.abs(z) < 1.96):.0%} within 1.96 standard errors"
        )
    times = np.array([float(row.time_error) for row in rows if row.time_error])
    print(f"time of mixtures: mean error {np.abs(times).mean():.2f} %, largest {np.abs(times).max():.2f} %")


def mixtures(card: int, found: Estimate, recorded: Sequence[Recorded], measured: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Mixtures of kernels and products, against the energy counter."""
    curves = {curve.kernel: curve for curve in (*found.curves, *found.beside)}
    product = found.beside[0].kernel
    counted = counted_share(recorded)
    assert found.power is not None
    rows = []
    for one in measured:
        kernel, calls, products = one["kernel"].split(" x ")[0], one["kernel_calls"], one["product_calls"]
        clock = in_effect(one["effective_core_mhz"], (curves[kernel], calls), (curves[product], products), counted)
        clocks = {name: float(np.clip(clock, *curves[name].core_mhz[[0, -1]])) for name in (kernel, product)}
        warmer = 1.0 + found.power_by_degree[0] * (one["temperature_c"] - found.temperature_c)
        steps = [(kernel, calls), (product, products)]
        predicted = predict_mixture(steps, curves, clocks, power_factor=warmer)
        each_j = [predict_mixture([step], curves, clocks, power_factor=warmer).energy_j for step in steps]
        error_j = np.hypot(predicted.energy_se_j, found.power.spread.run * np.hypot(*each_j))
        rows.append(Row(
            card, one["kernel"], f"{clock:.0f}", f"{one['energy_j'] / one['time_s']:.1f}",
            f"{100.0 * np.log(predicted.time_s / one['time_s']):.2f}",
            f"{100.0 * np.log(predicted.energy_j / one['energy_j']):.2f}",
            f"{100.0 * error_j / predicted.energy_j:.2f}",
        ))  # fmt: skip
    return rows


def counted_share(recorded: Sequence[Recorded]) -> np.ndarray:
    """Cycles that products count, as a fraction of the clock in effect, at each of ``SKIPS_MHZ``."""
    clocks, shares = [], []
    for run in recorded:
        timeline = run.timeline
        ours = (timeline.subject == 1) & (groups_of(run).since >= 1)
        assert timeline.counted_mhz is not None
        clocks.append(timeline.core_mhz[ours])
        shares.append(timeline.counted_mhz[ours] / timeline.core_mhz[ours])
    clock, share = np.concatenate(clocks), np.concatenate(shares)
    near = [share[np.abs(clock - at) < 20.0] for at in SKIPS_MHZ]
    known = np.array([len(each) > 0 for each in near])
    return np.interp(SKIPS_MHZ, SKIPS_MHZ[known], [np.median(each) for each in near if len(each)])


def in_effect(
    counted_mhz: float, kernel: tuple[KernelCurve, int], product: tuple[KernelCurve, int], counted: np.ndarray
) -> float:
    """The clock at which a mixture counts so many cycles: light kernels skip none."""

    def counts(clock: float) -> float:
        seconds = [
            calls * float(curve.time_at(np.clip(clock, *curve.core_mhz[[0, -1]]))) for curve, calls in (kernel, product)
        ]
        return clock * (seconds[0] + float(np.interp(clock, SKIPS_MHZ, counted)) * seconds[1]) / sum(seconds)

    return float(brentq(lambda clock: counts(clock) - counted_mhz, 1000.0, 2300.0))


def readings(card: int, recorded: Sequence[Recorded], left_out: Sequence[bool]) -> list[Row]:
    """Mean power of the runs left out, by their readings."""
    found = estimate([run for run, out in zip(recorded, left_out, strict=True) if not out])
    assert found.power is not None
    curves = {curve.kernel: curve for curve in (*found.curves, *found.beside)}
    sensed, powers = [], {IDLE: found.power.power_w[IDLE]}
    kept = [run for run, out in zip(recorded, left_out, strict=True) if out]
    for one in kept:
        loads = one.subjects
        for load in loads:
            powers[load] = curves[load[0]].power_w
        response = response_of(one, groups_of(one), {load: np.log(curves[load[0]].core_mhz) for load in loads})
        assert response is not None
        sensed.append(at_nominal_delay(loads[0], response, one.channels[0]))
    rows = []
    delayed = with_delays(sensed, powers, found.power.spread.noise_w, recorded[0].channels[0])
    for run, with_delay in zip(kept, delayed, strict=True):
        shown = with_delay.response.at(with_delay.delay_s)
        warmer = 1.0 + found.power_by_degree[0] * (with_delay.response.temperature_c - found.temperature_c)
        power_w = shown @ np.concatenate([*(powers[load] for load in run.subjects), powers[IDLE]]) * warmer
        mean, variance = shown.mean(axis=0), 0.0
        for load, where in zip(run.subjects, with_delay.response.columns, strict=True):
            by_log = mean[where] * powers[load]
            variance += (found.power.spread.run * float(by_log.sum())) ** 2
            variance += float(by_log @ curves[load[0]].log_power_cov @ by_log)
        rows.append(Row(
            card, f"{run.subjects[0][0]}, {LEFT_OUT}", f"{run.timeline.core_mhz.mean():.0f}",
            f"{with_delay.response.power_w.mean():.1f}", "",
            f"{100.0 * np.log(power_w.mean() / with_delay.response.power_w.mean()):.2f}",
            f"{100.0 * variance**0.5 / power_w.mean():.2f}",
        ))  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
