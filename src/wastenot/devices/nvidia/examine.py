"""What an NVIDIA GPU is and supports, and whether this process may set its clocks: what ``wastenot doctor`` reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wastenot.devices.nvidia.nvml import Nvml, forbidden, text_of
from wastenot.devices.nvidia.published import ARCHITECTURES, power_sensor

_NO_MEMORY_LOCK = ("Hopper",)
_SYS_ADMIN = 21  # bit of CAP_SYS_ADMIN


@dataclass(frozen=True, slots=True)
class Examined:
    """One GPU.

    Attributes:
        name: its name in wastenot.
        architecture: name of the architecture; ``None`` where unknown.
        mig: whether it is partitioned into MIG instances; ``None`` where it has no such mode.
        persistence: whether the driver stays loaded while nothing uses it.
        power_limit_w: power limit in force.
        power_limits_w: lowest and highest power limit.
        clocks: by memory clock in MHz, the lowest and highest core clock in MHz and how many there are.
        memory_clock_settable: ``None`` where that is only known by trying.
        published_window_s: window that its power reading averages over, as published for its architecture.
        torch_index: its index in PyTorch; ``None`` where PyTorch does not see it.
    """

    name: str
    model: str
    uuid: str
    architecture: str | None
    mig: bool | None
    persistence: bool | None
    memory_bytes: int | None
    power_limit_w: float | None
    power_limits_w: tuple[float, float] | None
    clocks: Mapping[float, tuple[float, float, int]]
    memory_clock_settable: bool | None
    published_window_s: float | None
    torch_index: int | None


def examine(nvml: Nvml, name: str, handle: Any, torch_indices: Mapping[str, int]) -> Examined:
    """Examine one GPU without changing anything.

    Args:
        nvml: access to NVML.
        name: the GPU's name in wastenot.
        handle: NVML's handle of the GPU.
        torch_indices: by UUID, the index of each GPU that PyTorch sees.
    """
    ask = nvml.try_call
    uuid, model = text_of(nvml.call("nvmlDeviceGetUUID", handle)), text_of(nvml.call("nvmlDeviceGetName", handle))
    architecture = ARCHITECTURES.get(ask("nvmlDeviceGetArchitecture", handle) or -1)
    mig, memory = ask("nvmlDeviceGetMigMode", handle), ask("nvmlDeviceGetMemoryInfo", handle)
    limit = ask("nvmlDeviceGetPowerManagementLimit", handle)
    limits = ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    persistence = ask("nvmlDeviceGetPersistenceMode", handle)
    clocks = {}
    for state in ask("nvmlDeviceGetSupportedMemoryClocks", handle) or ():
        cores = ask("nvmlDeviceGetSupportedGraphicsClocks", handle, state)
        if cores:
            clocks[float(state)] = (float(min(cores)), float(max(cores)), len(cores))
    sensor = power_sensor(architecture, model)
    settable = False if len(clocks) < 2 else (None if architecture in _NO_MEMORY_LOCK or architecture is None else True)
    return Examined(
        name=name,
        model=model,
        uuid=uuid,
        architecture=architecture,
        mig=None if mig is None else mig[0] == nvml.library.NVML_DEVICE_MIG_ENABLE,
        persistence=None if persistence is None else bool(persistence),
        memory_bytes=None if memory is None else int(memory.total),
        power_limit_w=None if limit is None else 1e-3 * limit,
        power_limits_w=None if limits is None else (1e-3 * limits[0], 1e-3 * limits[1]),
        clocks=clocks,
        memory_clock_settable=settable,
        published_window_s=None if sensor is None else sensor.window_s,
        torch_index=torch_indices.get(uuid.removeprefix("GPU-")),
    )


@dataclass(frozen=True, slots=True)
class Rights:
    """What this process is and may do, as far as is known without trying.

    Attributes:
        root: whether it runs as root.
        sys_admin: whether it has CAP_SYS_ADMIN; ``None`` where the system does not say.
        container: kind of container it runs in; ``None`` for none or an unknown one.
        forbidden: why wastenot changes no clocks, whatever the flags; ``None`` where nothing forbids it.
    """

    root: bool
    sys_admin: bool | None
    container: str | None
    forbidden: str | None

    @property
    def likely(self) -> bool:
        """Whether setting clocks would probably succeed; inferred, not tried."""
        return self.root and self.sys_admin is not False

    @property
    def to_ask_for(self) -> str | None:
        """What an administrator has to grant; ``None`` where nothing is missing."""
        if self.likely:
            return None
        if self.container is not None:
            missing = "CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN)" if self.root else "root and CAP_SYS_ADMIN"
            return f"{missing} in this container; or somebody with root on the host to sweep for you"
        return "root (sudo), or somebody with root to sweep for you; measuring at the default clocks needs no permissions"


def rights_here() -> Rights:
    """The rights of this process."""
    return Rights(os.geteuid() == 0, _sys_admin(), _container(), forbidden())


def _sys_admin() -> bool | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), None)
    return None if effective is None else bool(int(effective, 16) >> _SYS_ADMIN & 1)


def _container() -> str | None:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    for file, name in (("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")):
        if Path(file).exists():
            return name
    try:
        groups = Path("/proc/1/cgroup").read_text()
    except OSError:
        return None
    boxes = (("docker", "Docker"), ("kubepods", "Kubernetes"), ("lxc", "LXC"))
    return next((name for word, name in boxes if word in groups), None)
