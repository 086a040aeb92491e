"""Raw runs of bursts on a GPU, kept in a file to be analysed on another machine.

Needs NumPy and the package, none of the package's other dependencies.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from wastenot.devices.instrument import Burst, BurstRun, Instrument, Readings, RoundTrip

SCHEMA = "wastenot.runs/1"


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
