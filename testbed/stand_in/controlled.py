"""The stand-in's first GPU as a program sees it that may change its clocks."""

from __future__ import annotations

from typing import Any

from testbed.stand_in.fixtures import StandIn
from wastenot.devices.nvidia.device import NvidiaDevice, open_nvidia


def controlled(stand_in: StandIn, **options: Any) -> NvidiaDevice:
    """The GPU, in the stand-in's time."""
    return open_nvidia(
        "nvidia:0", allow_clock_control=True, time_source=stand_in.time(), launcher=lambda _: stand_in.launcher(), **options
    )


def locks(stand_in: StandIn, index: int = 0) -> tuple[tuple[int, int] | None, tuple[int, int] | None, float]:
    """What its clocks are locked to, core and memory, and its power limit."""
    state = stand_in.control.state(index)
    return state.locked_core_mhz, state.locked_memory_mhz, state.power_limit_w
