"""Reads and packs what natural_gpt3.py recorded.

python benchmarks/h200/natural_runs.py RAW.npz PACKED.npz.xz
"""

from __future__ import annotations

import io
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np

from wastenot.devices.instrument import Channel, Readings, RoundTrip
from wastenot.devices.timeline import ClockStamps, Timeline
from wastenot.kernels.natural.storage import Recorded

CLOCKS = ("core_mhz", "counted_mhz")


def pack(raw: str, packed: str) -> None:
    """Store runs in few bytes: times in nanoseconds as differences, clocks in tenths of a megahertz."""
    data = dict(np.load(raw))
    notes = json.loads(str(data["notes"]))
    small: dict[str, Any] = {"notes": data["notes"]}
    for number in range(len(notes["runs"])):
        begin, end = data[f"{number} begin_s"], data[f"{number} end_s"]
        first = begin[0]
        small[f"{number} origin_s"] = first
        small[f"{number} begin_ns"] = np.diff(np.round(1e9 * (begin - first)).astype(np.int64), prepend=0).astype(np.uint32)
        small[f"{number} duration_ns"] = np.round(1e9 * (end - begin)).astype(np.uint32)
        for name in CLOCKS:
            small[f"{number} {name}"] = np.round(10.0 * data[f"{number} {name}"]).astype(np.uint16)
        small[f"{number} phase"] = data[f"{number} phase"].astype(np.uint8)
        small[f"{number} subject"] = data[f"{number} subject"].astype(np.uint8)
        small[f"{number} calls"] = data[f"{number} calls"].astype(np.uint32)
        for name in ("total_s", "memory_s", "round_trips", "temperature_c"):
            small[f"{number} {name}"] = data[f"{number} {name}"]
        for name in ("total_w", "memory_w"):
            small[f"{number} {name}"] = data[f"{number} {name}"].astype(np.float32)
    memory = io.BytesIO()
    np.savez(memory, **small)
    Path(packed).write_bytes(lzma.compress(memory.getvalue(), preset=9))


def runs(packed: str | Path) -> tuple[dict[str, Any], list[Recorded]]:
    """The notes of a file and its runs."""
    with lzma.open(packed) as file:
        data = np.load(io.BytesIO(file.read()))
    notes = json.loads(str(data["notes"]))
    channels = tuple(Channel(**channel) for channel in notes["channels"])
    stamps = ClockStamps(**notes["stamps"])
    found = []
    for number, run in enumerate(notes["runs"]):
        part = {name.partition(" ")[2]: data[name] for name in data.files if name.startswith(f"{number} ")}
        begin = float(part["origin_s"]) + 1e-9 * np.cumsum(part["begin_ns"].astype(np.int64))
        celsius = part["temperature_c"]
        timeline = Timeline(
            phase=part["phase"].astype(np.intp),
            subject=part["subject"].astype(np.intp),
            calls=part["calls"].astype(np.intp),
            begin_s=begin,
            end_s=begin + 1e-9 * part["duration_ns"].astype(float),
            core_mhz=0.1 * part["core_mhz"].astype(float),
            readings={name: Readings(part[f"{name}_s"], part[f"{name}_w"].astype(float)) for name in ("total", "memory")},
            round_trips=tuple(RoundTrip(*trip) for trip in part["round_trips"].tolist()),
            temperature_c=(float(celsius[0]), float(celsius[1])) if len(celsius) else None,
            shared=bool(run["shared"]),
            counted_mhz=0.1 * part["counted_mhz"].astype(float),
        )
        subjects = tuple((name, what) for name, what in run["subjects"])
        found.append(Recorded(timeline, subjects, tuple(run["call_s"]), channels, stamps, run["how"]))
    return notes, found


if __name__ == "__main__":
    pack(*sys.argv[1:])
