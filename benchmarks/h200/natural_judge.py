"""Curves from natural clocks against what was measured besides, on two H200s: cards, mixtures, a whole iteration.

Curves come from kernels alone and beside products (gpt3-xl-*.npz.xz); mixtures and the iteration (context-*) were measured
after them, by the energy counter, and took no part in them. Predictions are given nothing of what they predict, not
even the clock; the power limit is that which the regulator holds kernels to in the sweep.
"""

from __future__ import annotations

import io
import json
import lzma
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.h200.natural_runs import runs
from benchmarks.kept import DATA
from wastenot.kernels.natural.estimate import Estimate, estimate
from wastenot.kernels.natural.held import held_in_runs
from wastenot.kernels.natural.iteration import predict_iteration
from wastenot.kernels.natural.storage import Recorded
from wastenot.kernels.natural.whole import whole_iteration
from wastenot.meters.tasks import tasks_of
from wastenot.study.sweep import Kernel
from wastenot.workloads.build import build_workload

NATURAL = DATA / "h200" / "natural"
CARDS = (0, 1)
HEAVY = "gemm_8192"
LOW_MHZ, HIGH_MHZ = 1450.0, 1980.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Predicted over measured, less 1."""

    card: int
    what: str
    time: float
    energy: float


@cache
def seen(card: int) -> list[Recorded]:
    """Runs of single kernels on one card."""
    return runs(NATURAL / f"gpt3-xl-{card}.npz.xz")[1]


@cache
def estimated(card: int) -> Estimate:
    """Curves of one card."""
    return estimate(seen(card))


@cache
def context(card: int) -> dict[str, Any]:
    """What was measured on it afterwards."""
    found: dict[str, Any] = json.loads((NATURAL / f"context-{card}.json").read_text())
    return found


@cache
def stamped(card: int) -> dict[str, Any]:
    """Iterations with a stamp after every kernel, arrays by run and name."""
    with lzma.open(NATURAL / f"context-{card}.npz.xz") as file:
        return dict(np.load(io.BytesIO(file.read())))


@cache
def limit_w(card: int) -> float | None:
    """Mean power that the regulator holds single kernels to."""
    return held_in_runs(estimated(card).curves, seen(card))


def mixtures() -> list[Difference]:
    """Six kernels in two shares with products, on both cards."""
    found = []
    for card in CARDS:
        for one in context(card)["mixtures"]:
            name = one["kernel"].partition(" x ")[0]
            kernels = (Kernel(name, one["kernel_calls"]), Kernel(HEAVY, one["product_calls"]))
            curves = [estimated(card).of(kernel.name) for kernel in kernels]
            predicted = predict_iteration(whole_iteration(kernels, curves, limit_w=limit_w(card)))
            time, energy = predicted.time_s.value / one["time_s"] - 1.0, predicted.energy_j.value / one["energy_j"] - 1.0
            found.append(Difference(card, one["kernel"], time, energy))
    return found


def iterations() -> list[Difference]:
    """A whole iteration of GPT-3 XL; measured twice on each card, of which the mean counts."""
    kernels = tasks_of(build_workload("gpt3-xl")).kernels
    found = []
    for card in CARDS:
        curves = [estimated(card).of(kernel.name) for kernel in kernels]
        measured = context(card)["iteration"]
        warmer_c = float(np.mean([one["temperature_c"] for one in measured])) - estimated(card).temperature_c
        predicted = predict_iteration(whole_iteration(kernels, curves, limit_w=limit_w(card)))
        as_warm = predict_iteration(whole_iteration(kernels, curves, limit_w=limit_w(card), warmer_c=warmer_c))
        time_s, energy_j = (float(np.mean([one[name] for one in measured])) for name in ("time_s", "energy_j"))
        found.append(
            Difference(card, "iteration", predicted.time_s.value / time_s - 1, predicted.energy_j.value / energy_j - 1)
        )
        found.append(
            Difference(card, "as warm as it was", as_warm.time_s.value / time_s - 1, as_warm.energy_j.value / energy_j - 1)
        )
    return found


def cards_apart() -> dict[str, float]:
    """Root mean square over clocks of the difference between the two cards' times, by kernel."""
    found = {}
    for curve in estimated(0).curves:
        other = estimated(1).of(curve.kernel)
        low = max(curve.core_mhz[0], other.core_mhz[0], LOW_MHZ)
        high = min(curve.core_mhz[-1], other.core_mhz[-1], HIGH_MHZ)
        if high > low:
            clocks = np.linspace(low, high, 20)
            found[curve.kernel] = float(np.sqrt(np.mean((other.time_at(clocks) / curve.time_at(clocks) - 1.0) ** 2)))
    return found
