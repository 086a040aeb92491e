"""A real GPU behind the protocol: its driver gives sensors and clocks, and PyTorch runs what it is told to run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wastenot.devices.common.control import clocks_of
from wastenot.devices.common.wall_time import WallTime
from wastenot.devices.instrument import Channel, Instrument
from wastenot.devices.protocol import Identity, Launcher, Sensors, TimeSource
from wastenot.devices.tracer import Tracer

if TYPE_CHECKING:
    from wastenot.devices.common.gpu_driver import ClockSetter
    from wastenot.devices.common.journal import Restore
    from wastenot.devices.common.power_poller import PowerPoller
    from wastenot.devices.torch.bursts import TorchBursts
    from wastenot.devices.torch.gpu_instrument import GpuInstrument
    from wastenot.devices.torch.gpu_timelines import GpuTimelines
    from wastenot.devices.torch.timeline import TorchTimelines

PowerLog = tuple[tuple[Channel, ...], "PowerPoller"]
"""The power readings of a GPU, total power first, as far as their sensors are known; and what logs them."""


def _of_torch(module: str, name: str) -> Callable[..., Any]:
    """What makes a part of :mod:`wastenot.devices.torch` for the GPU with a unique ID; imported when it does."""

    def make(unique_id: str, *more: object) -> Any:
        from wastenot.devices.torch.devices import torch_device

        return getattr(import_module(f"wastenot.devices.torch.{module}"), name)(torch_device(unique_id), *more)

    return make


_LAUNCHER, _BURSTS = _of_torch("launcher", "TorchLauncher"), _of_torch("bursts", "TorchBursts")
_PHASES, _TRACER = _of_torch("timeline", "TorchTimelines"), _of_torch("tracer", "TorchTracer")


class TorchGpu:
    """One GPU.

    Args:
        identity: of the GPU.
        sensors: of the GPU.
        setter: of its clocks.
        power_log: makes the log of its power, given its sensors and the clock of its time; raises BadInputError where it
            has no power sensor.
        restore: ranges of locked clocks to restore.
        time_source: the GPU's time; wall-clock time by default.
        launcher: makes the launcher of tasks for the GPU with a unique ID.
        bursts: makes the runner of bursts, likewise.
        phases: makes what runs kernels and counts cycles, likewise.
        tracer: makes what shows when a switch takes effect, likewise; it is given the clock of the device's time.
    """

    def __init__(
        self,
        identity: Identity,
        sensors: Sensors,
        setter: ClockSetter,
        power_log: Callable[[Callable[[], float]], PowerLog],
        *,
        restore: Restore | None = None,
        time_source: TimeSource | None = None,
        launcher: Callable[[str], Launcher] = _LAUNCHER,
        bursts: Callable[[str], TorchBursts] = _BURSTS,
        phases: Callable[[str], TorchTimelines] = _PHASES,
        tracer: Callable[[str, Callable[[], float]], Tracer] = _TRACER,
    ) -> None:
        self.identity, self.sensors = identity, sensors
        self.time: TimeSource = time_source or WallTime()
        self.clocks = clocks_of(setter, restore)
        self._power_log = power_log
        self._launcher, self._bursts, self._phases, self._make_tracer = launcher, bursts, phases, tracer

    @cached_property
    def launcher(self) -> Launcher:
        """Runs tasks on it."""
        return self._launcher(self.identity.unique_id)

    def power_log(self) -> PowerLog:
        """Its power readings, and what logs them.

        Raises:
            BadInputError: the GPU has no power sensor.
        """
        return self._power_log(self.time.now_s)

    def instrument(self) -> Instrument:
        """The instrument that profiles power inside kernels."""
        return self._instrument

    @cached_property
    def _instrument(self) -> GpuInstrument:
        from wastenot.devices.torch.gpu_instrument import GpuInstrument

        return GpuInstrument(self, self._bursts(self.identity.unique_id))

    def timelines(self) -> GpuTimelines:
        """What watches kernels at the clocks that the GPU goes through by itself."""
        return self._timelines

    @cached_property
    def _timelines(self) -> GpuTimelines:
        from wastenot.devices.torch.gpu_timelines import GpuTimelines

        return GpuTimelines(self, self._phases(self.identity.unique_id))

    def tracer(self) -> Tracer:
        """What shows when a switch takes effect."""
        return self._tracer

    @cached_property
    def _tracer(self) -> Tracer:
        return self._make_tracer(self.identity.unique_id, self.time.now_s)
