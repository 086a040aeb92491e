"""Curves at natural clocks of three kernels whose time and power are powers of the clock."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.kernels.natural.curves import AutoPoint, KernelCurve

LIMIT_W = 690.0
# time of a call at 1.5 GHz in s, its exponent, power there in W, its exponent
TRUTH = {"product": (2e-3, -1.0, 730.0, 2.2), "softmax": (6e-4, -0.9, 430.0, 1.8), "permute": (5e-4, -0.05, 480.0, 1.1)}
RANGES = {"product": (1350.0, 1470.0), "softmax": (1430.0, 1980.0), "permute": (1430.0, 1980.0)}


def true_s(name: str, core_mhz: Any) -> Any:
    """True time of a call at a clock, or at each of an array of them, in seconds."""
    return TRUTH[name][0] * (core_mhz / 1500.0) ** TRUTH[name][1]


def true_w(name: str, core_mhz: Any) -> Any:
    """True power there, in watts."""
    return TRUTH[name][2] * (core_mhz / 1500.0) ** TRUTH[name][3]


def curve(name: str, rng: np.random.Generator | None = None, error: float = 0.004) -> KernelCurve:
    """As it would be measured: within its range, with errors."""
    knots = np.linspace(*RANGES[name], 6)
    off = np.zeros((2, 6)) if rng is None else error * (rng.standard_normal((2, 6)) + rng.standard_normal((2, 1)))
    limited = true_w(name, 1980.0) > LIMIT_W
    auto_mhz = 1500.0 * (LIMIT_W / TRUTH[name][2]) ** (1.0 / TRUTH[name][3]) if limited else 1980.0
    auto = AutoPoint(auto_mhz, true_s(name, auto_mhz), true_w(name, auto_mhz), 0.0, 0.0, limited)
    cov = error**2 * (np.eye(6) + 1.0)
    return KernelCurve(
        name, knots, true_s(name, knots) * np.exp(off[0]), true_w(name, knots) * np.exp(off[1]), cov, cov, auto, 9, 9
    )
