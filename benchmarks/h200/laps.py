"""Raw laps of a few kernels on a real GPU: the lap-to-lap scatter of power and time, to check standard errors.

    python benchmarks/h200/laps.py OUT.json [SECONDS]

Only reads the GPU's state.
"""

from __future__ import annotations

import json
import sys

from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.metering.mean_power import CounterMeter, pass_time
from wastenot.sweeping.point import warm_up
from wastenot.workloads.build import build_workload

KERNELS = ("up_gemm", "values_gemm", "gelu", "residual_1", "layernorm_2_backward", "up_dbias", "down_dbias", "permute_qkv")


def main(out: str, seconds: float = 6.0) -> None:
    device = open_device("nvidia:0")
    tasks = {kernel.name: Task.of_kernel(kernel) for kernel in build_workload("gpt3-xl").kernels}
    warm_up(device, [tasks["up_gemm"]], at_least_s=8.0, at_most_s=8.0)
    found = {}
    for name in KERNELS:
        with device.launcher.start(tasks[name]) as run:
            pass_time(device, 0.7, run.feed)
            meter = CounterMeter(device, run.feed)
            meter.begin()
            run.mark()
            began = device.time.now_s()
            while device.time.now_s() - began < seconds:
                meter.lap(0.1)
                run.mark()
        edges = [(step.moment_s, step.width_s, step.energy_j) for step in meter.steps]
        found[name] = {"edges": edges, "laps": [(lap.calls, lap.seconds) for lap in run.laps], "how": run.how}
        print(name, len(edges), run.how, flush=True)
    with open(out, "w") as stream:
        json.dump({"device": device.identity.label, "driver": device.identity.driver, "kernels": found}, stream)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
