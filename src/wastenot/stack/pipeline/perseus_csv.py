"""Profiles as Perseus keeps them: CSV files ``stage,instruction,frequency,time,energy``."""

from __future__ import annotations

import csv
import os

from wastenot.frontiers.algebra import choice
from wastenot.setting import Setting
from wastenot.stack.pipeline.profile import PipelineProfile


def read_perseus_csv(path: str | os.PathLike[str], *, waiting_w: float, device: str = "unknown GPU") -> PipelineProfile:
    """The profile in a file: time in s and energy in J of each instruction at each core clock in MHz."""
    ways: dict[tuple[int, str], list[tuple[float, float, Setting]]] = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            key = int(row["stage"]), row["instruction"]
            ways.setdefault(key, []).append((float(row["time"]), float(row["energy"]), Setting(float(row["frequency"]))))
    highest = {key: max(each, key=lambda way: way[2].core_mhz or 0.0)[:2] for key, each in ways.items()}
    name = os.path.splitext(os.path.basename(path))[0]
    return PipelineProfile(name, device, "measured", {key: choice(each) for key, each in ways.items()}, highest, waiting_w)
