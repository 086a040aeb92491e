"""Who sets a GPU's clocks: this process where it has the rights, wastenotd where it listens, or nobody; and why."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wastenot.core.errors import BadInputError, WastenotError
from wastenot.devices.common.clocks import LeasedClocks
from wastenot.devices.common.daemon_clocks import DaemonClocks
from wastenot.devices.common.daemon_connection import Connection
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE, socket_path
from wastenot.devices.common.gpu_driver import ClockSetter
from wastenot.devices.common.journal import Holder, Restore
from wastenot.devices.common.rights import Rights, rights_here
from wastenot.devices.common.shared_clocks import SharedClocks

Way = Literal["direct", "daemon", "none"]


@dataclass(frozen=True, slots=True)
class Control:
    """The way to set clocks.

    Attributes:
        way: ``direct``: this process; ``daemon``: wastenotd; ``none``.
        missing: what would be needed where there is none, or what keeps this process from the daemon.
        allowed: UUIDs of the GPUs that the daemon's policy allows.
        held: by UUID, who has a GPU through the daemon, whose journals only root can read.
    """

    way: Way
    missing: str | None = None
    allowed: tuple[str, ...] = ()
    held: Mapping[str, Holder] = field(default_factory=dict)


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
    return Control("none", f"they need {rights.needed}, or wastenotd, which is not listening here ({socket_path()})")


def control_that_works(rights: Rights) -> Control:
    """The way to set clocks here with some rights, after asking the daemon where it is the way."""
    control = control_here(rights)
    if control.way != "daemon":
        return control
    try:
        connection = Connection()
        connection.close()
    except WastenotError as error:
        return Control("none", str(error))
    if not connection.welcome.gpus:
        return Control("none", f"the policy of wastenotd allows this user (ID {connection.welcome.user}) no GPUs")
    held = {
        uuid: Holder(int(lease["process"]), int(lease["user"]), through_daemon=True)
        for uuid, lease in connection.welcome.leases.items()
        if "process" in lease and "user" in lease
    }
    return Control("daemon", None, tuple(connection.welcome.gpus), held)


def clocks_of(setter: ClockSetter, restore: Restore | None = None) -> SharedClocks:
    """Clock control of a GPU.

    Args:
        setter: of the GPU.
        restore: ranges of locked clocks to restore.

    Raises:
        BadInputError: ranges are named, and a daemon sets the clocks.
    """
    if not setter.allow_changes:
        return LeasedClocks(setter, restore)
    control = control_here()
    if control.way != "daemon":
        return LeasedClocks(setter, restore, missing=control.missing)
    if restore is not None:
        raise BadInputError(
            "`restore_clocks`: wastenotd sets the clocks here and restores what its policy defines ([[restore]]); leave "
            "it out"
        )
    return DaemonClocks(setter)
