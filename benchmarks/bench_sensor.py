"""Identified sensors compared with those of the simulator: period, window or lag, delay, and whether stated errors hold."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.verdict import Verdict
from testbed.binomial import least_hits
from testbed.sensed_loads import LOAD, delay_error_s, identified_total, sensed
from wastenot.devices.simulated.preset import preset_names

SEEDS = 5
MEAN = {"lag_s": 0.0, "sample_s": 0.0, "delay_s": 0.0}  # the H200's sensor, if it published means without delay
CASES: tuple[tuple[str, dict[str, float]], ...] = (
    *((name, {}) for name in preset_names()),
    ("h200", MEAN),
    ("h200", MEAN | {"delay_s": 0.03}),
    ("h200", MEAN | {"delay_s": 0.1}),
    ("h200", MEAN | {"window_s": 1.0}),
    ("h200", MEAN | {"window_s": 0.01}),
    ("h200", {"lag_s": 0.0}),
    ("h200", {"sample_s": 0.0, "sample_drift": 0.0}),
    ("rtx-3080-ti", {"window_s": 0.01}),
    ("rtx-3080-ti", {"lag_s": 0.05}),
    ("v100", {"delay_s": 0.03}),
    ("v100", {"lag_s": 0.005, "sample_s": 0.005, "sample_drift": 3e-4}),
    ("mi300x", {"window_s": 200e-6}),
)


def main(verdict: Verdict) -> None:
    scores = []
    for name, changes in CASES:
        errors: list[tuple[float, float, float, float]] = []
        for seed in range(SEEDS):
            instrument, truth = sensed(name, seed, **changes)
            identified = identified_total(instrument, LOAD)
            span_s, error_s = (
                (identified.lag_s, identified.lag_se_s) if truth.lag_s else (identified.window_s, identified.window_se_s)
            )
            if None in (identified.period_s, span_s, error_s, identified.delay_s, identified.delay_drift):
                errors.append((np.inf, np.inf, np.inf, np.inf))
                continue
            true_s = truth.lag_s or truth.window_s
            allowed_s = 1e-3 if truth.sample_s else max(0.1 * truth.delay_s, 2e-3)
            errors.append((abs(identified.period_s / truth.period_s - 1), abs(span_s / true_s - 1),
                        delay_error_s(instrument, truth, identified) / allowed_s,
                        abs(identified.delay_drift - (truth.sample_drift if truth.sample_s else 0.0))))  # fmt: skip
            scores.append((span_s - true_s) / error_s)
        worst = np.max(np.array(errors), axis=0)
        what = ", ".join([name, *(_change(key, value) for key, value in changes.items())])
        kind = "lag" if truth.lag_s else "window"
        verdict.at_most(f"{what}: error of the period, worst of {SEEDS}", float(worst[0]), 0.1)
        verdict.at_most(f"{what}: error of the {kind}, worst of {SEEDS}", float(worst[1]), 0.1)
        verdict.at_most(f"{what}: error of the delay at any time, over the tolerance", float(worst[2]), 1.0)
        if math.isclose(truth.window_s, 1.0):
            continue  # a minute is too short for the drift of a sensor this slow, as its stated error shows
        verdict.at_most(f"{what}: error of the drift, s per second", float(worst[3]), 5e-5)
    covered = int(np.sum(np.abs(scores) < 1.96))
    verdict.at_least(f"stated 95 % intervals that contain window or lag, of {len(scores)}", covered, least_hits(len(scores)))


def _change(key: str, value: float) -> str:
    return f"{key[:-2]} {1e3 * value:g} ms" if key.endswith("_s") else f"{key.replace('_', ' ')} {value:g}"
