"""The stand-in's first GPU as a program sees it that may change its clocks."""

from __future__ import annotations

from typing import Any

from testbed.stand_in.fixtures import StandIn
from wastenot.devices.open import open_gpu
from wastenot.devices.torch.gpu import TorchGpu

PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
signal.signal(signal.SIGINT, signal.default_int_handler)  # so it is in the background of a shell
from wastenot.devices.open import open_gpu
from wastenot.core.setting import Setting
device = open_gpu("nvidia:0", allow_clock_control=True)
device.clocks.request(Setting(1500.0, 2201.0, 500.0))
print("changed", flush=True)
{end}
"""
"""Changes the clocks of the first GPU, says so, and does what ``end`` says."""


def controlled(stand_in: StandIn, **options: Any) -> TorchGpu:
    """The GPU, in the stand-in's time."""
    return open_gpu(
        "nvidia:0", allow_clock_control=True, time_source=stand_in.time(), launcher=lambda _: stand_in.launcher(), **options
    )


def locks(stand_in: StandIn, index: int = 0) -> tuple[tuple[int, int] | None, tuple[int, int] | None, float]:
    """What its clocks are locked to, core and memory, and its power limit."""
    state = stand_in.control.state(index)
    return state.locked_core_mhz, state.locked_memory_mhz, state.power_limit_w
