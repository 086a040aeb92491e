"""Clock control of a real GPU, whoever made it: changes are journaled first and always undone.

Drivers report supported clocks, the power limit and clocks in effect, but not whether clocks are locked. So an earlier lock
is lost unless the user names it; the journal records what to restore.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.common.gpu_driver import (
    KINDS,
    ClockSetter,
    Kind,
    NoPermissionError,
    NotSupportedError,
    refusal,
    restore_all,
)
from wastenot.devices.common.journal import Holder, Restore
from wastenot.devices.common.lease import Lease
from wastenot.devices.common.shared_clocks import SharedClocks, check_profile


@dataclass(frozen=True, slots=True)
class Auto:
    """What auto means while a GPU is claimed; by default the driver's own choice.

    Attributes:
        ceilings: by kind, what is set instead, for who may not have the driver's own choice.
        kept: kinds that are left as they were found.
    """

    ceilings: Mapping[Kind, float] = field(default_factory=dict)
    kept: frozenset[Kind] = frozenset()


_UNREADABLE_LIMIT = "its power limit cannot be read, so it could not be restored: it is not set"
_ENFORCED_S = 1.0  # for a profile that was requested to be enforced; how long cards take is not published
_LOOK_S = 0.05


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
        self._in_use = False  # else the lease only keeps the cap
        self._cap_w: float | None = None
        self._asked_w: float | None = None  # the power limit that was requested last
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
            self._apply(replace(setting, power_limit_w=self._capped_w(setting.power_limit_w)))
        except BaseException:
            self.release()
            raise
        self._asked_w = setting.power_limit_w
        self._note_change()

    def cap(self, limit_w: float | None) -> None:
        """Keep the power limit at a number of watts or below from now on, whatever is requested and after it is released.

        Args:
            limit_w: within the GPU's range, and not above the limit that was found; ``None`` ends the cap.

        Raises:
            ClocksRefusedError: the limit that is in force cannot be read, so it could not be restored.
            DeviceError: another process holds the lease, or the driver failed.
        """
        if limit_w is None and not self._in_use:
            self._cap_w = None
            self.release()
            return
        held = self._begin()
        if held.restore.power_limit_w is None:
            raise ClocksRefusedError(f"{self._id}: {_UNREADABLE_LIMIT}")
        before, self._cap_w = self._cap_w, limit_w
        if "power" not in held.touched:
            held.touched.add("power")
            held.keep(self._auto.kept)  # without it
        try:
            self._change("power", self._capped_w(self._asked_w) or held.restore.power_limit_w)
        except BaseException:
            self._cap_w = before
            if before is None and not self._in_use:
                self.release()
            raise

    def release(self) -> None:
        """Undo what was changed, if anything was, and end the lease; while it is claimed, only reset to the default clocks.

        A cap stays, and with it the lease. What a claim measures at auto is the driver's own choice: locks set before, which
        cannot be read, are reset for it, and those that are to be restored return when it ends.
        """
        self._asked_w = None
        if self._held is not None and self._claimed:
            self._to_default(self._held.touched | {"core", "memory"})
            return
        if self._cap_w is not None:
            self.give_up(frozenset(KINDS))
        elif self._held is not None:
            self._held.end()
            self._held = None  # where undoing failed it is tried again, at the latest when the program ends
        self._in_use = False

    @property
    def holding(self) -> bool:
        """Whether it has the lease for more than a cap: there may be something to undo."""
        return self._in_use

    @property
    def has_lease(self) -> bool:
        """Whether it has the lease, if only for a cap."""
        return self._held is not None

    def hold(self) -> None:
        """Acquire the lease, unless this has it, and change nothing yet.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        self._begin()
        self._in_use = True

    def _begin(self) -> Lease:
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
        return self._held

    def claim(self) -> None:
        """Begin to hold the lease at the default clocks too, until :meth:`end_claim`."""
        self.hold()
        self._claimed = True

    def give_up(self, kinds: frozenset[Kind]) -> None:
        """Restore kinds of a setting that may not be changed any more, within the cap, and keep the lease.

        Raises:
            DriverError: the driver failed.
        """
        if self._held is not None and self._held.touched & kinds:
            restore_all(self._setter, self._found(self._held), self._held.touched & kinds, self._held.changed)
            undone = kinds if self._cap_w is None else kinds - {"power"}
            self._held.touched -= undone
            self._held.changed -= undone

    def restore_to(self, restore: Restore) -> None:
        """Restore other locks of clocks than were named before.

        Raises:
            DeviceError: the journal cannot be written.
        """
        self._restore = restore
        if self._held is not None:
            self._held.restore_clocks_to(restore)

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
            found = replace(self._found(self._held), core_mhz=None, memory_mhz=None)
            restore_all(self._setter, found, kinds - {*limited}, self._held.changed)
        except NoPermissionError:
            self._held.touched &= before  # nothing was changed, and what is to be set will say why
            return
        self._default |= kinds
        self._note_change()

    def _found(self, held: Lease) -> Restore:
        """What was found, with the cap as the power limit where there is one."""
        return held.restore if self._cap_w is None else replace(held.restore, power_limit_w=self._capped_w(None))

    def _capped_w(self, limit_w: float | None) -> float | None:
        """A power limit that is requested, or ``None``: the one that was found; as far as the cap allows."""
        return limit_w if self._cap_w is None else min(self._cap_w, limit_w or self._cap_w)

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
            raise ClocksRefusedError(f"{self._id}: {_UNREADABLE_LIMIT}")
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
