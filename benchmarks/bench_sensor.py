"""Sensors as identified against those of the simulator: period, window and delay, and whether errors are as stated."""

from __future__ import annotations

import numpy as np

from benchmarks.verdict import Verdict
from tests.measurement.sensor_helpers import LOAD, identified_total, sensed
from wastenot.devices.simulated.preset import preset_names

SEEDS = 5
MEAN = {"lag_s": 0.0, "sample_s": 0.0, "delay_s": 0.0}  # the H200's sensor, if it took means when it is due
CASES: tuple[tuple[str, dict[str, float]], ...] = (
    *((name, {}) for name in preset_names()),
    ("h200", MEAN),
    ("h200", MEAN | {"delay_s": 0.03}),
    ("h200", MEAN | {"delay_s": 0.1}),
    ("h200", MEAN | {"window_s": 1.0}),
    ("h200", MEAN | {"window_s": 0.01}),
    ("rtx-3080-ti", {"window_s": 0.01}),
    ("v100", {"delay_s": 0.03}),
    ("mi300x", {"window_s": 200e-6}),
)


def main(verdict: Verdict) -> None:
    scores = []
    for name, changes in CASES:
        off: list[tuple[float, float, float]] = []
        for seed in range(SEEDS):
            instrument, truth = sensed(name, seed, **changes)
            found = identified_total(instrument, LOAD)
            if found.period_s is None or found.window_s is None or found.delay_s is None or found.window_se_s is None:
                off.append((np.inf, np.inf, np.inf))
                continue
            allowed_s = max(0.1 * truth.delay_s, 2e-3)
            off.append((abs(found.period_s / truth.period_s - 1), abs(found.window_s / truth.window_s - 1),
                        abs(found.delay_s - truth.delay_s) / allowed_s))  # fmt: skip
            scores.append((found.window_s - truth.window_s) / found.window_se_s)
        worst = np.max(np.array(off), axis=0)
        what = ", ".join([name, *(f"{key[:-2]} {1e3 * value:g} ms" for key, value in changes.items())])
        verdict.at_most(f"{what}: period off by, worst of {SEEDS}", float(worst[0]), 0.1)
        verdict.at_most(f"{what}: window off by, worst of {SEEDS}", float(worst[1]), 0.1)
        verdict.at_most(f"{what}: delay off by, of what is allowed", float(worst[2]), 1.0)
    held = float(np.mean(np.abs(scores) < 1.96))
    verdict.at_least("stated 95 % intervals that hold the window", held, 0.85)
