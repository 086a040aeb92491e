"""Raw runs of bursts on a real GPU, kept as a file to be analysed on another machine.

    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python benchmarks/h200/fingrav_raw.py gemm.npz gemm:4096x50 --runs 20 --rest 0.3
    PYTHONPATH=src:. WASTENOT_READ_ONLY=1 python benchmarks/h200/fingrav_raw.py both.npz gemv:4096x40 gemm:4096x10

Only reads the GPU's state. Needs PyTorch, NumPy and nvidia-ml-py, none of the package's other dependencies.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from wastenot.devices.instrument import Burst, BurstRun, Instrument, Readings, RoundTrip, instrument_of
from wastenot.devices.open import open_device
from wastenot.profiling.units import merged
from wastenot.workloads.primitives import primitive

SCHEMA = "wastenot.runs/1"


def write_units(path: str | Path, instrument: Instrument, burst: Burst, runs: list[BurstRun], unit_s: float = 1e-3) -> None:
    """Keep runs of a burst with executions in a row as units of about so long, readings as they are."""
    kernel = runs[0].kernel
    group = []
    for which in np.unique(kernel):
        begin_s = runs[0].begin_s[kernel == which]
        each_s = float(np.median(np.diff(begin_s))) if len(begin_s) > 1 else unit_s
        group.append(max(round(unit_s / each_s), 1))
    for which, each in zip(np.unique(kernel).tolist(), group, strict=True):
        runs = [merged(run, which, each) for run in runs]
    write_runs(path, instrument, burst, runs, executions_in_unit=group)


def write_runs(path: str | Path, instrument: Instrument, burst: Burst, runs: list[BurstRun], **more: object) -> None:
    """Keep runs of a burst; ``more`` is whatever else is worth knowing of them."""
    about = {
        "schema": SCHEMA,
        "device": instrument.identity.label,
        "driver": instrument.identity.driver,
        "executions_by": instrument.executions_by,
        "readings_by": instrument.readings_by,
        "resolution_s": instrument.resolution_s,
        "channels": [{name: getattr(channel, name) for name in type(channel).__slots__} for channel in instrument.channels],
        "burst": [[kernel.name, times] for kernel, times in burst.steps],
        **more,
    }
    arrays = {
        "kernel": np.array([run.kernel for run in runs], dtype=np.int8),
        "begin_s": np.array([run.begin_s for run in runs]),
        "end_s": np.array([run.end_s for run in runs]),
        "round_trips_s": np.array([[(trip.before_s, trip.gpu_s, trip.after_s) for trip in run.round_trips] for run in runs]),
    }
    for channel in instrument.channels:
        logs = [run.readings[channel.name] for run in runs]
        arrays[f"{channel.name}_readings"] = np.array([len(log.moment_s) for log in logs])
        arrays[f"{channel.name}_moment_s"] = np.concatenate([log.moment_s for log in logs])
        arrays[f"{channel.name}_power_w"] = np.concatenate([log.power_w for log in logs])
    np.savez_compressed(path, about=np.array(json.dumps(about)), **arrays)


def read_runs(path: str | Path) -> tuple[dict[str, object], list[BurstRun]]:
    """What is known of the runs, and the runs."""
    with np.load(path) as file:
        about = json.loads(str(file["about"]))
        if about.get("schema") != SCHEMA:
            raise ValueError(f"{path}: schema {about.get('schema')}, not {SCHEMA}")
        logs: list[dict[str, Readings]] = [{} for _ in file["kernel"]]
        for name in (channel["name"] for channel in about["channels"]):
            bounds = np.cumsum(file[f"{name}_readings"])[:-1]
            moments, powers = (np.split(file[f"{name}_{what}"], bounds) for what in ("moment_s", "power_w"))
            for log, moment_s, power_w in zip(logs, moments, powers, strict=True):
                log[name] = Readings(moment_s, power_w)
        return about, [
            BurstRun(kernel, begin_s, end_s, log, tuple(RoundTrip(*map(float, trip)) for trip in trips))
            for kernel, begin_s, end_s, log, trips in zip(
                file["kernel"], file["begin_s"], file["end_s"], logs, file["round_trips_s"], strict=True
            )
        ]


def summary(runs: list[BurstRun]) -> str:
    """Lines on what runs look like."""
    time_us = 1e6 * np.array([run.end_s - run.begin_s for run in runs])
    places = sorted({0, 1, 2, 4, 9, 19, 49, 99, 199, 499, 999, time_us.shape[1] - 1} & set(range(time_us.shape[1])))
    powers = np.concatenate([run.readings["total"].power_w for run in runs])
    width_us = 1e6 * np.array([trip.after_s - trip.before_s for run in runs for trip in run.round_trips])
    by_place = " ".join(f"{place + 1}:{np.median(time_us[:, place]):.1f}" for place in places)
    return (
        f"  time us by number {by_place}; of all, 1 to 99 %: {np.percentile(time_us, 1):.1f} to "
        f"{np.percentile(time_us, 99):.1f}\n  {len(powers)} readings, {powers.min():.0f} to {powers.max():.0f} W; "
        f"round trips us {width_us.min():.1f} least, {np.median(width_us):.1f} median, {width_us.max():.1f} most"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("kernels", nargs="+", help="in order, such as gemv:4096x40 gemm:4096x10")
    parser.add_argument("--device", default="nvidia:0")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rest", type=float, default=0.3, help="seconds before each run, and up to a tenth more at random")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, if runs are left")
    options = parser.parse_args()
    device = open_device(options.device)
    instrument = instrument_of(device)
    burst = Burst(tuple(primitive(kernel) for kernel in options.kernels))
    rng = np.random.default_rng(0)
    runs: list[BurstRun] = []
    began = time.monotonic()
    temperature_c = [device.sensors.temperature_c()]
    with instrument.prepare(burst) as bench:
        print(f"{' '.join(options.kernels)}: ready after {time.monotonic() - began:.2f} s", flush=True)
        began = time.monotonic()
        while len(runs) < options.runs and time.monotonic() - began < options.seconds:
            # The sensor's period is not to be met at the same phase in every run.
            runs.append(bench.run(options.rest + rng.uniform(0.0, 0.1)))
    temperature_c.append(device.sensors.temperature_c())
    write_runs(options.out, instrument, burst, runs, rest_s=options.rest, temperature_c=temperature_c)
    print(f"  {len(runs)} runs in {time.monotonic() - began:.1f} s, {temperature_c[0]} to {temperature_c[-1]} C")
    print(summary(runs), flush=True)


if __name__ == "__main__":
    main()
