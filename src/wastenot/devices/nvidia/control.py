"""Who sets a GPU's clocks: this process where it has the rights, wastenotd where it listens, or nobody; and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from wastenot.core.errors import BadInputError, WastenotError
from wastenot.devices.nvidia.clocks import NvidiaClocks
from wastenot.devices.nvidia.daemon_clocks import DaemonClocks
from wastenot.devices.nvidia.daemon_connection import Connection
from wastenot.devices.nvidia.daemon_protocol import SOCKET_VARIABLE, socket_path
from wastenot.devices.nvidia.examine import Rights, rights_here
from wastenot.devices.nvidia.journal import Restore
from wastenot.devices.nvidia.nvml import Nvml

Way = Literal["direct", "daemon", "none"]


@dataclass(frozen=True, slots=True)
class Control:
    """The way to set clocks.

    Attributes:
        way: ``direct``: this process; ``daemon``: wastenotd; ``none``.
        missing: what would be needed where there is none, or what keeps this process from the daemon.
        allowed: UUIDs of the GPUs that the daemon's policy allows.
    """

    way: Way
    missing: str | None = None
    allowed: tuple[str, ...] = ()


def control_here(rights: Rights | None = None) -> Control:
    """The way to set clocks here, as far as is known without trying.

    ``WASTENOTD_SOCKET`` chooses the daemon, whatever the rights.

    Args:
        rights: of this process; by default asked for.
    """
    rights = rights or rights_here()
    if os.environ.get(SOCKET_VARIABLE):
        return Control("daemon")
    if rights.likely:
        return Control("direct")
    if os.path.lexists(socket_path()):
        return Control("daemon")
    return Control("none", f"they need {_needed(rights)}, or wastenotd, which does not listen here ({socket_path()})")


def control_that_works(rights: Rights) -> Control:
    """The way to set clocks here, after asking the daemon where it is the way.

    Args:
        rights: of this process.
    """
    control = control_here(rights)
    if control.way != "daemon":
        return control
    try:
        connection = Connection()
        connection.close()
    except WastenotError as error:
        return Control("none", str(error))
    if not connection.welcome.gpus:
        return Control("none", f"the policy of wastenotd allows this user (ID {connection.welcome.user}) no GPU")
    return Control("daemon", None, tuple(connection.welcome.gpus))


def _needed(rights: Rights) -> str:
    if rights.container is None:
        return "root (sudo)"
    missing = "CAP_SYS_ADMIN" if rights.root else "root and CAP_SYS_ADMIN"
    return f"{missing} in this container (docker run --cap-add=SYS_ADMIN)"


def clocks_of(nvml: Nvml, handle: Any, uuid: str, restore: Restore | None = None) -> NvidiaClocks | DaemonClocks:
    """Clock control of a GPU.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.
        uuid: the GPU's UUID.
        restore: ranges of locked clocks to restore.

    Raises:
        BadInputError: ranges are named, and a daemon sets the clocks.
    """
    if not nvml.allow_changes:
        return NvidiaClocks(nvml, handle, uuid, restore)
    control = control_here()
    if control.way != "daemon":
        return NvidiaClocks(nvml, handle, uuid, restore, missing=control.missing)
    if restore is not None:
        raise BadInputError(
            "`restore_clocks`: wastenotd sets the clocks here, and restores what its policy says ([[restore]]); leave it out"
        )
    return DaemonClocks(nvml, handle, uuid)
