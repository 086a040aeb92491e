"""Effective clocks by counting cycles, on a real GPU: what stamps cost where wastenot measures, and what they see.

    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python -m benchmarks.h200.effective_clocks --out clocks.json     # about 2 minutes

Sweeps: counted clocks of laps beside the driver's, of a product (held at the power limit) and a light kernel, and time per
call with stamps and without. Windows: what begin and end cost with stamps and without, on an idle stream and behind queued
work. Profiles: clocks of single executions, and their times with stamps and without. Doctor: how long it takes. Only reads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.h200.bench_window import costs_us
from benchmarks.h200.natural_probe import elementwise, product
from wastenot.core.setting import AUTO
from wastenot.devices.instrument import burst_of
from wastenot.devices.nvidia.device import NvidiaDevice
from wastenot.devices.open import open_gpu
from wastenot.devices.protocol import Task
from wastenot.devices.torch.bursts import TorchBursts
from wastenot.devices.torch.devices import torch_device
from wastenot.devices.torch.launcher import TorchLauncher
from wastenot.meters.window import Meter, measure
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.workloads.kernel import KernelSpec

os.environ["WASTENOT_READ_ONLY"] = "1"
_REPEATS = 3


@contextmanager
def driver_clocks(device: NvidiaDevice, into: list[float]) -> Iterator[None]:
    """Keep what the driver says of the core clock meanwhile."""
    read = device.sensors.clocks

    def clocks() -> Any:
        found = read()
        if found.core_mhz is not None:
            into.append(found.core_mhz)
        return found

    device.sensors.clocks = clocks  # type: ignore[method-assign]
    try:
        yield
    finally:
        device.sensors.clocks = read  # type: ignore[method-assign]


def sweeps(device: NvidiaDevice, kernels: list[KernelSpec]) -> dict[str, Any]:
    """Counted clocks beside the driver's, and time with stamps over time without, in turn."""
    launcher = device.launcher
    assert isinstance(launcher, TorchLauncher)
    result: dict[str, Any] = {}
    for kernel in kernels:
        task, rows = Task.of_kernel(kernel), []
        for stamped in (True, False) * _REPEATS:
            launcher._stamps, launcher._not_counted = None, () if stamped else ("left off",)
            said: list[float] = []
            with driver_clocks(device, said):
                found = measure_point(device, task, AUTO, PointOptions(1.0, 1.5))
            rows.append((stamped, found.time_s, found.effective_core_mhz, median(said), found.how, found.flags))
        counted = [row for row in rows if row[0]]
        with_s, without_s = (np.array([row[1] for row in rows if row[0] is stamped]) for stamped in (True, False))
        result[kernel.name] = {
            "counted_mhz": [row[2] for row in counted],
            "driver_mhz": [row[3] for row in counted],
            "difference": float(np.mean([row[2] / row[3] - 1.0 for row in counted])),
            "time_with_over_without": float(with_s.mean() / without_s.mean() - 1.0),
            "its_error": float(np.hypot(with_s.std() / with_s.mean(), without_s.std() / without_s.mean()) / _REPEATS**0.5),
            "how": counted[0][4],
            "flags": sorted({flag for row in counted for flag in row[5]}),
        }
        print(kernel.name, json.dumps(result[kernel.name]), flush=True)
    launcher._stamps, launcher._not_counted = None, ()
    return result


def windows(name: str) -> dict[str, Any]:
    """Cost of begin and end, and the clock of windows around products."""
    operands = [torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3)]

    def work(times: int = 1) -> None:
        for _ in range(times):
            torch.mm(operands[0], operands[1], out=operands[2])

    def empty(meter: Meter) -> Callable[[], None]:
        def run() -> None:
            with meter:
                pass

        return run

    began_s = time.perf_counter()
    counting = measure(name)
    empty(counting)()
    result: dict[str, Any] = {"first_window_s": time.perf_counter() - began_s}
    plain = measure(name, cycles=False)
    for label, meter in (("with stamps", counting), ("without", plain), ("with stamps again", counting)):
        empty(meter)()
        torch.cuda.synchronize()
        result[f"begin + end, {label}, µs"] = costs_us(empty(meter), 3000, lambda: None)
        torch.cuda.synchronize()
        work(60)  # 0.1 s of work in the queue
        result[f"begin + end behind queued work, {label}, µs"] = costs_us(empty(meter), 150, lambda: None)
        torch.cuda.synchronize()
    for label, times, pause_s in (("steady products, 1 s", 600, 0.0), ("products and rests, 1 s", 30, 0.05)):
        rounds = 1 if not pause_s else 10
        work(200)
        with counting as window:
            for _ in range(rounds):
                work(times)
                torch.cuda.synchronize()
                time.sleep(pause_s)
        found = window.result()
        result[label] = {
            "counted_mhz": found.counted_mhz,
            "driver_mhz": found.core_mhz,
        }
    for key, value in result.items():
        print(key, value, flush=True)
    print("problem:", counting.sampler.cycles.problem or "none")
    return result


def profiles(device: NvidiaDevice, kernels: list[KernelSpec]) -> dict[str, Any]:
    """Clocks of single executions from rest, and times of executions with stamps and without."""
    runner = TorchBursts(torch_device(device.identity.unique_id))
    counters, result = runner._counters, {}
    for kernel in kernels:
        times: dict[bool, list[float]] = {True: [], False: []}
        clocks: list[Any] = []
        for stamped in (True, False) * _REPEATS:
            runner._counters = counters if stamped else None
            with runner.prepare(burst_of(kernel, 400), {}) as burst:
                time.sleep(0.3)
                if not burst.run():
                    continue
                begin_s, end_s = burst.stamps()
                times[stamped].append(float(np.mean((end_s - begin_s)[100:])))
                found = burst.counted_mhz()
                clocks += [] if found is None else [found]
        result[kernel.name] = {
            "with_over_without": float(np.mean(times[True]) / np.mean(times[False]) - 1.0),
            "its_error": float(np.std(times[False]) / np.mean(times[False])),
            "counted_mhz": clocks[-1][::10].tolist() if clocks else None,
            "how": burst.how,
        }
        print(kernel.name, json.dumps(result[kernel.name]), flush=True)
    runner._counters = counters
    return result


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="nvidia:0")
    options.add_argument("--out", type=Path, help="write the numbers to this file")
    chosen = options.parse_args()
    device = open_gpu(chosen.device)
    kernels = [product(), product(4096), elementwise("silu_product", 1 << 27, 2, 5.0), elementwise("gelu", 1 << 26, 1, 8.0)]
    document = {
        "schema": "wastenot.effective-clocks/1",
        "device": {name: getattr(device.identity, name) for name in ("model", "unique_id", "driver", "origin")},
        "torch": torch.__version__,
        "sweeps": sweeps(device, kernels[1:]),
        "profiles": profiles(device, kernels[:3]),
        "windows": windows(chosen.device),
    }
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "wastenot", "doctor", "--seconds", "0.3"], check=True)
    document["doctor_s"] = time.perf_counter() - began_s
    print(f"doctor: {document['doctor_s']:.2f} s")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(document, indent=1))
        print(f"{chosen.out}: written")


if __name__ == "__main__":
    main()
