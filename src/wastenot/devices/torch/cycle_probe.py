"""What counting cycles gives on a GPU: the clock under a light load, how well it is known, and what the driver says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from wastenot.core.errors import DeviceError, first_line
from wastenot.devices.torch.cycle_clock import CycleStamps
from wastenot.devices.torch.devices import find_torch_device

_WAKES_S = 0.25  # of load until the clocks have risen and the driver's reading of them is new
_LASTS_S = 0.35  # of load in which they are compared
_STEP_CYCLES = 2_000_000  # of a gate between stamps: a millisecond at 2 GHz
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class CycleProbe:
    """The core clock of a GPU by counting cycles, while one thread of it spins.

    Attributes:
        core_mhz: median over multiprocessors of their mean clocks.
        lowest_mhz, highest_mhz: of a multiprocessor.
        multiprocessors: number of them.
        resolution_s: of the GPU's timer.
        cost_s: time that a stamp takes in the stream.
        driver_mhz: the same clock as the driver gives it, the median of readings meanwhile; ``None`` where it gives none.
    """

    core_mhz: float
    lowest_mhz: float
    highest_mhz: float
    multiprocessors: int
    resolution_s: float
    cost_s: float
    driver_mhz: float | None

    @property
    def difference(self) -> float | None:
        """The driver's clock relative to the counted one, minus 1."""
        return None if self.driver_mhz is None else self.driver_mhz / self.core_mhz - 1.0


def probe_cycles(device: str, read_mhz: Callable[[], float | None]) -> CycleProbe:
    """Count cycles for half a second while a single thread keeps the GPU awake. It changes nothing on the GPU.

    Args:
        device: PyTorch's name of the GPU, such as ``cuda:0``.
        read_mhz: reads the driver's value of the core clock.

    Raises:
        MissingExtraError: PyTorch is missing, was built without CUDA, or cannot compile kernels.
        DeviceError: the GPU cannot be used, its timer is too coarse, or its cycles cannot be counted.
    """
    target = find_torch_device(device)
    try:
        with torch.cuda.device(target):
            return _probe(target, read_mhz)
    except RuntimeError as error:
        raise DeviceError(f"{device}: its cycles cannot be counted: {first_line(error)}") from None


def _probe(device: torch.device, read_mhz: Callable[[], float | None]) -> CycleProbe:
    stamps = CycleStamps(device)
    quality = stamps.quality
    _spin(stamps, _WAKES_S, None)
    stamps.restart()
    readings: list[float] = []
    _spin(stamps, _LASTS_S, lambda: readings.extend(mhz for mhz in [read_mhz()] if mhz is not None))
    found = stamps.read()
    clocks_mhz = found.clocks_mhz(0, stamps.recorded - 1)[0]
    clocks_mhz = clocks_mhz[np.isfinite(clocks_mhz)]
    if not len(clocks_mhz):
        raise DeviceError(f"{device}: timestamps of its cycle counters are inconsistent; is another program using the GPU?")
    return CycleProbe(
        float(np.median(clocks_mhz)),
        float(clocks_mhz.min()),
        float(clocks_mhz.max()),
        quality.multiprocessors,
        quality.resolution_s,
        quality.cost_s,
        median(readings) if readings else None,
    )


def _spin(stamps: CycleStamps, seconds: float, meanwhile: Callable[[], None] | None) -> None:
    """Keep one thread of the GPU spinning between stamps, and do something every now and then until it ends."""
    stream = torch.cuda.current_stream(stamps.device)
    stamps.record(stream)
    for _ in range(round(seconds / 1e-3)):
        torch.cuda._sleep(_STEP_CYCLES)  # type: ignore[no-untyped-call]
        stamps.record(stream)
    while not stream.query():
        if meanwhile is not None:
            meanwhile()
        time.sleep(_POLL_S)
