"""What curves of single kernels have to predict: a whole iteration, and mixtures of kernels. Only reads the GPU's state.

    WASTENOT_READ_ONLY=1 python benchmarks/h200/natural_context.py OUT [DEVICE]

Writes OUT.json (the iteration, and mixtures of kernels with products, as one task each: time by events, energy by the
counter) and OUT-0.npz, OUT-1.npz (iterations with a stamp after every kernel: its time and clock in context).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from natural_probe import product, saved

from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.timeline import Phase, Subject
from wastenot.meters.tasks import tasks_of
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.workloads.build import build_workload

ITERATIONS = 8
MIXED = ("residual_1", "softmax", "permute_qkv", "gelu_backward", "layernorm_1_backward", "up_dbias")
SHARES_S = ((4e-3, 4e-3), (9e-3, 3e-3))  # of kernel and products in turn


def main(out: str, name: str = "nvidia:0") -> None:
    device = open_device(name)
    workload = build_workload("gpt3-xl")
    task = tasks_of(workload, "iteration").tasks[0]
    result: dict[str, Any] = {"gpu": device.identity.label, "driver": device.identity.driver}

    def measured(task: Task, warm_up_s: float, window_s: float) -> dict[str, Any]:
        point = asdict(measure_point(device, task, AUTO, PointOptions(warm_up_s, window_s)))
        print(task.name, point["time_s"], point["energy_j"], point["effective_core_mhz"], point["temperature_c"], flush=True)
        return point

    result["iteration"] = [measured(task, 3.0, 6.0)]
    recorder = device.timelines()
    kernels = [kernel for kernel, _ in task.steps]
    order = task.order
    with recorder.prepare([Subject(kernel) for kernel in kernels], group_s=1e-7) as prepared:
        phases = [Phase(step, 1e-7) for _ in range(ITERATIONS) for step in order]
        for run in range(2):
            timeline = prepared.run(phases)
            arrays = saved(timeline)
            arrays["kernels"] = np.array([kernel.name for kernel in kernels])
            np.savez_compressed(f"{out}-{run}.npz", **arrays)
            seconds = (timeline.end_s[-1] - timeline.begin_s[0]) / ITERATIONS
            print(
                "stamped iteration",
                seconds,
                np.quantile(timeline.core_mhz, [0.05, 0.5, 0.95]),
                timeline.calls.max(),
                flush=True,
            )
    result["iteration"].append(measured(task, 2.0, 5.0))
    by_name = {kernel.name: kernel for kernel in kernels}
    heavy = product()
    alone = {name: measured(Task.of_kernel(by_name[name]), 0.4, 1.2) for name in MIXED}
    result["alone"] = alone | {heavy.name: measured(Task.of_kernel(heavy), 1.0, 3.0)}
    result["mixtures"] = []
    for name in MIXED:
        for kernel_s, product_s in SHARES_S:
            kernel_calls = max(1, round(kernel_s / alone[name]["time_s"]))
            product_calls = max(1, round(product_s / result["alone"][heavy.name]["time_s"]))
            mixture = Task(f"{name} x {kernel_calls} + {heavy.name} x {product_calls}",
                           ((by_name[name], kernel_calls), (heavy, product_calls)))  # fmt: skip
            point = measured(mixture, 1.0, 3.0)
            result["mixtures"].append({"of": name, "kernel_calls": kernel_calls, "product_calls": product_calls} | point)
    with open(f"{out}.json", "w") as file:
        json.dump(result, file, indent=1, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
