"""Records raw runs of bursts on a real GPU, to be analysed on another machine.

    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python benchmarks/h200/fingrav_raw.py gemm.npz gemm:4096x50 --runs 20 --rest 0.3
    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python benchmarks/h200/fingrav_raw.py both.npz gemv:4096x40 gemm:4096x10

Only reads the GPU's state. Needs PyTorch, NumPy and nvidia-ml-py, none of the package's other dependencies.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from testbed.raw_runs import summary, write_runs
from wastenot.devices.instrument import Burst, BurstRun
from wastenot.devices.open import open_device
from wastenot.workloads.primitives import primitive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("kernels", nargs="+", help="in order, such as gemv:4096x40 gemm:4096x10")
    parser.add_argument("--device", default="nvidia:0")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rest", type=float, default=0.3, help="seconds before each run, plus up to a tenth at random")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time, even if runs remain")
    options = parser.parse_args()
    device = open_device(options.device)
    instrument = device.instrument()
    burst = Burst(tuple(primitive(kernel) for kernel in options.kernels))
    rng = np.random.default_rng(0)
    runs: list[BurstRun] = []
    began = time.monotonic()
    temperature_c = [device.sensors.temperature_c()]
    with instrument.prepare(burst) as bench:
        print(f"{' '.join(options.kernels)}: ready after {time.monotonic() - began:.2f} s", flush=True)
        began = time.monotonic()
        while len(runs) < options.runs and time.monotonic() - began < options.seconds:
            # A random part, so that runs do not all begin at the same phase of the sensor's period.
            runs.append(bench.run(options.rest + rng.uniform(0.0, 0.1)))
    temperature_c.append(device.sensors.temperature_c())
    write_runs(options.out, instrument, burst, runs, rest_s=options.rest, temperature_c=temperature_c)
    print(f"  {len(runs)} runs in {time.monotonic() - began:.1f} s, {temperature_c[0]} to {temperature_c[-1]} C")
    print(summary(runs), flush=True)


if __name__ == "__main__":
    main()
