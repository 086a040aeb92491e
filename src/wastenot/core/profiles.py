"""Workload power profiles by name and number: settings, plans and people have names, measurements and drivers numbers."""

from __future__ import annotations

import re

# NVIDIA's, in the order of nvml.h (nvmlPowerProfileType_t).
_NAMES = (
    "max-p", "max-q", "compute", "memory-bound", "network", "balanced", "llm-inference", "llm-training", "rbm", "dcpcie",
    "hmma-sparse", "hmma-dense", "sync-balanced", "hpc", "mig", "max-q-1", "network-bound", "high-throughput-inference",
    "medium-throughput-inference", "low-latency-inference", "training", "inference", "max-q-2", "max-q-3",
    "low-priority-background", "max",
)  # fmt: skip
_UNNAMED = re.compile(r"profile-([0-9]{1,3})")


def profile_name(number: int) -> str:
    """Name of a profile; ``profile-37`` where it has none."""
    return _NAMES[number] if number < len(_NAMES) else f"profile-{number}"


def profile_number(name: str) -> int | None:
    """Number of a profile; ``None`` for what is not the name of one."""
    if name in _NAMES:
        return _NAMES.index(name)
    unnamed = _UNNAMED.fullmatch(name)
    return None if unnamed is None or int(unnamed[1]) < len(_NAMES) else int(unnamed[1])
