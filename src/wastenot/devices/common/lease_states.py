"""The states of all leases of this machine: from the journals that this user may see, and from wastenotd for the others."""

from __future__ import annotations

import os
from typing import Literal, get_args

from wastenot.devices.common import journal
from wastenot.devices.common.daemon_connection import Connection, NoDaemonError
from wastenot.devices.common.daemon_protocol import socket_path

LeaseState = Literal["free", "held", "stale", "unrestored", "unreadable"]
"""``free``: no process sets the GPU's clocks. ``held``: a running one does. ``stale``: one died before it reset them.
``unrestored``: they could not be restored yet, which is tried again. ``unreadable``: unknown."""
LEASE_STATES: tuple[LeaseState, ...] = get_args(LeaseState)
_PATIENCE_S = 2.0  # for wastenotd: a scrape may take 10 s by default


def lease_states() -> dict[str, LeaseState]:
    """By unique ID, the state of each GPU that has a lease or a journal.

    Raises:
        ClocksRefusedError: wastenotd is not for this user.
        DeviceError: the journals cannot be read, or wastenotd does not answer.
    """
    found: dict[str, LeaseState] = {}
    if os.geteuid() != 0 and os.path.lexists(socket_path()):  # root's journals are not for others to see
        try:
            connection = Connection(_PATIENCE_S)
        except NoDaemonError:
            pass
        else:
            connection.close()
            for uuid, lease in connection.welcome.leases.items():
                found[uuid] = "unrestored" if lease.get("unrestored") else "held"
    for each in journal.journals():
        held: LeaseState = "held" if each.failed is None else "unrestored"
        left: LeaseState = "stale" if each.unreadable is None else "unreadable"
        found[each.uuid] = held if each.owner_alive else left
    return found
