"""Reads runs of single kernels at natural clocks (data/h200/natural/gpt3-xl-*.npz.xz)."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from wastenot.devices.instrument import Channel, Readings, RoundTrip
from wastenot.devices.timeline import ClockStamps, Timeline
from wastenot.kernels.natural.storage import Recorded


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
