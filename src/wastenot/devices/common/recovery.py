"""Restoring the GPUs whose clocks dead processes left changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import isfinite

from wastenot.core.errors import DeviceError, WastenotError
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import KINDS, ClockSetter, restore_all, setter_of
from wastenot.devices.common.journal import Journal, Restore
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
            setter = find(claimed.uuid)
            claimed = replace(claimed, restore=possible(setter, claimed.restore))
            kinds = {kind for kind in KINDS if kind not in claimed.kept}
            restore_all(setter, claimed.restore, kinds, {kind for kind in KINDS if kind in claimed.changed})
        except BaseException as error:
            with suppress(DeviceError):
                journal.note(claimed.path, failed=str(error))
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


def possible(setter: ClockSetter, restore: Restore) -> Restore:
    """What of a journal a GPU can ever have been found at; the rest is reset to the driver's defaults, or left alone.

    A lock includes a clock that the GPU has. A power limit is within the range that the driver reports, and is not set
    where it reports none.
    """
    states = setter.supported_clocks()
    limits, limit = setter.power_limit_range_w(), restore.power_limit_w
    return Restore(
        _if_any(restore.core_mhz, [clock for cores in states.values() for clock in cores]),
        _if_any(restore.memory_mhz, [*states]),
        limit if limit is not None and limits is not None and limits[0] <= limit <= limits[1] else None,
    )


def _if_any(locked: tuple[float, float] | None, clocks: list[float]) -> tuple[float, float] | None:
    if locked is None or not all(map(isfinite, locked)):
        return None
    return locked if any(locked[0] <= clock <= locked[1] for clock in clocks) else None


def put_right() -> int:
    """Restore them unless that is forbidden, whether or not this process may change clocks: the dead ones might.

    Returns:
        How many were restored.

    Raises:
        DeviceError: a GPU could not be restored.
    """
    return len(recover()) if journal.stale() and forbidden() is None else 0
