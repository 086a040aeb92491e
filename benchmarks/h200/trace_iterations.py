"""Tiny iterations traced on a real GPU whose clocks nobody sets: what measuring switching latency could resolve there.

    WASTENOT_READ_ONLY=1 python benchmarks/h200/trace_iterations.py [DEVICE]

Only reads. Prints, by load, how long iterations take, how much their time and their core clock vary, and how well the clocks
of host and GPU are related.
"""

from __future__ import annotations

import sys

import numpy as np

from wastenot.devices.open import open_device
from wastenot.kernels.latency.arrivals import WIDTHS, levels_of, signal
from wastenot.kernels.latency.design import KINDS

_SECONDS = 0.5
_RUNS = 5


def main() -> None:
    device = open_device(sys.argv[1] if len(sys.argv) > 1 else "nvidia:0")
    tracer = device.tracer()
    for load in KINDS:
        runs, traces = [], []
        for _ in range(_RUNS):
            began_s = device.time.now_s()
            with tracer.start(load, _SECONDS) as run:
                device.time.sleep(_SECONDS)
            trace = run.trace
            assert began_s <= trace.bounds_s[0] and trace.bounds_s[-1] <= device.time.now_s() + trace.clock_error_s
            traces.append(trace)
            runs.append(signal(trace, load)[len(trace.core_mhz) // 2 :])
        level = levels_of({0.0: runs})[0.0]
        seconds = np.concatenate([trace.seconds for trace in traces])
        clocks = np.concatenate([trace.core_mhz[len(trace.core_mhz) // 2 :] for trace in traces])
        print(
            f"{load}: {len(seconds) // _RUNS:,} iterations a run, {1e6 * np.median(seconds):.1f} µs each (99 % below "
            f"{1e6 * np.quantile(seconds, 0.99):.1f}, longest {1e6 * seconds.max():.0f}); core {np.median(clocks):.0f} MHz "
            f"(sd {clocks.std():.1f}); signal: sd "
            + ", ".join(f"{level.sd[width] / level.mean:.2%} by a median of {width}" for width in WIDTHS)
            + f"; between runs {level.between / level.mean:.2%}; clocks related to {1e6 * traces[0].clock_error_s:.1f} µs"
        )


if __name__ == "__main__":
    main()
