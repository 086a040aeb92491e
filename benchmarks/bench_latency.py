"""Measured switching latency compared with that of the simulator: by target, with its stated errors, stalls and outliers.

Seeds are apart from those of the tests and of the method's making.
"""

from __future__ import annotations

from benchmarks.verdict import Verdict
from testbed.binomial import least_hits
from wastenot.core.setting import AUTO
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import find_preset
from wastenot.kernels.latency.design import Design, design
from wastenot.kernels.latency.measure import measured_latency
from wastenot.planning.latency import Latency

SEEDS = (1001, 1002, 1003, 1004)
CARD = "rtx-3080-ti"  # has all kinds of switches
OTHERS = {
    "5 ms, jitter 10 %": Switching.of(0.005, 0.1),
    "15 ms, jitter 30 %": Switching.of(0.015, 0.3),
    "50 ms, jitter 30 %": Switching.of(0.05, 0.3),
    "15 ms, a pause of 1 ms": Switching.of(0.015, 0.2, 1e-3),
    "15 ms, 3 % of switches ten times longer": Switching.of(0.015, 0.2).model_copy(
        update={"late_chance": 0.03, "late_factor": 10.0}
    ),
    "one clock takes 400 ms": Switching(core_s=((1100.0, 0.01), (1155.0, 0.4), (1200.0, 0.01)), memory_s=0.1, jitter=0.1),
}


def main(verdict: Verdict) -> None:
    scores: list[float] = []
    for name in preset_names():
        errors = [error for seed in SEEDS for error in _errors(name, find_preset(name).switching, seed, scores)]
        verdict.at_most(f"{name}: error over the tolerance of 5 % or 0.2 ms, worst of {len(errors)}", max(errors), 1.0)
    for what, switching in OTHERS.items():
        errors = [error for seed in SEEDS[:2] for error in _errors(CARD, switching, seed, scores)]
        verdict.at_most(f"{what}: error over the tolerance of 5 % or 0.2 ms, worst of {len(errors)}", max(errors), 1.0)
    covered = sum(abs(score) < 1.96 for score in scores)
    verdict.at_least(f"stated 95 % intervals that contain the latency, of {len(scores)}", covered, least_hits(len(scores)))
    stalls = [abs(stall - 1e-3) for seed in SEEDS for stall in _stalls(OTHERS["15 ms, a pause of 1 ms"], seed)]
    verdict.at_most(f"error of a pause of 1 ms, in ms, worst of {len(stalls)}", 1e3 * max(stalls), 0.1)


def _measured(name: str, switching: Switching, seed: int) -> tuple[Design, Latency]:
    device = simulated_device(find_preset(name), f"sim:{name}", seed=seed, switching=switching)
    planned = design(device)
    return planned, measured_latency(device, planned, seed=seed)


def _errors(name: str, switching: Switching, seed: int, scores: list[float]) -> list[float]:
    planned, found = _measured(name, switching, seed)
    errors = []
    for part in planned.parts:
        for each in found.of(part.what):
            true_s = switching.latency_s(AUTO, part.setting(each.target))
            errors.append(abs(each.seconds - true_s) / max(0.05 * true_s, 2e-4))
            scores.append((each.seconds - true_s) / each.error_s)
    return errors


def _stalls(switching: Switching, seed: int) -> list[float]:
    return [cost.stall_s for cost in _measured(CARD, switching, seed)[1].costs]
