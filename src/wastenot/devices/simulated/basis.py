"""Which simulated GPUs there are, and what their constants rest on, in a few words, to be shown beside their numbers.

Reads nothing but those lines of a preset, and imports nothing heavy: it is asked for wherever numbers are printed.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any


def preset_names() -> list[str]:
    """Presets that come with wastenot."""
    folder = resources.files(__package__) / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def basis_of(device: str) -> str:
    """The basis that a simulated device's preset states; empty for other devices, and where nothing is stated.

    Args:
        device: its name, such as ``sim:rtx-a4000`` or ``sim:my-gpu.toml``.
    """
    basis = _preset(device).get("basis")
    return basis if isinstance(basis, str) else ""


def assumed_below_mhz(device: str) -> float | None:
    """The core clock below which a simulated device is assumed, as its preset states; ``None`` for other devices."""
    clocks = _preset(device).get("clocks")
    limit = clocks.get("assumed_below_mhz") if isinstance(clocks, dict) else None
    return float(limit) if isinstance(limit, int | float) else None


def _preset(device: str) -> dict[str, Any]:
    """The document of a simulated device's preset; empty for other devices."""
    kind, _, name = device.partition(":")
    if kind != "sim" or not name:
        return {}
    file = Path(name) if name.endswith(".toml") else resources.files(__package__) / "presets" / f"{name}.toml"
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # what was simulated may have been on another machine
