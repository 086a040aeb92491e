"""Every kernel of GPT-3 XL training alone, then a layer and the iteration as one: do the parts add up to the whole?

    python benchmarks/h200/whole.py STUDY.db [WINDOW_S] > whole.json

Only reads the GPU's state; clocks stay the default ones.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.meters.tasks import tasks_of
from wastenot.study.store import open_study
from wastenot.sweeping.measure import recording
from wastenot.sweeping.point import Measurement, PointOptions, hottest_first, measure_point, warm_up
from wastenot.workloads.build import build_workload


def compared(parts: dict[str, Measurement], task: Task, whole: Measurement) -> dict[str, Any]:
    """A task measured as one against the sum of its kernels measured alone."""
    time_s = sum(times * parts[kernel.name].time_s for kernel, times in task.steps)
    energy_j = sum(times * parts[kernel.name].energy_j for kernel, times in task.steps)
    return {
        "whole": asdict(whole), "sum_time_s": time_s, "sum_energy_j": energy_j,
        "time_difference": time_s / whole.time_s - 1, "energy_difference": energy_j / whole.energy_j - 1,
    }  # fmt: skip


def main(study: str, window_s: float = 2.0) -> None:
    device = open_device("nvidia:0")
    workload = build_workload("gpt3-xl")
    units = tasks_of(workload)
    warm_up(device, units.tasks, at_least_s=15.0, at_most_s=45.0)
    parts, spent = {}, {}
    with recording(device, units, open_study(study, create=True)) as recorder:
        for index in hottest_first(units.tasks):
            began = time.perf_counter()
            point = measure_point(device, units.tasks[index], AUTO, PointOptions(0.5, window_s))
            spent[point.kernel] = time.perf_counter() - began
            parts[point.kernel] = point
            recorder.append(point)
    layer = Task("layer", tuple((kernel, 1) for kernel in workload.kernels if kernel.block == "layer"))
    iteration = tasks_of(workload, "iteration").tasks[0]
    result = {"device": device.identity.label, "driver": device.identity.driver, "seconds_a_kernel": spent}
    for task in (layer, iteration):
        result[task.name] = compared(parts, task, measure_point(device, task, AUTO, PointOptions(2.0, 4.0)))
    print(json.dumps(result, indent=1, default=str))
    for name in ("layer", "iteration"):
        point = result[name]
        print(
            f"{name}: sum of kernels {point['time_difference']:+.2%} in time, {point['energy_difference']:+.2%} in energy; "
            f"{point['whole']['how'][:60]}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
