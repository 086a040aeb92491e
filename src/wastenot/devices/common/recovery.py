"""Restoring the GPUs whose clocks dead processes left changed."""

from __future__ import annotations

from collections.abc import Callable

from wastenot.core.errors import DeviceError, WastenotError
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import ClockSetter, setter_of
from wastenot.devices.common.journal import Journal
from wastenot.devices.common.rights import forbidden


def recover(find: Callable[[str], ClockSetter] = setter_of) -> tuple[Journal, ...]:
    """Restore the GPUs whose clocks dead processes left changed.

    Args:
        find: by unique ID, what may change a GPU's clocks; raises WastenotError where there is none.

    Returns:
        The journals of the GPUs that were restored.

    Raises:
        DeviceError: a GPU could not be restored, the others were; its journal stays.
    """
    restored = []
    failed: DeviceError | None = None
    for left in journal.stale():
        claimed = journal.claim(left)
        if claimed is None:
            continue
        try:
            find(claimed.uuid).restore(claimed.restore, {"core", "memory", "power"})
        except BaseException as error:
            journal.disclaim(claimed.path)
            if not isinstance(error, WastenotError):
                raise
            kind = type(error) if isinstance(error, DeviceError) else DeviceError
            failed = failed or kind(f"{left.uuid}: clocks were left changed by {left.holder}: {error}")
            continue
        journal.end(claimed.path)
        restored.append(claimed)
    if failed is not None:
        raise failed
    return tuple(restored)


def put_right() -> int:
    """Restore them unless that is forbidden, whether or not this process may change clocks: the dead ones might.

    Returns:
        How many were restored.

    Raises:
        DeviceError: a GPU could not be restored.
    """
    return len(recover()) if journal.stale() and forbidden() is None else 0
