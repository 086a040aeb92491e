"""Where benchmarks find measurements, and how they leave what pages show."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.measured_sweeps import DATA as BESIDE

__all__ = ["BESIDE", "DATA", "ROOT", "keep"]

ROOT = Path(__file__).parents[1]
DATA = ROOT / "data"
"""What was measured or found; recipes in ``docs/make`` make tables and pictures of it. Others' data are in ``BESIDE``."""


def keep(path: Path, found: object) -> None:
    """Write what was found as JSON."""
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
