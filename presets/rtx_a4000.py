"""The power of an fp32 kernel on an RTX A4000 over core clocks: the only public measurements of this card that we know.

    PYTHONPATH=src:. python -m presets.rtx_a4000 synthetic_fp32_cache_NVIDIA_RTX_A4000.json

The file is of Kernel Tuner's tests (github.com/KernelTuner/kernel_tuner, test/, commit 12efec05879a), and is not kept here.
The fit is printed beside the constants that the preset uses.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from wastenot.core.arrays import FloatArray

_CAPPED_W = 138.0  # from which on the power limit of 140 W decides the clock
_KNEES_MHZ = np.arange(900.0, 1700.0, 20.0)  # that the search starts from


@dataclass(frozen=True, slots=True)
class CorePower:
    """Power of a kernel that the core bounds: intercept + slope · f · V(f)², V flat up to a knee.

    Attributes:
        intercept_w: at no clock at all.
        w_per_ghz: at the lowest voltage.
        knee_mhz: up to which voltage is the lowest.
        slope_per_ghz: by which voltage then rises, as a fraction of the lowest.
        rms_w: of the residuals.
        points: fitted.
    """

    intercept_w: float
    w_per_ghz: float
    knee_mhz: float
    slope_per_ghz: float
    rms_w: float
    points: int

    def voltage_ratio(self, core_mhz: FloatArray) -> FloatArray:
        """Voltage over the lowest."""
        return np.asarray(1.0 + self.slope_per_ghz * np.maximum(core_mhz - self.knee_mhz, 0.0) / 1e3)

    def power_w(self, core_mhz: FloatArray) -> FloatArray:
        """Power at core clocks."""
        return np.asarray(self.intercept_w + self.w_per_ghz * core_mhz / 1e3 * self.voltage_ratio(core_mhz) ** 2)


FP32_KERNEL = CorePower(29.25, 37.67, 1364.0, 0.793, 0.46, 8)
"""As :func:`fit` gives it for that file."""


def fit(core_mhz: FloatArray, power_w: FloatArray) -> CorePower:
    """Least squares over the points below the power limit."""
    free = power_w < _CAPPED_W
    core_mhz, power_w = core_mhz[free], power_w[free]

    def core_power(x: FloatArray) -> CorePower:
        return CorePower(float(x[0]), float(x[1]), 1e3 * float(x[2]), float(x[3]), 0.0, len(core_mhz))

    starts = [np.array([power_w.min() / 1.5, power_w.mean() / 2.0, knee / 1e3, 0.7]) for knee in _KNEES_MHZ.tolist()]
    fits = [
        least_squares(lambda x: core_power(x).power_w(core_mhz) - power_w, start, xtol=1e-14, ftol=1e-14) for start in starts
    ]
    best = min(fits, key=lambda one: float(one.cost))
    found = core_power(best.x)
    return CorePower(
        found.intercept_w, found.w_per_ghz, found.knee_mhz, found.slope_per_ghz,
        float(np.sqrt(np.mean(best.fun**2))), found.points,
    )  # fmt: skip


def read_points(path: Path) -> tuple[FloatArray, FloatArray]:
    """Clocks while power was measured, and power, from a cache file of Kernel Tuner."""
    points = json.loads(path.read_text())["cache"].values()
    return np.array([one["pwr_core_freq"] for one in points]), np.array([one["nvml_power"] for one in points])


if __name__ == "__main__":
    print("fitted:", fit(*read_points(Path(sys.argv[1]))))
    print("preset:", FP32_KERNEL)
