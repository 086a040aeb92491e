"""Profiles of small pipelines, made up by a formula: what tests of plans and of the verb read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CLOCKS_MHZ = (1410, 1290, 1170, 1050, 930, 810)
WAITING_W = 70.0


def profile_text(stages: int = 4, clocks_mhz: Sequence[int] = CLOCKS_MHZ) -> str:
    """Stages of which each takes a little longer than the one before, a backward twice a forward; as Perseus' CSV."""
    lines = ["stage,instruction,frequency,time,energy"]
    for stage in range(stages):
        for name, work_s in (("forward", 0.040), ("backward", 0.080)):
            for clock in clocks_mhz:
                ratio = 1410.0 / clock
                time_s = work_s * (1.0 + 0.06 * stage) * (0.35 + 0.65 * ratio)
                power_w = 90.0 + 300.0 / ratio**2.4
                lines.append(f"{stage},{name},{clock},{time_s!r},{time_s * power_w!r}")
    return "\n".join(lines) + "\n"


def write_profile(path: Path, stages: int = 4) -> Path:
    """The same in a file."""
    path.write_text(profile_text(stages))
    return path
