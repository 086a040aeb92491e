"""Whether this process may set clocks, as far as is known without trying: its user, capabilities and container."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wastenot.devices.nvidia.nvml import forbidden

_SYS_ADMIN = 21  # bit of CAP_SYS_ADMIN


@dataclass(frozen=True, slots=True)
class Rights:
    """What this process is and may do.

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
    found = next((line.split()[1] for line in lines if line.startswith("CapEff:")), None)
    return None if found is None else bool(int(found, 16) >> _SYS_ADMIN & 1)


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
