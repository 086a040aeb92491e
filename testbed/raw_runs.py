"""Raw runs of bursts on a GPU, kept in a file to be analysed on another machine.

Needs NumPy and the package, none of the package's other dependencies.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from wastenot.devices.instrument import Burst, BurstRun, Instrument, Readings, RoundTrip
from wastenot.profiles.runs import merged

SCHEMA = "wastenot.runs/1"


def write_units(path: str | Path, instrument: Instrument, burst: Burst, runs: list[BurstRun], unit_s: float = 1e-3) -> None:
    """Write runs of a burst, consecutive executions merged into units of about ``unit_s``, readings unchanged."""
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
    """Write runs of a burst; ``more`` is any further metadata."""
    metadata = {
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
    np.savez_compressed(path, about=np.array(json.dumps(metadata)), **arrays)


def read_runs(path: str | Path) -> tuple[dict[str, object], list[BurstRun]]:
    """Read the metadata and the runs."""
    with np.load(path) as file:
        metadata = json.loads(str(file["about"]))
        if metadata.get("schema") != SCHEMA:
            raise ValueError(f"{path}: schema {metadata.get('schema')}, not {SCHEMA}")
        logs: list[dict[str, Readings]] = [{} for _ in file["kernel"]]
        for name in (channel["name"] for channel in metadata["channels"]):
            bounds = np.cumsum(file[f"{name}_readings"])[:-1]
            moments, powers = (np.split(file[f"{name}_{what}"], bounds) for what in ("moment_s", "power_w"))
            for log, moment_s, power_w in zip(logs, moments, powers, strict=True):
                log[name] = Readings(moment_s, power_w)
        return metadata, [
            BurstRun(kernel, begin_s, end_s, log, tuple(RoundTrip(*map(float, trip)) for trip in trips))
            for kernel, begin_s, end_s, log, trips in zip(
                file["kernel"], file["begin_s"], file["end_s"], logs, file["round_trips_s"], strict=True
            )
        ]


def summary(runs: list[BurstRun]) -> str:
    """What the runs look like, in three lines."""
    time_us = 1e6 * np.array([run.end_s - run.begin_s for run in runs])
    indices = sorted({0, 1, 2, 4, 9, 19, 49, 99, 199, 499, 999, time_us.shape[1] - 1} & set(range(time_us.shape[1])))
    powers = np.concatenate([run.readings["total"].power_w for run in runs])
    width_us = 1e6 * np.array([trip.after_s - trip.before_s for run in runs for trip in run.round_trips])
    by_index = " ".join(f"{index + 1}:{np.median(time_us[:, index]):.1f}" for index in indices)
    return (
        f"  time us by number {by_index}; of all, 1 to 99 %: {np.percentile(time_us, 1):.1f} to "
        f"{np.percentile(time_us, 99):.1f}\n  {len(powers)} readings, {powers.min():.0f} to {powers.max():.0f} W; "
        f"round trips us {width_us.min():.1f} least, {np.median(width_us):.1f} median, {width_us.max():.1f} most"
    )
