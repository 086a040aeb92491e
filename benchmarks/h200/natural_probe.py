"""What an H200's clock does by itself, and how well it can be counted. Only reads the GPU's state.

    WASTENOT_READ_ONLY=1 python benchmarks/h200/natural_probe.py FOLDER [DEVICE]

Writes FOLDER/probe.json (what was concluded on the spot) and FOLDER/probe-NAME.npz (every group of every run).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wastenot.devices.open import open_device
from wastenot.devices.timeline import REST, Phase, Subject, Timeline
from wastenot.devices.torch.cycle_clock import CycleStamps
from wastenot.workloads.kernel import KernelSpec

N = 8192


def product(size: int = N) -> KernelSpec:
    """A product of square bf16 matrices."""
    moved = 2.0 * size * size
    return KernelSpec(
        f"gemm_{size}", "GEMM", "gemm", (1, size, size, size), 2.0 * size**3, 2 * moved, moved, "forward", None, 1,
        element_bytes=2,
    )  # fmt: skip


def elementwise(name: str, elements: int, inputs: int, flops: float = 1.0) -> KernelSpec:
    """A kernel over elements of bf16, run as the built-in operation of its name."""
    return KernelSpec(
        name, name, "elementwise", (elements,), flops * elements, 2.0 * inputs * elements, 2.0 * elements, "forward",
        None, 1,
        element_bytes=2,
    )  # fmt: skip


def saved(timeline: Timeline) -> dict[str, Any]:
    """A timeline as arrays."""
    found = {name: getattr(timeline, name) for name in ("phase", "subject", "calls", "begin_s", "end_s", "core_mhz")}
    if timeline.counted_mhz is not None:
        found["counted_mhz"] = timeline.counted_mhz
    for channel, readings in timeline.readings.items():
        found[f"{channel}_s"], found[f"{channel}_w"] = readings.moment_s, readings.power_w
    found["round_trips"] = np.array([(trip.before_s, trip.gpu_s, trip.after_s) for trip in timeline.round_trips])
    found["temperature_c"] = np.array(timeline.temperature_c or ())
    return found


class Follower:
    """Polls NVML's clock and the reasons for which it is held down."""

    def __init__(self, device: Any) -> None:
        self._nvml, self._handle = device.nvml, device.handle
        self._stop = threading.Event()
        self.seen: list[tuple[float, float, float]] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        library = self._nvml.library
        while not self._stop.is_set():
            clock = self._nvml.try_call("nvmlDeviceGetClockInfo", self._handle, library.NVML_CLOCK_SM)
            reasons = self._nvml.try_call("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
            self.seen.append((time.perf_counter(), float(clock or 0), float(reasons or 0)))
            time.sleep(0.01)


def main(folder: str, name: str = "nvidia:0") -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    device = open_device(name)
    recorder = device.timelines()
    result: dict[str, Any] = {
        "gpu": device.identity.label, "driver": device.identity.driver, "torch": torch.__version__,
        "stamps": {"cost_s": recorder.stamps.cost_s, "resolution_s": recorder.stamps.resolution_s,
                   "multiprocessors": recorder.stamps.multiprocessors},
    }  # fmt: skip
    print(result, flush=True)

    # every multiprocessor, and how finely: a spinning kernel between stamps
    cuda = torch.device("cuda", 0) if name.endswith(":0") else torch.device("cuda", int(name[-1]))
    stamps = CycleStamps(cuda, 8192)
    for cycles in (20_000, 40_000, 400_000, 4_000_000):
        stamps.restart()
        torch.cuda._sleep(20_000_000)
        for _ in range(1000 if cycles < 1e6 else 60):
            stamps.record()
            torch.cuda._sleep(cycles)
        stamps.record()
        found = stamps.read()
        clocks = found.clocks_mhz(np.arange(len(found.time_s) - 1), np.arange(1, len(found.time_s)))[
            200 if cycles < 1e6 else 30 :
        ]
        each = np.nanmedian(clocks, axis=1)
        result[f"spin_{cycles}"] = {
            "interval_us": float(np.median(np.diff(found.time_s)) * 1e6), "mhz": float(np.median(each)),
            "sd_of_intervals_mhz": float(np.std(each[-200:])),
            "sd_one_multiprocessor_mhz": float(np.nanstd(clocks[-200:, 0])),
            "multiprocessors_min_mhz": float(np.nanmin(np.nanmean(clocks, axis=0))),
            "multiprocessors_max_mhz": float(np.nanmax(np.nanmean(clocks, axis=0))),
            "missing": int(np.isnan(clocks).sum()),
        }  # fmt: skip
        print(cycles, result[f"spin_{cycles}"], flush=True)

    # cost of a stamp a millisecond in a stream of kernels
    rows = [torch.randn(1 << 27, device=cuda, dtype=torch.bfloat16) for _ in range(2)]
    square = [torch.randn(4096, 4096, device=cuda, dtype=torch.bfloat16) for _ in range(2)]
    for what, call, calls in (("add", partial(torch.add, *rows), 3), ("gemm_4096", partial(torch.mm, *square), 5)):
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(12):
            with_stamps = turn % 2 == 0
            stamps.restart()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(3_000_000)
            begin.record()
            for _ in range(150):
                for _ in range(calls):
                    call()
                if with_stamps:
                    stamps.record()
            end.record()
            end.synchronize()
            times[with_stamps].append(begin.elapsed_time(end) / 150)
        result[f"cost_{what}"] = {"with_ms": times[True], "without_ms": times[False],
                                  "ratio": float(np.median(times[True]) / np.median(times[False]) - 1)}  # fmt: skip
        print(what, result[f"cost_{what}"]["ratio"], flush=True)
    del rows, square, call
    torch.cuda.empty_cache()

    runs: dict[str, Any] = {}
    light = elementwise("gelu", 1 << 26, 1, 8.0)
    residual = next(kernel for kernel in gpt3() if kernel.name == "residual_1")
    subjects = [Subject(product()), Subject(residual), Subject(light),
                *(Subject(product(), which) for which in ("sparse", "equal rows", "zeros"))]  # fmt: skip
    with recorder.prepare(subjects) as prepared, Follower(device) as follower:
        print("call_s", prepared.call_s, prepared.how, flush=True)
        plans: dict[str, list[Phase]] = {"steady": [Phase(0, 6.0)], "light_alone": [Phase(1, 1.5), Phase(2, 1.5)]}
        for length in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            plans[f"wake_{length:g}"] = [phase for _ in range(3) for phase in (Phase(1, 0.4), Phase(0, length))] + [
                Phase(1, 0.4)
            ]
        plans["wake_gelu"] = [phase for _ in range(4) for phase in (Phase(0, 0.25), Phase(2, 0.25))]
        plans["rest"] = [phase for _ in range(4) for phase in (Phase(REST, 0.4), Phase(0, 0.15))]
        plans["rest_then_light"] = [phase for _ in range(3) for phase in (Phase(0, 0.25), Phase(REST, 0.03), Phase(1, 0.25))]
        for a, b in ((0.005, 0.005), (0.01, 0.015), (0.02, 0.018), (0.005, 0.02), (0.01, 0.04), (0.01, 0.08), (0.003, 0.03)):
            plans[f"duty_{a:g}_{b:g}"] = [phase for _ in range(round(1.5 / (a + b))) for phase in (Phase(0, a), Phase(1, b))]
        for index, which in ((3, "sparse"), (4, "equal rows"), (5, "zeros")):
            plans[f"data_{which.replace(' ', '_')}"] = [Phase(index, 1.5)]
        for key, phases in plans.items():
            mark = len(follower.seen)
            began = time.perf_counter()
            timeline = prepared.run(phases)
            arrays = saved(timeline)
            arrays["nvml"] = np.array(follower.seen[mark:])
            np.savez_compressed(out / f"probe-{key}.npz", **arrays)
            seen = arrays["nvml"]
            half = timeline.begin_s > 0.5 * (timeline.begin_s[0] + timeline.end_s[-1])
            weights = (timeline.end_s - timeline.begin_s)[half]
            runs[key] = {
                "wall_s": time.perf_counter() - began, "groups": len(timeline.calls),
                "mhz": np.quantile(timeline.core_mhz, [0.0, 0.1, 0.5, 0.9, 1.0]).round(1).tolist(),
                "mean_second_half_mhz": float(np.average(timeline.core_mhz[half], weights=weights)),
                "nvml_mhz": float(seen[len(seen) // 2 : -12, 1].mean()) if len(seen) > 40 else None,
                "reasons": {hex(int(bit)): int((seen[:, 2] == bit).sum()) for bit in np.unique(seen[:, 2])},
                "watts": np.quantile(timeline.readings["total"].power_w, [0.1, 0.5, 0.9]).round(1).tolist(),
                "temperature_c": timeline.temperature_c,
            }  # fmt: skip
            print(key, runs[key], flush=True)
    result["runs"] = runs
    (out / "probe.json").write_text(json.dumps(result, indent=1))


def gpt3() -> tuple[KernelSpec, ...]:
    """The kernels of GPT-3 XL training."""
    from wastenot.workloads.build import build_workload

    return build_workload("gpt3-xl").kernels


if __name__ == "__main__":
    main(*sys.argv[1:])
