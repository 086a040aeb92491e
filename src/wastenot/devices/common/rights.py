"""What this process is and may do, as far as is known without trying."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

READ_ONLY = "WASTENOT_READ_ONLY"
_SYS_ADMIN = 21  # bit of CAP_SYS_ADMIN


def forbidden() -> str | None:
    """Why nothing may be changed, whatever the flags; ``None`` where nothing forbids it."""
    value = os.environ.get(READ_ONLY, "")
    return None if value in ("", "0") else f"{READ_ONLY}={value} is set"


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
    def needed(self) -> str:
        """What setting clocks takes here, as far as this process may lack it."""
        if self.container is None:
            return "root (sudo)"
        missing = "CAP_SYS_ADMIN" if self.root else "root and CAP_SYS_ADMIN"
        return f"{missing} in this container (docker run --cap-add=SYS_ADMIN)"

    @property
    def to_ask_for(self) -> str | None:
        """What an administrator has to grant; ``None`` where nothing is missing."""
        if self.likely:
            return None
        where = "" if self.container is None else " on the host"
        measuring = "measuring at the default clocks needs no permissions"
        return f"{self.needed}, or someone with root{where} to run the sweep for you; {measuring}"


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
