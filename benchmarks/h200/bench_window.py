"""``measure`` on a real GPU: overhead of begin and end, and agreement of windows with the energy counter, beside Zeus.

    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python -m benchmarks.h200.bench_window --out window.json     # about 5 minutes

Reads the GPU's state only. The reference is the counter read without pause until it steps, just before a window and just
after it (between these steps and the window's edges power is taken as it is there, which is stated with its error). Loads:
a bf16 matrix product back to back, the same switched on and off, and one that begins and ends where the window does.
Needs PyTorch, NumPy and nvidia-ml-py; where Zeus is not installed it is left out. ``--device sim:h200`` tries the script
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.h200.window_loads import Load, SimulatedLoad, TorchLoad, running
from benchmarks.h200.window_references import Compared, Zeus, aligned, steady, with_load
from wastenot.meters.counter import StepFollower
from wastenot.meters.window import Meter, measure

os.environ["WASTENOT_READ_ONLY"] = "1"


def summary(name: str, compared: list[Compared]) -> dict[str, Any]:
    relative = np.array([one.relative for one in compared])
    zeus = np.array([one.zeus_relative for one in compared if one.zeus_relative is not None])
    lags = [one.lag_s for one in compared if one.lag_s is not None]
    result: dict[str, Any] = {
        "windows": len(compared),
        "median_abs": float(np.median(np.abs(relative))),
        "largest_abs": float(np.max(np.abs(relative))),
        "mean": float(np.mean(relative)),
        "stated_median": float(np.median([one.error_j / one.energy_j for one in compared])),
        "reference_median": float(np.median([one.reference_error_j / one.reference_j for one in compared])),
        "held_95": float(np.mean([one.held for one in compared])),
        "zeus_median_abs": float(np.median(np.abs(zeus))) if len(zeus) else None,
        "zeus_largest_abs": float(np.max(np.abs(zeus))) if len(zeus) else None,
        "zeus_mean": float(np.mean(zeus)) if len(zeus) else None,
        "lag_median_s": median(lags) if lags else None,
        "flags": sorted({flag for one in compared for flag in one.flags}),
        "each": [[one.energy_j, one.error_j, one.reference_j, one.reference_error_j, one.zeus_relative] for one in compared],
    }
    peer = "" if not len(zeus) else f"   zeus {result['zeus_median_abs']:8.2%} {result['zeus_largest_abs']:8.2%}"
    lag = f"   lag {1e3 * result['lag_median_s']:.0f} ms" if lags else ""
    print(
        f"{name:34s} {len(compared):4d} {result['median_abs']:8.2%} {result['largest_abs']:8.2%} {result['mean']:+8.2%} "
        f"{result['stated_median']:8.2%} {result['reference_median']:8.2%} {result['held_95']:7.0%}{peer}{lag}",
        flush=True,
    )
    return result


def costs_us(what: Callable[[], object], times: int, between: Callable[[], object]) -> dict[str, float]:
    spent = []
    for _ in range(times):
        between()
        begin = time.perf_counter()
        what()
        spent.append(1e6 * (time.perf_counter() - begin))
    spent.sort()
    return {"median": spent[len(spent) // 2], "p99": spent[int(0.99 * len(spent))], "largest": spent[-1], "times": times}


def all_costs(meter: Meter, gpu_meter: Meter | None, zeus: Zeus, load: Load, real: bool) -> dict[str, Any]:
    def window_of(which: Meter) -> Callable[[], None]:
        def run() -> None:
            with which:
                pass

        return run

    def zeus_window(sync: bool) -> Callable[[], None]:
        def run() -> None:
            zeus.begin(sync=sync)
            zeus.end(sync=sync)

        return run

    def product_and_pause() -> None:
        load.product()
        time.sleep(0.0015)

    with meter:  # the sensors are followed meanwhile
        result = {
            "nothing else": costs_us(window_of(meter), 20000, lambda: None),
            "a pause between": costs_us(window_of(meter), 2000, lambda: time.sleep(0.0015)),
            "products launched": costs_us(window_of(meter), 2000, product_and_pause),
        }
        if gpu_meter is not None:
            result["products launched, gpu=True"] = costs_us(window_of(gpu_meter), 2000, product_and_pause)
        load.on()
        result["beside a thread that launches"] = costs_us(window_of(meter), 2000, lambda: time.sleep(0.0015))
        load.off()
    if zeus.monitor is not None and real:
        result["zeus"] = costs_us(zeus_window(False), 200, product_and_pause)
        result["zeus, sync"] = costs_us(zeus_window(True), 200, product_and_pause)
    for name, cost in result.items():
        print(f"begin + end, {name:32s} {cost['median']:10.2f} µs {cost['p99']:10.2f} p99 {cost['largest']:10.1f} largest")
    return result


def slowdown(meter: Meter, load: TorchLoad) -> dict[str, float]:
    """GEMMs in 3 s without and with a window open, interleaved."""

    def rate() -> float:
        before, begin = load.done, time.perf_counter()
        time.sleep(3.0)
        return (load.done - before) / (time.perf_counter() - begin)

    alone, with_window = [], []
    load.on()
    time.sleep(2.0)
    for _ in range(3):
        meter.sampler.sleep()  # as it does while nothing is measured
        time.sleep(0.3)
        alone.append(rate())
        with meter:
            with_window.append(rate())
    load.off()
    result = {"products_per_s_alone": median(alone), "products_per_s_in_window": median(with_window)}
    result["slowdown"] = result["products_per_s_alone"] / result["products_per_s_in_window"] - 1.0
    print(f"slowdown of GEMMs while a window is open: {result['slowdown']:+.3%}", flush=True)
    return result


def followed(follower: StepFollower) -> dict[str, float]:
    steps = follower.log.steps(0.0, time.perf_counter())
    return {
        "steps": len(steps.moment_s),
        "period_s": float(np.median(np.diff(steps.moment_s))),
        "period_sd_s": float(np.std(np.diff(steps.moment_s)[-200:])),
        "width_median_s": float(np.median(steps.width_s)),
        "width_p99_s": float(np.quantile(steps.width_s, 0.99)),
        "read_s": follower.read_s,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="nvidia:0")
    options.add_argument("--out", type=Path, help="write the numbers to this file")
    options.add_argument("--share", type=float, default=1.0, help="of the repeats; 0.2 for a quick look")
    chosen = options.parse_args()
    real = chosen.device.startswith("nvidia:")
    meter = measure(chosen.device)
    follower = meter.followers[0]
    load: Load = TorchLoad() if real else SimulatedLoad(follower.device, follower.lock)
    gpu_meter = measure(chosen.device, gpu=True) if real else None
    zeus = Zeus()
    if not real:
        zeus.monitor = None
    rng = random.Random(0)
    identity = follower.device.identity
    document: dict[str, Any] = {
        "schema": "wastenot.bench-window/1",
        "device": {name: getattr(identity, name) for name in ("model", "unique_id", "driver", "origin")},
        "python": sys.version.split()[0],
    }
    print(f"{identity.model} {identity.unique_id}, {identity.driver}, {identity.origin}")
    keep = meter.begin()  # the sensors are followed throughout
    time.sleep(1.0)
    document["cost_us"] = all_costs(meter, gpu_meter, zeus, load, real)
    if isinstance(load, TorchLoad):
        document["slowdown"] = slowdown(meter, load)
    headings = "".join(f" {name:>8s}" for name in ("median", "largest", "mean", "stated", "refer."))
    print(f"{'windows':34s}    n{headings}    held", flush=True)

    def many(name: str, how: Callable[[Meter, Zeus, float, random.Random], Compared], length_s: float, times: int) -> None:
        repeats = max(2, round(times * chosen.share))
        document["windows"][name] = summary(name, [how(meter, zeus, length_s, rng) for _ in range(repeats)])

    document["windows"] = {}
    with running(load):
        time.sleep(3.0)
        many("steady, 1 s", steady, 1.0, 25)
        many("steady, 5 s", steady, 5.0, 8)
    for duty in ((0.13, 0.17), (0.6, 0.7)):
        with running(load, duty):
            time.sleep(1.0)
            many(f"on {duty[0]:g} s off {duty[1]:g} s, aligned, 1 s", aligned, 1.0, 12)
            many(f"on {duty[0]:g} s off {duty[1]:g} s, aligned, 5 s", aligned, 5.0, 4)
    many("with its load, 1 s", with_load(load), 1.0, 12)
    many("with its load, 5 s", with_load(load), 5.0, 5)
    document["sensors"] = followed(follower)
    keep.end()
    print("steps:", {name: round(value, 6) for name, value in document["sensors"].items()})
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(document, indent=1))
        print(f"{chosen.out}: written")


if __name__ == "__main__":
    main()
