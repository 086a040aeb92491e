"""Scaled presets beside measurements.

    python -m presets.judge_scaled [--fit]

``--fit`` fits again what was fitted. An H100 is fitted to the powers of 66 kernels of one card (data/h100: GPT-3 XL,
Llama 8B prefill and decode) and judged on the 30 kernels of Llama 8B training on another card. An A100 is fitted to the mean
power of forward by clock in the profile of GPT-3 175B that Perseus published (../shared/data/perseus, tensor-parallel over
8 cards), and judged on backward.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import wastenot as wn
from presets.h200_data import Measured, measured_in
from presets.h200_errors import Off, errors_at_auto, predicted
from presets.scaled import A100, H100, scaled_preset
from wastenot.devices.simulated.preset import Preset, find_preset

Array = NDArray[np.float64]

ROOT = Path(__file__).parents[1]
PROFILE = ROOT.parent / "shared" / "data" / "perseus" / "gpt3-175b-a100-sxm.csv"
FITTED = (
    ("gpt3-xl", "gpt3-xl"),
    ("llama-8b-prefill", "llama-8b-prefill-flash"),
    ("llama-8b-decode", "llama-8b-decode-flash"),
)
HELD = ("llama-8b-training", "llama-8b-batch4-flash")
_STAGES, _LAYERS = range(1, 7), 12  # stages without embedding and loss, and the layers of each


@dataclass(frozen=True, slots=True)
class ByClock:
    """Time and energy of an instruction of a stage, by core clock from the highest down."""

    core_mhz: Array
    time_s: Array
    energy_j: Array


def h100_kernels(*sweeps: tuple[str, str]) -> list[Measured]:
    """Kernels of sweeps in data/h100 at the default clocks."""
    return [each for name, workload in sweeps for each in measured_in(ROOT / "data" / "h100" / f"{name}.csv", workload)]


def h100_errors(preset: Preset) -> list[Off]:
    """Errors on the card and the kernels that nothing was fitted to."""
    return errors_at_auto(preset, h100_kernels(HELD))


def a100_profile(instruction: str) -> ByClock:
    """The mean of the inner stages in the published profile."""
    with PROFILE.open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["instruction"] == instruction and int(row["stage"]) in _STAGES]
    clocks = np.array(sorted({float(row["frequency"]) for row in rows}, reverse=True))
    means = [
        [np.mean([float(row[what]) for row in rows if float(row["frequency"]) == clock]) for clock in clocks]
        for what in ("time", "energy")
    ]
    return ByClock(clocks, *map(np.array, means))


def a100_predicted(preset: Preset, instruction: str, core_mhz: Array) -> ByClock:
    """The same of a preset, from the kernels of a layer, as if no power limit held the clock: it did not in the profile."""
    time_s, energy_j = np.zeros_like(core_mhz), np.zeros_like(core_mhz)
    for kernel in wn.workload("gpt3-175b", batch=1, sequence=2048, tensor_parallel=8).kernels:
        if kernel.pass_name == instruction and kernel.block == "layer":
            one_s, power_w = predicted(preset, kernel, core_mhz)
            time_s, energy_j = time_s + one_s, energy_j + one_s * power_w
    return ByClock(core_mhz, _LAYERS * time_s, _LAYERS * energy_j)


def fit_h100(h200: Preset) -> Array:
    """Energy of clocks and traffic, and of a byte, over an H200's; the power awake is too like both to be told from them."""
    kernels = h100_kernels(*FITTED)

    def off(x: Array) -> Array:
        sister = replace(H100, light=float(x[0]), byte=float(x[1]))
        return np.log1p([each.power for each in errors_at_auto(scaled_preset(h200, sister, {}), kernels)])

    return np.asarray(least_squares(off, [1.0, 1.0], loss="soft_l1", f_scale=0.05, bounds=(0.5, 3.0)).x)


def fit_a100(h200: Preset) -> Array:
    """Energy of an instruction, knee in MHz and slope in 1/GHz of the voltage."""
    seen = a100_profile("forward")

    def off(x: Array) -> Array:
        energy, knee_mhz, slope = map(float, x)
        sister = replace(A100, light=energy, arithmetic=energy, voltage=(knee_mhz, slope))
        said = a100_predicted(scaled_preset(h200, sister, {}), "forward", seen.core_mhz)
        return np.log((said.energy_j / said.time_s) / (seen.energy_j / seen.time_s))

    bounds = ([0.3, 600.0, 0.1], [3.0, 1300.0, 2.0])
    return np.asarray(least_squares(off, [1.0, 1000.0, 0.8], x_scale=[0.1, 50.0, 0.1], bounds=bounds).x)


def h100_numbers(preset: Preset) -> dict[str, float]:
    """Absolute errors of time and power on the 30 kernels held out, mean and median, and of the whole iteration."""
    errors = h100_errors(preset)
    time, power = (np.array([getattr(each, what) for each in errors]) for what in ("time", "power"))
    spent_s = np.array([each.measured.time_s * each.measured.kernel.count for each in errors])
    spent_j = spent_s * [each.measured.power_w for each in errors]
    return {
        "time_mean": float(np.mean(np.abs(time))), "time_median": float(np.median(np.abs(time))),
        "power_mean": float(np.mean(np.abs(power))), "power_median": float(np.median(np.abs(power))),
        "iteration_time": float(spent_s @ time / spent_s.sum()),
        "iteration_energy": float(spent_j @ ((1.0 + time) * (1.0 + power)) / spent_j.sum() - 1.0),
    }  # fmt: skip


def a100_numbers(preset: Preset) -> dict[str, float]:
    """Absolute errors on backward: time and energy over those at the highest clock, and as they are."""
    seen = a100_profile("backward")
    said = a100_predicted(preset, "backward", seen.core_mhz)
    found = {}
    for what in ("time_s", "energy_j"):
        ratio = getattr(said, what) / getattr(seen, what)
        found[f"{what[:-2]}_by_clock"] = float(np.mean(np.abs(ratio / ratio[0] - 1.0)))
        found[f"{what[:-2]}"] = float(np.mean(np.abs(ratio - 1.0)))
    return found


if __name__ == "__main__":
    fitted_to = find_preset("h200")
    if "--fit" in sys.argv:
        print("h100:", fit_h100(fitted_to), "a100:", fit_a100(fitted_to))
    print("h100:", h100_numbers(scaled_preset(fitted_to, H100, {})))
    print("a100:", a100_numbers(scaled_preset(fitted_to, A100, {})))
