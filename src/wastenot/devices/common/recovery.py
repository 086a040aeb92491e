"""Restoring the GPUs whose clocks dead processes left changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite

from wastenot.core.errors import DeviceError, WastenotError
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import KINDS, ClockSetter, DriverError, restore_all, setter_of
from wastenot.devices.common.journal import Journal, Restore
from wastenot.devices.common.patience import PATIENCE_S, answers
from wastenot.devices.common.rights import forbidden


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of the GPUs whose clocks dead processes left changed.

    Attributes:
        restored: their journals, which are gone; those that could not be understood are kept under another name.
        failed: by unique ID, why a GPU could not be restored, as for a person; its journal stays. Under no ID, why journals
            could not be looked for.
    """

    restored: tuple[Journal, ...] = ()
    failed: Mapping[str, DeviceError] = field(default_factory=dict)

    def check(self) -> None:
        """Raise the first failure, if any."""
        for error in self.failed.values():
            raise error


def recover(
    find: Callable[[str], ClockSetter] = setter_of,
    which: Callable[[str], bool] = lambda uuid: True,
    patience_s: float | None = PATIENCE_S,
) -> Recovered:
    """Restore the GPUs whose clocks dead processes left changed, each on its own: it never raises.

    Args:
        find: by unique ID, what may change a GPU's clocks; raises WastenotError where there is none.
        which: whether to restore a GPU, by unique ID.
        patience_s: to wait for drivers, in threads; ``None`` to restore one GPU after another in this thread, however long
            that takes.
    """
    restored, failed = list[Journal](), dict[str, DeviceError]()
    try:
        found = [left for left in journal.stale() if which(left.uuid)]
    except WastenotError as error:
        return Recovered(failed={"": DeviceError(str(error))})
    for left, done in zip(found, answers([partial(_recover, left, find) for left in found], patience_s), strict=True):
        if isinstance(done, Exception):  # whatever it is, the others are restored
            kind = type(done) if isinstance(done, DeviceError) else DeviceError
            how = f": {left.unreadable}" if left.unreadable else ""
            failed[left.uuid] = kind(f"{left.uuid}: clocks were left changed by {left.holder}{how}: {done}")
        elif done is not None:
            restored.append(done)
    return Recovered(tuple(restored), failed)


def _recover(left: Journal, find: Callable[[str], ClockSetter]) -> Journal | None:
    """Restore one; ``None`` where another process does."""
    claimed = journal.claim(left)
    if claimed is None:
        return None
    try:
        if claimed.this_boot:  # what was set before the machine was started again is not in force any more
            setter = find(claimed.uuid)
            readable = claimed.unreadable is None
            default = Restore(power_limit_w=setter.default_power_limit_w(), profiles=())
            to = possible(setter, claimed.restore) if readable else default
            kinds = {kind for kind in KINDS if kind not in claimed.kept}
            changed = {kind for kind in KINDS if kind in claimed.changed}
            limited = "power" in kinds & changed  # known to differ from what was found, so it is not left alone
            if limited and to.power_limit_w is None:
                to = replace(to, power_limit_w=default.power_limit_w)
            claimed = replace(claimed, restore=to)
            restore_all(setter, to, kinds, changed)
            if limited and to.power_limit_w is None:
                raise DriverError("its power limit was changed, and the driver reports neither its range nor its default")
        if claimed.unreadable is None:
            journal.end(claimed.path)
        else:
            journal.set_aside(claimed.path)
    except BaseException as error:
        if claimed.unreadable is None:
            with suppress(DeviceError):
                journal.note(claimed.path, failed=str(error))
        journal.disclaim(claimed.path)
        raise
    return claimed


def possible(setter: ClockSetter, restore: Restore) -> Restore:
    """What of a journal a GPU can ever have been found at; the rest is reset to the driver's defaults, or left alone.

    A lock includes a clock that the GPU has. A power limit is within the range that the driver reports, and is not set
    where it reports none. Profiles are among those it has.
    """
    states = setter.supported_clocks()
    limits, limit = setter.power_limit_range_w(), restore.power_limit_w
    profiles = None if restore.profiles is None else setter.profiles()
    return Restore(
        _if_any(restore.core_mhz, [clock for cores in states.values() for clock in cores]),
        _if_any(restore.memory_mhz, [*states]),
        limit if limit is not None and limits is not None and limits[0] <= limit <= limits[1] else None,
        None if profiles is None else tuple(name for name in restore.profiles or () if name in profiles.available),
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
    if not journal.stale() or forbidden() is not None:
        return 0
    done = recover()
    done.check()
    return len(done.restored)
