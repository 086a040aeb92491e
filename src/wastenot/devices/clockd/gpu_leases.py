"""The leases of one GPU, one after another: each is the right of one connection to set its clocks, within the policy.

What sets clocks, journals them first and undoes them is :class:`LeasedClocks`, as for commands that root runs. A lease
ends when its client asks, hangs up, misses heartbeats, has had it as long as the policy allows, or may no longer have it.
Who is refused a GPU that another user has is in a queue for as long as it keeps asking, and comes before who asked later.
A GPU that cannot be restored at once is tried again each second, and nobody gets it before that.

All of it happens in the GPU's thread, since each method may call the driver; other threads only look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from wastenot.core.errors import ClocksRefusedError, DeviceError, WastenotError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.clockd.bounded import check, widest, within_bounds
from wastenot.devices.clockd.budget import Frontier, Seen
from wastenot.devices.clockd.log_lines import Log, Repeats
from wastenot.devices.clockd.policy import Bounds, Gpu, Peer, Policy
from wastenot.devices.clockd.recoveries import Recoveries
from wastenot.devices.clockd.refused import RefusedError
from wastenot.devices.clockd.turns import Turns
from wastenot.devices.clockd.worker import Worker
from wastenot.devices.common.clocks import Auto, LeasedClocks
from wastenot.devices.common.gpu_driver import KINDS, ClockSetter, DriverError
from wastenot.devices.common.journal import Holder

_RETRY_S = 1.0  # between attempts to restore a GPU
_REFUSED_S = 60.0  # for which a GPU that could not be limited counts as one that cannot be
_UNTOUCHED = Auto(kept=frozenset(KINDS) - {"power"})  # nobody has a lease, and only a share of a budget is set
_NAMED = 100  # different settings of a lease that are logged


@dataclass(slots=True)
class Unrestored:
    """A GPU that could not be restored yet.

    Attributes:
        clocks: that know what to restore.
        again_s: when to try again.
        why: what the driver said last.
    """

    clocks: LeasedClocks
    again_s: float = 0.0
    why: str = ""

    def __str__(self) -> str:
        return f"its clocks could not be restored yet ({self.why}); wastenotd tries again each second"


@dataclass(slots=True)
class Lease:
    """A lease.

    Attributes:
        owner: the connection that has it.
        peer: its other end.
        clocks: of the GPU.
        since_s: since when.
        until_s: when it ends at the latest.
        bounds: of what may be set.
        claimed: whether it is held at auto too.
        requests: made so far.
        setting: that was requested last; ``None`` before the first.
        seen: settings that were logged.
        ending: whether it is to end, so that it is nobody's any more; the event loop says so.
    """

    owner: object
    peer: Peer
    clocks: LeasedClocks
    since_s: float
    until_s: float
    bounds: Bounds
    claimed: bool = False
    requests: int = 0
    setting: Setting | None = None
    seen: set[Setting] = field(default_factory=set)
    ending: bool = False


class GpuLeases:
    """The leases of a GPU.

    Args:
        gpu: by its names.
        setter: of its clocks; it allows changes.
        worker: the thread in which alone what follows :meth:`status` is called.
        policy: who may do what.
        now_s: the clock.
        log: takes what happened, and fields.

    Attributes:
        lease: the present one.
        unrestored: what keeps the GPU from being given to anybody.
        recoveries: of what dead processes left changed.
        undo_failures: attempts to restore it that failed.
        power: its power and its limits; ``None`` before they have been read.
        frontier: that the job of a lease has told; the event loop says so.
    """

    def __init__(
        self, gpu: Gpu, setter: ClockSetter, worker: Worker, policy: Policy, now_s: Callable[[], float], log: Log
    ) -> None:
        self.gpu, self.worker, self.undo_failures = gpu, worker, 0
        self.lease: Lease | None = None
        self.unrestored: Unrestored | None = None
        self.recoveries = Recoveries(now_s, log, lambda uuid: setter, lambda uuid: uuid == gpu.uuid)
        self.power: Seen | None = None
        self.frontier: tuple[Lease, Frontier] | None = None
        self._capped: LeasedClocks | None = None  # to a share of a budget, under whatever lease
        self._refused_s = -inf  # when it could not be limited last
        self._setter, self._policy, self._now_s, self._log, self._repeats = setter, policy, now_s, log, Repeats(now_s)
        self._lost: dict[object, str] = {}  # why, until the client has been told
        self._turns = Turns(now_s)

    def __str__(self) -> str:
        return f"GPU {self.gpu.index} ({self.gpu.uuid})"

    def holder(self) -> object:
        """The connection that has the lease; ``None`` where none has it, or it is to end."""
        lease = self.lease
        return None if lease is None or lease.ending else lease.owner

    def due_s(self) -> float:
        """When to look after it."""
        lease, unrestored = self.lease, self.unrestored
        return min(inf if lease is None else lease.until_s, inf if unrestored is None else unrestored.again_s)

    def status(self) -> dict[str, Any] | None:
        """Who has the lease, for how long and for how much longer, or why the GPU waits to be restored; if anything."""
        now_s, lease, unrestored = self._now_s(), self.lease, self.unrestored
        if unrestored is not None:
            return {"unrestored": True, "why": unrestored.why}
        if lease is not None:
            return {
                "user": lease.peer.user, "process": lease.peer.process, "requests": lease.requests,
                "held_s": round(now_s - lease.since_s, 3), "left_s": round(lease.until_s - now_s, 3),
            }  # fmt: skip
        return self.recoveries.status().get(self.gpu.uuid)

    def acquire(self, owner: object, peer: Peer, claim: bool) -> None:
        """Give the lease.

        Raises:
            RefusedError: the policy forbids it, somebody has it, or the GPU cannot be controlled.
        """
        uuid, lease, bounds = self.gpu.uuid, self.lease, self._bounds(peer)
        if lease is not None and lease.owner is not owner:
            self._turns.wait(peer.user)
            raise RefusedError(
                "leased", f"{uuid}: {_holder(lease.peer)} controls the clocks of this GPU; wait for it, or stop it"
            )
        if lease is None and self._turns.since_s(peer.user) + bounds.longest_lease_s <= self._now_s():
            self._turns.bar(peer.user)  # it would be over at once
        if (barred_s := self._turns.barred_for_s(peer.user)) > 0.0:
            raise RefusedError(
                "policy", f"{uuid}: you have held its clocks for as long as the policy allows; try again in {barred_s:.0f} s"
            )
        first = self._turns.first()
        if lease is None and first not in (None, peer.user):
            self._turns.wait(peer.user)
            raise RefusedError("queued", f"{uuid}: user {first} has waited for this GPU for longer; try again")
        try:
            if lease is None:
                if self.unrestored is not None:
                    self._restore_again(self.unrestored)
                self.recoveries.recover()
                auto = widest(bounds, self._setter.supported_clocks())
                restore = self._policy.restore(self.gpu)
                clocks = self._capped or LeasedClocks(self._setter, restore, _holder(peer), auto=auto)
                clocks.restore_to(restore)
                clocks.mean_by_auto(auto)
                clocks.hold()
                since_s = self._turns.since_s(peer.user)
                lease = self.lease = Lease(owner, peer, clocks, since_s, since_s + bounds.longest_lease_s, bounds)
                self._turns.began(peer.user)
                self._log("lease", gpu=uuid, user=peer.user, process=peer.process, longest_s=bounds.longest_lease_s)
            if claim:
                lease.clocks.claim()
                lease.claimed = True
        except WastenotError as error:
            raise RefusedError("device" if isinstance(error, DriverError) else "leased", str(error)) from error
        self._lost.pop(owner, None)

    def set(self, owner: object, setting: Setting) -> None:
        """Request a setting.

        Raises:
            RefusedError: without a lease, beyond the policy, or the driver refuses.
        """
        lease, uuid = self._owned(owner), self.gpu.uuid
        bounds = self._bounds(lease.peer)
        for name in ("core_mhz", "memory_mhz", "power_limit_w"):
            check(uuid, name, getattr(setting, name), getattr(bounds, name))
        if setting.profile is not None and setting.profile not in bounds.profiles:
            allowed = ", ".join(sorted(bounds.profiles)) or "none"
            raise RefusedError("policy", f"{uuid}: the policy of wastenotd allows these workload power profiles: {allowed}")
        lease.requests += 1
        if setting not in lease.seen and len(lease.seen) < _NAMED:
            lease.seen.add(setting)
            self._log("set", gpu=uuid, user=lease.peer.user, process=lease.peer.process, setting=setting)
        try:
            lease.clocks.request(setting)
        except DeviceError as error:
            if not lease.clocks.holding:
                self._forget(lease, "a request failed")
            raise RefusedError("refused" if isinstance(error, ClocksRefusedError) else "device", str(error)) from error
        lease.setting = setting
        if not lease.clocks.holding:
            self._forget(lease, "asked")

    def release(self, owner: object) -> None:
        """End the lease; nothing happens where somebody else or nobody has it.

        Raises:
            RefusedError: the GPU could not be restored yet.
        """
        self.hung_up(owner, "asked")
        if self.unrestored is not None:
            raise RefusedError("device", f"{self.gpu.uuid}: {self.unrestored}")

    def hung_up(self, owner: object, why: str) -> None:
        """End the lease of a connection that is no more."""
        if self.lease is not None and self.lease.owner is owner:
            self._end(self.lease, why)
        self._lost.pop(owner, None)

    def take_back(self, owner: object, told: str, why: str) -> None:
        """End the lease of a connection without its asking, which is told why when it speaks again."""
        if self.lease is not None and self.lease.owner is owner:
            self._lost[owner] = told
            self._end(self.lease, why)

    def look_after(self) -> None:
        """End a lease that has lasted as long as it may, and try again to restore the GPU."""
        now_s, lease, unrestored = self._now_s(), self.lease, self.unrestored
        if lease is not None and lease.until_s <= now_s:
            why = "reached the time limit of the policy"
            self.take_back(lease.owner, f"it {why}", why)
            self._turns.bar(lease.peer.user)
        if unrestored is not None and unrestored.again_s <= now_s:
            with suppress(Exception):
                self._restore_again(unrestored)
        self._turns.forget()

    def take_policy(self, policy: Policy) -> None:
        """Hold another policy from now on: a lease that it does not allow ends, and what was set comes within its bounds."""
        self._policy, lease = policy, self.lease
        if lease is None:
            return
        bounds = policy.bounds(lease.peer, self.gpu)
        if bounds is None:
            self.take_back(lease.owner, "the policy has changed and no longer allows it", "no longer allowed")
            return
        try:
            self._bound(lease, bounds)
        except Exception as error:  # whatever it is, the lease ends
            why = f"cannot be brought within the policy: {type(error).__name__}: {error}"
            self.take_back(lease.owner, f"the policy has changed, and {error}", why)
        else:
            lease.until_s = min(lease.until_s, lease.since_s + bounds.longest_lease_s)

    def read_power(self) -> None:
        """Read its power, and, unless it is limited by now, within which limits."""
        drawn_w, before = None, self.power
        with suppress(WastenotError):
            drawn_w = self._setter.power_w()
        settable = self._now_s() - self._refused_s >= _REFUSED_S
        if before is not None and (self._capped is not None or self.lease is not None):
            self.power = replace(before, drawn_w=drawn_w, settable=settable)
            return
        limits_w, limit_w = self._setter.power_limit_range_w(), self._setter.power_limit_w()
        highest_w = limit_w or (inf if limits_w is None else limits_w[1])
        lowest_w = highest_w if limits_w is None else min(limits_w[0], highest_w)
        self.power = Seen((lowest_w, highest_w), highest_w, drawn_w, settable and limits_w is not None)

    def take_share(self, limit_w: float | None) -> None:
        """Keep the power limit at a share of a budget or below, with a lease and without; ``None``: no more."""
        before, now = self._capped, self.lease or self.unrestored
        untouched = LeasedClocks(self._setter, self._policy.restore(self.gpu), auto=_UNTOUCHED)
        clocks = before or (untouched if now is None else now.clocks)
        self._capped = None if limit_w is None else clocks
        try:
            clocks.cap(limit_w)
        except Exception as error:  # whatever it is, it is tried again, and the GPU counts at the most that may be in force
            self._refused_s = self._now_s()
            if self._repeats.is_news(f"{self.gpu.uuid} share", str(error)):
                self._log("cannot limit", gpu=self.gpu.uuid, limit_w=limit_w, error=error)
            if before is None or limit_w is None:
                self._capped = None
                if self.lease is None and clocks.has_lease:
                    self._failed(Unrestored(clocks), error)
            limit_w = None if limit_w is None or self.power is None else max(limit_w, self.power.limit_w)
        if self.power is not None:
            self.power = replace(self.power, limit_w=limit_w or self.power.limits_w[1])

    def told_frontier(self) -> tuple[Frontier, int | None]:
        """The frontier of the job that has the lease, and its user; empty where it told none."""
        lease, told = self.lease, self.frontier
        if lease is None or lease.ending or told is None or told[0] is not lease:
            return (), None
        return told[1], lease.peer.user

    def end_all(self) -> None:
        """End the lease, and try to restore the GPU once more where that failed."""
        if self.lease is not None:
            self._end(self.lease, "wastenotd is stopping")
        if self._capped is not None:
            self.take_share(None)
        if self.unrestored is not None:
            with suppress(Exception):
                self._restore_again(self.unrestored)

    def _bound(self, lease: Lease, bounds: Bounds) -> None:
        """Bring the lease within other bounds.

        Raises:
            WastenotError: the driver or the disk failed.
        """
        if bounds == lease.bounds:
            return
        auto = widest(bounds, self._setter.supported_clocks())
        lease.clocks.give_up(auto.kept)
        lease.clocks.mean_by_auto(auto)
        lease.bounds = bounds
        if lease.setting is None:
            return
        within = within_bounds(lease.setting, bounds, self._setter)
        if within != lease.setting:
            self._log("bounded", gpu=self.gpu.uuid, user=lease.peer.user, process=lease.peer.process, setting=within)
        if within == AUTO and not lease.claimed:  # a request of auto would end the lease
            lease.clocks.give_up(frozenset(KINDS))
        else:
            lease.clocks.request(within)
        lease.setting = within

    def _bounds(self, peer: Peer) -> Bounds:
        bounds = self._policy.bounds(peer, self.gpu)
        if bounds is None:
            raise RefusedError("policy", f"the policy of wastenotd does not let user {peer.user} set clocks of this GPU")
        return bounds

    def _owned(self, owner: object) -> Lease:
        if self.lease is not None and self.lease.owner is owner:
            return self.lease
        uuid, why = self.gpu.uuid, self._lost.get(owner)
        if why is not None and self.unrestored is not None:
            raise RefusedError("lost", f"{uuid}: wastenotd ended the lease of its clocks: {why}; {self.unrestored}")
        if why is not None:
            raise RefusedError("lost", f"{uuid}: wastenotd ended the lease of its clocks and restored them: {why}")
        raise RefusedError("lost", f"{uuid}: acquire its lease first")

    def _end(self, lease: Lease, why: str) -> None:
        try:
            lease.clocks.end_claim()
        except Exception as error:  # whatever it is, the GPU is tried again
            self._failed(Unrestored(lease.clocks), error)
            self._forget(lease, why, restored=False)
        else:
            self._forget(lease, why)

    def _forget(self, lease: Lease, why: str, *, restored: bool = True) -> None:
        self.lease = None
        if self._capped is not None:
            with suppress(DeviceError):  # a journal that says of too much that it is to be restored
                lease.clocks.mean_by_auto(_UNTOUCHED)
        self._turns.ended(lease.peer.user, lease.since_s)
        who = {"user": lease.peer.user, "process": lease.peer.process, "requests": lease.requests}
        held_s = f"{self._now_s() - lease.since_s:.1f}"
        self._log("end of lease", gpu=self.gpu.uuid, why=why, held_s=held_s, restored=restored, **who)

    def _restore_again(self, unrestored: Unrestored) -> None:
        try:
            unrestored.clocks.end_claim()
        except Exception as error:
            self._failed(unrestored, error)
            raise
        self.unrestored = None
        self._log("restored", gpu=self.gpu.uuid)

    def _failed(self, unrestored: Unrestored, error: Exception) -> None:
        """Note why the GPU could not be restored, and log it, but the same reason once a minute only."""
        self.unrestored = unrestored
        self.undo_failures += 1
        unrestored.again_s, unrestored.why = self._now_s() + _RETRY_S, str(error)
        if self._repeats.is_news(self.gpu.uuid, unrestored.why):
            self._log("cannot restore", gpu=self.gpu.uuid, error=error)


def _holder(peer: Peer) -> Holder:
    return Holder(peer.process, peer.user, through_daemon=True)
