"""The measured H200 (data/h200): do two runs agree, and does a simulated one fitted to half of its kernels know the rest?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from presets import h200
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import find_preset
from wastenot.setting import AUTO
from wastenot.study.sweep import Sweep
from wastenot.study.sweep_file import read_sweep
from wastenot.workloads.build import build_workload

DATA = Path(__file__).parents[1] / "data" / "h200"
WARM_C = 57.0


def measured(sweep: Sweep) -> list[h200.Measured]:
    """Its kernels by formula, with what was measured, in order of execution."""
    specs = {kernel.name: kernel for kernel in build_workload("gpt3-xl").kernels}
    power = sweep.energy_j / sweep.time_s
    found = {
        sweep.kernels[kernel].name: h200.Measured(specs[sweep.kernels[kernel].name], *map(float, values))
        for kernel, *values in zip(sweep.kernel_index, sweep.time_s, power, sweep.effective_core_mhz, strict=True)
    }
    return [found[name] for name in specs]


def errors_of_held_out(operations: list[h200.Measured], half: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors in time and power at auto of every other kernel of each operation, fitted to the rest."""
    preset = find_preset("h200")
    device = preset.parameters
    fitted_to, rest = [], []
    for op in dict.fromkeys(one.kernel.op for one in operations):
        members = [one for one in operations if one.kernel.op == op]
        fitted_to += members[half::2]
        rest += members[1 - half :: 2]
    shortest_s = min(one.time_s for one in fitted_to)
    fitted = h200.fit_ops(tuple(fitted_to), device)
    ops = {op: traits.model_copy(update={"fixed_s": shortest_s}) for op, traits in fitted.items()}
    physics = ModelPhysics(preset.model_copy(update={"ops": preset.ops | ops, "kernels": {}}))
    pairs = []
    for one in rest:
        point = physics.operating_point(Task.of_kernel(one.kernel), AUTO, WARM_C)
        pairs.append((point.time_s / one.time_s - 1.0, point.power_w / one.power_w - 1.0))
        print(f"    {one.kernel.name:26} time {pairs[-1][0]:+7.1%}  power {pairs[-1][1]:+7.1%}")
    time, power = np.abs(np.array(pairs)).T
    return time, power


def main(verdict: Verdict) -> None:
    first, second = (read_sweep(DATA / f"gpt3-xl-{run}.csv") for run in (1, 2))
    one, two = ({item.kernel.name: item for item in measured(sweep)} for sweep in (first, second))
    for what in ("time", "energy"):
        apart = np.array([
            abs(two[name].time_s / one[name].time_s * (1 if what == "time" else two[name].power_w / one[name].power_w) - 1)
            for name in one
        ])  # fmt: skip
        verdict.at_most(f"two runs, {what}: median difference, %", 100 * float(np.median(apart)), 1.0)
        verdict.at_most(f"two runs, {what}: largest difference, %", 100 * float(apart.max()), 3.0)
    for what, error, value, asked in (
        ("time", first.time_se_s, first.time_s, 0.5),
        ("energy", first.energy_se_j, first.energy_j, 1.0),
    ):
        share = 100 * error / value
        within = float(np.mean(share <= asked))
        print(f"  stated standard errors in {what}: median {np.median(share):.2f} %, within {asked} % for {within:.0%}")
        verdict.at_most(f"stated standard error in {what}, largest, %", float(share.max()), asked)
    found = [errors_of_held_out(list(one.values()), half) for half in (0, 1)]
    for what, index, asked in (("time", 0, 8.0), ("power", 1, 6.0)):
        each = 100 * np.concatenate([errors[index] for errors in found])
        print(f"  held-out half of the kernels, {what}: median error {np.median(each):.1f} %")
        verdict.at_most(f"held-out half of the kernels: mean error in {what}, %", float(each.mean()), asked)
