"""``nvidia:0``: an NVIDIA GPU behind the protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wastenot.core.errors import BadInputError
from wastenot.devices.common.control import clocks_of
from wastenot.devices.common.gpu_driver import NoSuchGpuError
from wastenot.devices.common.journal import Restore
from wastenot.devices.common.wall_time import WallTime
from wastenot.devices.instrument import Instrument
from wastenot.devices.nvidia.clocks import NvidiaSetter
from wastenot.devices.nvidia.nvml import Nvml, text_of
from wastenot.devices.nvidia.sensors import NvidiaSensors
from wastenot.devices.protocol import Identity, Launcher, TimeSource
from wastenot.devices.tracer import Tracer

if TYPE_CHECKING:
    from wastenot.devices.nvidia.instrument import NvidiaInstrument
    from wastenot.devices.nvidia.timeline import NvidiaTimelines
    from wastenot.devices.torch.bursts import TorchBursts
    from wastenot.devices.torch.timeline import TorchTimelines


def _of_torch(module: str, name: str) -> Callable[..., Any]:
    """What makes a part of :mod:`wastenot.devices.torch` for the GPU with a UUID; imported when it does."""

    def make(uuid: str, *more: object) -> Any:
        from wastenot.devices.torch.devices import torch_device

        return getattr(import_module(f"wastenot.devices.torch.{module}"), name)(torch_device(uuid), *more)

    return make


_LAUNCHER, _BURSTS = _of_torch("launcher", "TorchLauncher"), _of_torch("bursts", "TorchBursts")
_PHASES, _TRACER = _of_torch("timeline", "TorchTimelines"), _of_torch("tracer", "TorchTracer")


class NvidiaDevice:
    """One GPU.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.
        name: the user's name for it.
        restore: ranges of locked clocks to restore.
        time_source: the GPU's time; wall-clock time by default.
        launcher: makes the launcher of tasks for the GPU with a UUID.
        bursts: makes the runner of bursts, likewise.
        phases: makes what runs kernels and counts cycles, likewise.
        tracer: makes what shows when a switch takes effect, likewise; it is given the clock of the device's time.
    """

    def __init__(
        self,
        nvml: Nvml,
        handle: Any,
        name: str,
        *,
        restore: Restore | None = None,
        time_source: TimeSource | None = None,
        launcher: Callable[[str], Launcher] = _LAUNCHER,
        bursts: Callable[[str], TorchBursts] = _BURSTS,
        phases: Callable[[str], TorchTimelines] = _PHASES,
        tracer: Callable[[str, Callable[[], float]], Tracer] = _TRACER,
    ) -> None:
        self.nvml, self.handle = nvml, handle
        uuid = text_of(nvml.call("nvmlDeviceGetUUID", handle))
        model = text_of(nvml.call("nvmlDeviceGetName", handle))
        driver = text_of(nvml.call("nvmlSystemGetDriverVersion"))
        self.identity = Identity(name, model, uuid, f"driver {driver}", "measured", unique_name=False)
        self.time: TimeSource = time_source or WallTime()
        self.sensors = NvidiaSensors(nvml, handle)
        self.clocks = clocks_of(NvidiaSetter(nvml, handle, uuid), restore)
        self._launcher, self._bursts, self._phases, self._make_tracer = launcher, bursts, phases, tracer

    @cached_property
    def launcher(self) -> Launcher:
        """Runs tasks on it."""
        return self._launcher(self.identity.unique_id)

    def instrument(self) -> Instrument:
        """The instrument that profiles power inside kernels.

        Raises:
            BadInputError: the GPU has no power sensor.
            MissingExtraError: PyTorch is not installed, or was built without CUDA.
            DeviceError: PyTorch does not see the GPU.
        """
        return self._instrument

    @cached_property
    def _instrument(self) -> NvidiaInstrument:
        from wastenot.devices.nvidia.instrument import NvidiaInstrument

        return NvidiaInstrument(self, self._bursts(self.identity.unique_id))

    def timelines(self) -> NvidiaTimelines:
        """What watches kernels at the clocks that the GPU goes through by itself.

        Raises:
            BadInputError: the GPU has no power sensor.
            MissingExtraError: PyTorch is not installed, was built without CUDA, or cannot compile kernels.
            DeviceError: PyTorch does not see the GPU, or its cycles cannot be counted.
        """
        return self._timelines

    @cached_property
    def _timelines(self) -> NvidiaTimelines:
        from wastenot.devices.nvidia.timeline import NvidiaTimelines

        return NvidiaTimelines(self, self._phases(self.identity.unique_id))

    def tracer(self) -> Tracer:
        """What shows when a switch takes effect.

        Raises:
            MissingExtraError: PyTorch is not installed, was built without CUDA, or cannot compile kernels.
            DeviceError: PyTorch does not see the GPU, or its cycles cannot be counted.
        """
        return self._tracer

    @cached_property
    def _tracer(self) -> Tracer:
        return self._make_tracer(self.identity.unique_id, self.time.now_s)


def handle_of(nvml: Nvml, name: str) -> Any:
    """NVML's handle of a GPU, by the GPU's name.

    Raises:
        BadInputError: there is no such GPU, or it is partitioned into MIG instances.
    """
    which = name.partition(":")[2]
    by_index = which.isascii() and which.isdigit()
    try:
        if by_index:
            handle = nvml.call("nvmlDeviceGetHandleByIndex", int(which))
        else:
            handle = nvml.call("nvmlDeviceGetHandleByUUID", which)
    except NoSuchGpuError as error:
        names = ", ".join(f"nvidia:{index}" for index in range(int(nvml.call("nvmlDeviceGetCount")))) or "none"
        raise BadInputError(f"device '{name}': there is no such GPU; this machine has {names}") from error
    mode = nvml.try_call("nvmlDeviceGetMigMode", handle)
    if mode is not None and mode[0] == nvml.library.NVML_DEVICE_MIG_ENABLE:
        raise BadInputError(
            f"{name}: is partitioned into MIG instances, whose power NVIDIA does not report separately; use a whole GPU"
        )
    return handle
