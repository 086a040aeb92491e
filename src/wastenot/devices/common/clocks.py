"""Clock control of a real GPU, whoever made it: changes are journaled first and always undone.

Drivers report supported clocks, the power limit and clocks in effect, but not whether clocks are locked. So an earlier lock
is lost unless the user names it; the journal records what to restore.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.processes import Terminated
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.common.gpu_driver import (
    ClockSetter,
    Kind,
    NoPermissionError,
    NotSupportedError,
    refusal,
    restore_all,
)
from wastenot.devices.common.journal import Holder, Restore
from wastenot.devices.common.lease import Lease
from wastenot.devices.common.rights import forbidden


@dataclass(frozen=True, slots=True)
class Auto:
    """What auto means while a GPU is claimed; by default the driver's own choice.

    Attributes:
        ceilings: by kind, what is set instead, for who may not have the driver's own choice.
        kept: kinds that are left as they were found.
    """

    ceilings: Mapping[Kind, float] = field(default_factory=dict)
    kept: frozenset[Kind] = frozenset()


_ENFORCED_S = 1.0  # for a profile that was requested to be enforced; how long cards take is not published
_LOOK_S = 0.05


class SharedClocks(ABC):
    """Clocks that other processes may want to set too, so that they are claimed.

    Attributes:
        on_change: called once a setting has been changed for the first time.
        on_interrupt: called when a claim was interrupted and what it changed is undone.
    """

    def __init__(self) -> None:
        self._claimed = self._changed = False
        self.on_change: Callable[[], None] = _nothing
        self.on_interrupt: Callable[[], None] = _nothing

    @abstractmethod
    def outcome(self) -> str:
        """What becomes of the clocks afterwards, in words."""

    @abstractmethod
    def release(self) -> None:
        """Undo what was changed, and end the lease unless it is claimed."""

    @abstractmethod
    def claim(self) -> None:
        """Begin to hold the lease at the default clocks too, until :meth:`end_claim`.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """

    def end_claim(self) -> None:
        """Undo what was changed and end the lease."""
        self._claimed = False
        self.release()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lease inside the context, at the default clocks too, so that no other process sets clocks meanwhile.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        if self._claimed or self._no_claim():
            yield
            return
        self.claim()
        try:
            yield
        except (KeyboardInterrupt, Terminated):
            self.end_claim()
            if self._changed:
                self.on_interrupt()
            raise
        finally:
            self.end_claim()

    def _no_claim(self) -> bool:
        """Whether nothing may be set here, so that there is nothing to claim."""
        return forbidden() is not None

    def _note_change(self) -> None:
        if not self._changed:
            self._changed = True
            self.on_change()


class LeasedClocks(SharedClocks):
    """Clock control of one GPU by this process.

    Args:
        setter: the calls that change it.
        restore: ranges of locked clocks to restore; by default locks are reset.
        client: on whose behalf they are set, where that is not this process.
        missing: what this process would need to set clocks, where it is known to lack that.
        auto: what auto means while it is claimed.
    """

    def __init__(
        self,
        setter: ClockSetter,
        restore: Restore | None = None,
        client: Holder | None = None,
        missing: str | None = None,
        auto: Auto | None = None,
    ) -> None:
        super().__init__()
        self._auto = auto or Auto()
        self._setter, self._id = setter, setter.unique_id
        self._restore, self._client, self._missing = restore or Restore(), client, missing
        self._held: Lease | None = None
        self._default = set[Kind]()  # what is known to be left to the driver

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it, both ascending."""
        return self._setter.supported_clocks()

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit; ``None`` where it may not be set."""
        return None if refusal(self._setter.allow_changes) is not None else self.power_limit_range_w()

    def profiles(self) -> tuple[str, ...]:
        """Names of the workload power profiles that may be requested; empty where none may."""
        profiles = None if refusal(self._setter.allow_changes) is not None else self._setter.profiles()
        return () if profiles is None else profiles.available

    def power_limit_range_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit of the GPU, whoever may set it; ``None`` where it is not reported."""
        return self._setter.power_limit_range_w()

    def outcome(self) -> str:
        """What becomes of the clocks afterwards, in words."""
        return self._restore.outcome

    def refusal(self) -> str | None:
        """Why wastenot does not change clocks here; ``None`` where it would try."""
        reason = refusal(self._setter.allow_changes)
        if reason is None and self._missing is not None:
            reason = f"this process may not set clocks: {self._missing}"
        return reason

    def request(self, setting: Setting) -> None:
        """Request a setting. The first one that is not auto acquires the lease on the GPU's clocks.

        Raises:
            ClocksRefusedError: the GPU does not support it, the user lacks the permission, or changes are not allowed.
            DeviceError: another process holds the lease, or the driver failed.
        """
        if setting == AUTO:
            self.release()
            return
        self._check(setting)
        reason = refusal(self._setter.allow_changes)
        if reason is not None:
            raise ClocksRefusedError(f"{self._id}: clocks cannot be changed: {reason}")
        self.hold()
        try:
            self._apply(setting)
        except BaseException:
            self.release()
            raise
        self._note_change()

    def release(self) -> None:
        """Undo what was changed, if anything was, and end the lease; while it is claimed, only reset to the default clocks.

        What a claim measures at auto is the driver's own choice: locks set before, which cannot be read, are reset for it,
        and those that are to be restored return when it ends.
        """
        if self._held is not None and self._claimed:
            self._to_default(self._held.touched | {"core", "memory"})
        elif self._held is not None:
            self._held.end()
            self._held = None  # where undoing failed it is tried again, at the latest when the program ends

    @property
    def holding(self) -> bool:
        """Whether it has the lease: there may be something to undo."""
        return self._held is not None

    def hold(self) -> None:
        """Acquire the lease, unless this has it, and change nothing yet.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        if self._held is None:
            self._default = set()
            profiles = self._setter.profiles()
            restore = Restore(
                self._restore.core_mhz,
                self._restore.memory_mhz,
                self._setter.power_limit_w(),
                None if profiles is None else profiles.requested,
            )
            self._held = Lease(self._id, restore, partial(restore_all, self._setter), self._client, self._auto.kept)

    def claim(self) -> None:
        """Begin to hold the lease at the default clocks too, until :meth:`end_claim`.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        self.hold()
        self._claimed = True

    def give_up(self, kinds: frozenset[Kind]) -> None:
        """Restore kinds of a setting that may not be changed any more, and keep the lease.

        Raises:
            DriverError: the driver failed.
        """
        if self._held is not None and self._held.touched & kinds:
            restore_all(self._setter, self._held.restore, self._held.touched & kinds, self._held.changed)
            self._held.touched -= kinds
            self._held.changed -= kinds

    def mean_by_auto(self, auto: Auto) -> None:
        """Let auto mean something else from the next request on.

        Raises:
            DeviceError: the journal cannot be written; nothing has changed then.
        """
        if self._held is not None:
            self._held.keep(auto.kept)
        self._auto, self._default = auto, set()

    def _no_claim(self) -> bool:
        return refusal(self._setter.allow_changes) is not None

    def _to_default(self, kinds: set[Kind]) -> None:
        """Set some kinds of a setting to what auto means, if they are not yet; the lease knows that they were changed."""
        assert self._held is not None
        kinds = kinds - self._default - self._auto.kept
        if not kinds:
            return
        before = set(self._held.touched)
        self._held.touched |= kinds
        limited = {kind: ceiling for kind, ceiling in self._auto.ceilings.items() if kind in kinds}
        try:
            for kind, ceiling in limited.items():
                with suppress(NotSupportedError):  # then it cannot have been changed either
                    self._change(kind, ceiling)
            found = replace(self._held.restore, core_mhz=None, memory_mhz=None)
            restore_all(self._setter, found, kinds - {*limited}, self._held.changed)
        except NoPermissionError:
            self._held.touched &= before  # nothing was changed, and what is to be set will say why
            return
        self._default |= kinds
        self._note_change()

    def _check(self, setting: Setting) -> None:
        supported_clocks = self.supported_clocks()
        if setting.memory_mhz is not None and setting.memory_mhz not in supported_clocks:
            have = ", ".join(f"{clock:g}" for clock in supported_clocks) or "none"
            raise ClocksRefusedError(f"{self._id}: no memory clock of {setting.memory_mhz:g} MHz; it has {have}")
        memory = max(supported_clocks) if setting.memory_mhz is None and supported_clocks else setting.memory_mhz
        cores = supported_clocks.get(memory, ()) if memory is not None else ()
        if setting.core_mhz is not None and setting.core_mhz not in cores:
            have = f"{cores[0]:g} to {cores[-1]:g}" if cores else "none"
            raise ClocksRefusedError(
                f"{self._id}: no core clock of {setting.core_mhz:g} MHz with that memory clock; it has {have}"
            )
        limits, limit = self._setter.power_limit_range_w(), setting.power_limit_w
        if limit is not None and (limits is None or not limits[0] <= limit <= limits[1]):
            have = "cannot be set" if limits is None else f"can be {limits[0]:g} to {limits[1]:g} W"
            raise ClocksRefusedError(f"{self._id}: no power limit of {limit:g} W; it {have}")
        check_profile(self._id, setting.profile, () if setting.profile is None else self.profiles())

    def _apply(self, setting: Setting) -> None:
        assert self._held is not None
        touched = self._held.touched
        if setting.power_limit_w is not None and self._held.restore.power_limit_w is None:
            raise ClocksRefusedError(
                f"{self._id}: its power limit cannot be read, so it could not be restored: it is not set"
            )
        wanted: list[tuple[Kind, float | str | None]] = [  # a profile may bring clocks of its own, which the others override
            ("profile", setting.profile), ("memory", setting.memory_mhz), ("core", setting.core_mhz),
            ("power", setting.power_limit_w),
        ]  # fmt: skip
        for kind, value in wanted:
            if value is None or (not isinstance(value, str) and self._setter.is_needless(kind, value)):
                if kind in touched or (self._claimed and kind in ("core", "memory")):
                    self._to_default({kind})
                continue
            self._default.discard(kind)
            before = set(touched)
            touched.add(kind)
            try:
                self._change(kind, value)
            except (NotSupportedError, NoPermissionError) as error:
                touched &= before  # nothing was changed
                hint = f"; {self._missing}" if self._missing and isinstance(error, NoPermissionError) else ""
                raise ClocksRefusedError(f"{self._id}: {kind}: {error}{hint}") from error

    def _change(self, kind: Kind, value: float | str) -> None:
        """Set one part of a setting, and note that it has been, unless the driver has said that nothing was changed."""
        assert self._held is not None
        try:
            if isinstance(value, str):
                self._setter.request_profiles((value,))
            else:
                self._setter.apply(kind, value)
        except (NotSupportedError, NoPermissionError):
            raise
        except BaseException:
            self._held.note_change(kind)  # perhaps
            raise
        self._held.note_change(kind)
        if isinstance(value, str):
            self._await(value)

    def _await(self, profile: str) -> None:
        """Wait until a profile that was requested is enforced.

        Raises:
            ClocksRefusedError: it is not, so that what runs would run at another.
        """
        until_s = time.monotonic() + _ENFORCED_S
        while True:
            profiles = self._setter.profiles()
            if profiles is not None and profile in profiles.enforced:
                return
            if time.monotonic() >= until_s:
                enforced = ", ".join(() if profiles is None else profiles.enforced) or "none"
                raise ClocksRefusedError(
                    f"{self._id}: the profile {profile} was requested, and the GPU enforces {enforced}: another request "
                    "has priority, such as one from its baseboard management controller"
                )
            time.sleep(_LOOK_S)


def check_profile(unique_id: str, profile: str | None, available: tuple[str, ...]) -> None:
    """Refuse a profile that is not available.

    Raises:
        ClocksRefusedError: it is not; the message lists those that are.
    """
    if profile is not None and profile not in available:
        have = f"it has {', '.join(available)}" if available else "none may be set here"
        raise ClocksRefusedError(f"{unique_id}: no workload power profile '{profile}'; {have}")


def _nothing() -> None:
    pass
