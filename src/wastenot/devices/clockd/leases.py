"""The leases that wastenotd has given: each is the right of one connection to set one GPU's clocks, within the policy.

What sets clocks, journals them first and undoes them is :class:`LeasedClocks`, as for commands that root runs. A lease
ends when its client asks, hangs up, misses heartbeats, has had it as long as the policy allows, or may no longer have it.
Who is refused a GPU that another user has is in a queue for as long as it keeps asking, and comes before who asked later.
A GPU that cannot be restored at once is tried again each second, and nobody gets it before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from wastenot.core.errors import ClocksRefusedError, DeviceError, WastenotError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.clockd.log_lines import Log
from wastenot.devices.clockd.policy import Bounds, Gpu, Peer, Policy
from wastenot.devices.common.clocks import Auto, LeasedClocks
from wastenot.devices.common.gpu_driver import KINDS, ClockSetter, DriverError, Kind, Missing, setter_of
from wastenot.devices.common.journal import Holder
from wastenot.devices.common.recovery import Recovered, recover

_RETRY_S = 1.0  # between attempts to restore a GPU
_SEARCH_S = 5.0  # between looks for GPUs that a dead command of root left changed
_PAUSE_S = (
    10.0  # for which a user whose lease has lasted as long as it may does not get that GPU again; a shorter one is none
)
_WAITS_S = 10.0  # after which a user who was refused a GPU and has not asked again is not waiting for it any more
_LOGGED_S = 60.0  # between two lines that say the same of a GPU that cannot be restored
_NAMED = 100  # different settings of a lease that are logged

RefusalKind = Literal["busy", "device", "leased", "lost", "message", "policy", "queued", "refused", "version"]


class RefusedError(Exception):
    """What a client asked for is refused.

    Attributes:
        kind: for programs.
        text: for people.
    """

    def __init__(self, kind: RefusalKind, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text


@dataclass(slots=True)
class _Unrestored:
    """A GPU that could not be restored yet.

    Attributes:
        clocks: that know what to restore.
        again_s: when to try again.
        why: what the driver said last.
        logged_s: when that was logged.
    """

    clocks: LeasedClocks
    again_s: float = 0.0
    why: str = ""
    logged_s: float = -inf

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


class Leases:
    """All leases.

    Args:
        setters: of all GPUs, in the order of their indices; they allow changes. One that does not answer is asked again.
        policy: who may do what.
        now_s: the clock.
        log: takes what happened, and fields.
    """

    def __init__(
        self, setters: Sequence[ClockSetter | Missing], policy: Policy, now_s: Callable[[], float], log: Log
    ) -> None:
        self.policy = policy
        self._now_s, self._log = now_s, log
        self._setters: dict[str, ClockSetter] = {}
        self.gpus: dict[str, Gpu] = {}
        self._missing: dict[int, Missing] = {}
        for index, setter in enumerate(setters):
            if isinstance(setter, Missing):
                self._missing[index] = setter
            else:
                self._add(index, setter)
        self._left = dict[str, tuple[str, float]]()  # GPUs that dead processes left changed: why, and when that was logged
        self._held: dict[str, Lease] = {}
        self._unrestored = dict[str, _Unrestored]()
        self._lost: dict[tuple[object, str], str] = {}  # why, until the client has been told
        self._searched_s = now_s()
        self._used_s: dict[tuple[int, str], tuple[float, float]] = {}  # since when, and until when, users have had a GPU
        self._waiting: dict[str, dict[int, float]] = {}  # by GPU: users in the order of their first request, and their last
        self._barred_s: dict[tuple[int, str], float] = {}  # users who have had a GPU for as long as they may

    def recover(self) -> None:
        """Restore the GPUs that dead processes left changed, an earlier daemon among them."""
        done, now_s, before = recover(self._setter), self._now_s(), self._left
        log_recovered(done, self._log)
        self._left = {}
        for uuid, error in done.failed.items():
            why, at_s = before.get(uuid, ("", -inf))
            if str(error) != why or now_s - at_s >= _LOGGED_S:
                self._log("cannot restore", gpu=uuid, error=error)
                at_s = now_s
            self._left[uuid] = (str(error), at_s)

    def allowed(self, peer: Peer) -> dict[str, Bounds]:
        """By UUID, what a peer may set."""
        found = {uuid: self.policy.bounds(peer, gpu) for uuid, gpu in self.gpus.items()}
        return {uuid: bounds for uuid, bounds in found.items() if bounds is not None}

    def missing(self) -> list[str]:
        """Names of the GPUs that do not answer."""
        return [each.name for each in self._missing.values()]

    def holds_any(self, owner: object) -> bool:
        """Whether a connection has a lease."""
        return any(lease.owner is owner for lease in self._held.values())

    def status(self) -> dict[str, Any]:
        """By UUID, who has a lease, for how long and for how much longer, and whether the GPU waits to be restored."""
        now_s, found = self._now_s(), dict[str, Any]()
        for uuid, lease in self._held.items():
            found[uuid] = {
                "user": lease.peer.user, "process": lease.peer.process, "requests": lease.requests,
                "held_s": round(now_s - lease.since_s, 3), "left_s": round(lease.until_s - now_s, 3),
            }  # fmt: skip
        left = {uuid: {"unrestored": True, "why": why} for uuid, (why, _) in self._left.items() if uuid}
        return left | found | {uuid: {"unrestored": True, "why": each.why} for uuid, each in self._unrestored.items()}

    def acquire(self, owner: object, peer: Peer, uuid: str, claim: bool) -> None:
        """Give a lease.

        Raises:
            RefusedError: the policy forbids it, somebody has it, or the GPU cannot be controlled.
        """
        bounds = self._bounds(peer, uuid)
        lease = self._held.get(uuid)
        if lease is not None and lease.owner is not owner:
            self._queue(uuid, peer.user)
            raise RefusedError(
                "leased", f"{uuid}: {_holder(lease.peer)} controls the clocks of this GPU; wait for it, or stop it"
            )
        now_s = self._now_s()
        if lease is None and self._since_s(peer.user, uuid) + bounds.longest_lease_s <= now_s:
            self._bar(peer.user, uuid)  # it would be over at once
        until_s = self._barred_s.get((peer.user, uuid), now_s)
        if until_s > now_s:
            raise RefusedError(
                "policy",
                f"{uuid}: you have held its clocks for as long as the policy allows; try again in {until_s - now_s:.0f} s",
            )
        first = self._first(uuid)
        if lease is None and first not in (None, peer.user):
            self._queue(uuid, peer.user)
            raise RefusedError("queued", f"{uuid}: user {first} has waited for this GPU for longer; try again")
        try:
            if lease is None:
                if uuid in self._unrestored:
                    self._restore_again(uuid)
                self.recover()
                setter = self._setters[uuid]
                clocks = LeasedClocks(
                    setter,
                    self.policy.restore(self.gpus[uuid]),
                    _holder(peer),
                    auto=_widest(bounds, setter.supported_clocks()),
                )
                clocks.hold()
                since_s = self._since_s(peer.user, uuid)
                lease = self._held[uuid] = Lease(owner, peer, clocks, since_s, since_s + bounds.longest_lease_s, bounds)
                self._waiting.get(uuid, {}).pop(peer.user, None)
                self._log("lease", gpu=uuid, user=peer.user, process=peer.process, longest_s=bounds.longest_lease_s)
            if claim:
                lease.clocks.claim()
                lease.claimed = True
        except WastenotError as error:
            raise RefusedError("device" if isinstance(error, DriverError) else "leased", str(error)) from error
        self._lost.pop((owner, uuid), None)

    def set(self, owner: object, uuid: str, setting: Setting) -> None:
        """Request a setting.

        Raises:
            RefusedError: without a lease, beyond the policy, or the driver refuses.
        """
        lease = self._lease(owner, uuid)
        bounds = self._bounds(lease.peer, uuid)
        for name in ("core_mhz", "memory_mhz", "power_limit_w"):
            _check(uuid, name, getattr(setting, name), getattr(bounds, name))
        lease.requests += 1
        if setting not in lease.seen and len(lease.seen) < _NAMED:
            lease.seen.add(setting)
            self._log("set", gpu=uuid, user=lease.peer.user, process=lease.peer.process, setting=setting)
        try:
            lease.clocks.request(setting)
        except DeviceError as error:
            if not lease.clocks.holding:
                self._forget(uuid, "a request failed")
            raise RefusedError("refused" if isinstance(error, ClocksRefusedError) else "device", str(error)) from error
        lease.setting = setting
        if not lease.clocks.holding:
            self._forget(uuid, "asked")

    def release(self, owner: object, uuid: str) -> None:
        """End a lease; nothing happens where there is none.

        Raises:
            RefusedError: the GPU could not be restored yet.
        """
        lease = self._held.get(uuid)
        if lease is not None and lease.owner is owner:
            self._end(uuid, "asked")
        self._lost.pop((owner, uuid), None)
        if uuid in self._unrestored:
            raise RefusedError("device", f"{uuid}: {self._unrestored[uuid]}")

    def hung_up(self, owner: object, why: str) -> None:
        """End the leases of a connection that is no more."""
        for uuid in [uuid for uuid, lease in self._held.items() if lease.owner is owner]:
            self._end(uuid, why)
        for key in [key for key in self._lost if key[0] is owner]:
            del self._lost[key]

    def silent(self, owner: object) -> None:
        """End the leases of a connection that has missed its heartbeats; it is told when it speaks again."""
        for uuid in [uuid for uuid, lease in self._held.items() if lease.owner is owner]:
            self._lost[owner, uuid] = f"no heartbeat for {self.policy.heartbeat_s:g} s"
            self._end(uuid, "missed heartbeats")

    def look_after(self) -> float | None:
        """End leases that have lasted as long as they may, and try again to restore; the moment to look again."""
        now_s = self._now_s()
        if now_s - self._searched_s >= _SEARCH_S:
            self._searched_s = now_s
            self._ask_missing()
            self.recover()
        for uuid in [uuid for uuid, lease in self._held.items() if lease.until_s <= now_s]:
            lease = self._held[uuid]
            self._lost[lease.owner, uuid] = "it reached the time limit of the policy"
            self._end(uuid, "reached the time limit of the policy")
            self._bar(lease.peer.user, uuid)
        for uuid in [uuid for uuid, each in self._unrestored.items() if each.again_s <= now_s]:
            with suppress(Exception):
                self._restore_again(uuid)
        self._barred_s = {key: at_s for key, at_s in self._barred_s.items() if at_s > now_s}
        self._used_s = {key: used for key, used in self._used_s.items() if now_s - used[1] < _PAUSE_S}
        return min(
            [lease.until_s for lease in self._held.values()] + [each.again_s for each in self._unrestored.values()],
            default=None,
        )

    def take_policy(self, policy: Policy) -> None:
        """Hold another policy from now on: leases that it does not allow end, and what was set comes within its bounds."""
        self.policy = policy
        for uuid, lease in list(self._held.items()):
            bounds = policy.bounds(lease.peer, self.gpus[uuid])
            if bounds is None:
                self._lost[lease.owner, uuid] = "the policy has changed and no longer allows it"
                self._end(uuid, "no longer allowed")
                continue
            try:
                self._bound(uuid, lease, bounds)
            except Exception as error:  # whatever it is, this lease ends, and the others go on
                self._lost[lease.owner, uuid] = f"the policy has changed, and {error}"
                self._end(uuid, f"cannot be brought within the policy: {type(error).__name__}: {error}")
            else:
                lease.until_s = min(lease.until_s, lease.since_s + bounds.longest_lease_s)

    def end_all(self) -> bool:
        """End all leases; whether every GPU is restored."""
        for uuid in list(self._held):
            self._end(uuid, "wastenotd is stopping")
        for uuid in list(self._unrestored):
            with suppress(Exception):
                self._restore_again(uuid)
        return not self._unrestored

    def _add(self, index: int, setter: ClockSetter) -> None:
        self._setters[setter.unique_id] = setter
        self.gpus[setter.unique_id] = Gpu(index, setter.unique_id)

    def _ask_missing(self) -> None:
        """Add the GPUs that answer by now, at the places that they have in the policy."""
        for index, each in list(self._missing.items()):
            with suppress(Exception):  # it still does not, which has been logged
                setter = each.ask_again()
                if setter.unique_id not in self.gpus:  # else another is in its place
                    self._add(index, setter)
                    del self._missing[index]
                    self._log("answers again", gpu=setter.unique_id)

    def _since_s(self, user: int, uuid: str) -> float:
        """Since when a user has a GPU that it acquires now: one that is given back and taken again was never given back."""
        now_s = self._now_s()
        since_s, until_s = self._used_s.get((user, uuid), (now_s, now_s))
        return since_s if now_s - until_s < _PAUSE_S and (user, uuid) not in self._barred_s else now_s

    def _bar(self, user: int, uuid: str) -> None:
        """Let a user who has had a GPU for as long as the policy allows wait before it gets that GPU again."""
        self._barred_s[user, uuid] = self._now_s() + _PAUSE_S
        del self._used_s[user, uuid]

    def _queue(self, uuid: str, user: int) -> None:
        """Note that a user waits for a GPU, at the end of the queue unless it is in it."""
        self._waiting.setdefault(uuid, {})[user] = self._now_s()

    def _first(self, uuid: str) -> int | None:
        """The user who waits for a GPU for longest; ``None`` where nobody does."""
        now_s = self._now_s()
        waiting = {user: at_s for user, at_s in self._waiting.pop(uuid, {}).items() if now_s - at_s < _WAITS_S}
        if waiting:
            self._waiting[uuid] = waiting
        return next(iter(waiting), None)

    def _bound(self, uuid: str, lease: Lease, bounds: Bounds) -> None:
        """Bring a lease within other bounds.

        Raises:
            WastenotError: the driver or the disk failed.
        """
        if bounds == lease.bounds:
            return
        setter = self._setters[uuid]
        auto = _widest(bounds, setter.supported_clocks())
        lease.clocks.give_up(auto.kept)
        lease.clocks.mean_by_auto(auto)
        lease.bounds = bounds
        if lease.setting is None:
            return
        within = _within(lease.setting, bounds, setter)
        if within != lease.setting:
            self._log("bounded", gpu=uuid, user=lease.peer.user, process=lease.peer.process, setting=within)
        if within == AUTO and not lease.claimed:  # a request of auto would end the lease
            lease.clocks.give_up(frozenset(KINDS))
        else:
            lease.clocks.request(within)
        lease.setting = within

    def _setter(self, uuid: str) -> ClockSetter:
        return self._setters[uuid] if uuid in self._setters else setter_of(uuid)  # one that did not answer may do so again

    def _bounds(self, peer: Peer, uuid: str) -> Bounds:
        bounds = self.policy.bounds(peer, self.gpus[uuid]) if uuid in self.gpus else None
        if bounds is None:
            raise RefusedError("policy", f"the policy of wastenotd does not let user {peer.user} set clocks of this GPU")
        return bounds

    def _lease(self, owner: object, uuid: str) -> Lease:
        lease = self._held.get(uuid)
        if lease is not None and lease.owner is owner:
            return lease
        why = self._lost.get((owner, uuid))
        if why is not None and uuid in self._unrestored:
            raise RefusedError("lost", f"{uuid}: wastenotd ended the lease of its clocks: {why}; {self._unrestored[uuid]}")
        if why is not None:
            raise RefusedError("lost", f"{uuid}: wastenotd ended the lease of its clocks and restored them: {why}")
        raise RefusedError("lost", f"{uuid}: acquire its lease first")

    def _end(self, uuid: str, why: str) -> None:
        clocks = self._held[uuid].clocks
        self._forget(uuid, why)
        try:
            clocks.end_claim()
        except Exception as error:  # whatever it is, this GPU is tried again, and the others go on
            self._unrestored[uuid] = _Unrestored(clocks)
            self._failed(uuid, error)

    def _forget(self, uuid: str, why: str) -> None:
        lease = self._held.pop(uuid)
        self._used_s[lease.peer.user, uuid] = (lease.since_s, self._now_s())
        fields = {"user": lease.peer.user, "process": lease.peer.process, "requests": lease.requests}
        self._log("end of lease", gpu=uuid, why=why, held_s=f"{self._now_s() - lease.since_s:.1f}", **fields)

    def _restore_again(self, uuid: str) -> None:
        try:
            self._unrestored[uuid].clocks.end_claim()
        except Exception as error:
            self._failed(uuid, error)
            raise
        del self._unrestored[uuid]
        self._log("restored", gpu=uuid)

    def _failed(self, uuid: str, error: Exception) -> None:
        """Note why a GPU could not be restored, and log it, but the same reason once a minute only."""
        waiting, now_s = self._unrestored[uuid], self._now_s()
        waiting.again_s = now_s + _RETRY_S
        if str(error) != waiting.why or now_s - waiting.logged_s >= _LOGGED_S:
            waiting.why, waiting.logged_s = str(error), now_s
            self._log("cannot restore", gpu=uuid, error=error)


def log_recovered(done: Recovered, log: Log) -> None:
    """Log the GPUs that were restored after their processes had died."""
    for left in done.restored:
        more = {} if left.unreadable is None else {"journal": left.unreadable}
        what = "restored" if left.this_boot else "forgotten"
        log(what, gpu=left.uuid, left_by=left.holder, to=left.outcome, **more)


def _holder(peer: Peer) -> Holder:
    return Holder(peer.process, peer.user, through_daemon=True)


def _widest(bounds: Bounds, clocks: Mapping[float, tuple[float, ...]]) -> Auto:
    """What auto means within bounds: the driver's own choice where they include the highest clock, else the highest of them.

    What may not be set is left as it was found: an administrator's lock stays.
    """
    ceilings, kept = dict[Kind, float](), set[Kind]()
    cores = {core for each in clocks.values() for core in each}
    within: list[tuple[Kind, tuple[float, float] | None, set[float]]] = [
        ("core", bounds.core_mhz, cores), ("memory", bounds.memory_mhz, {*clocks})
    ]  # fmt: skip
    for kind, allowed, have in within:
        possible = {clock for clock in have if allowed is not None and allowed[0] <= clock <= allowed[1]}
        if not possible:
            kept.add(kind)
        elif max(possible) < max(have):
            ceilings[kind] = max(possible)
    if bounds.power_limit_w is None:
        kept.add("power")
    return Auto(ceilings, frozenset(kept))


def _within(setting: Setting, bounds: Bounds, setter: ClockSetter) -> Setting:
    """The setting that the bounds allow and that is nearest; auto for what may not be set."""
    clocks = setter.supported_clocks()
    memory = _nearest(setting.memory_mhz, bounds.memory_mhz, [*clocks])
    cores = clocks.get(max(clocks, default=0.0) if memory is None else memory, ())
    core = _nearest(setting.core_mhz, bounds.core_mhz, cores)
    limits, allowed, limit_w = setter.power_limit_range_w(), bounds.power_limit_w, setting.power_limit_w
    if limit_w is None or limits is None or allowed is None:
        return Setting(core, memory)
    low, high = max(allowed[0], limits[0]), min(allowed[1], limits[1])
    return Setting(core, memory, min(max(limit_w, low), high) if low <= high else None)


def _nearest(value: float | None, allowed: tuple[float, float] | None, have: Sequence[float]) -> float | None:
    possible = [clock for clock in have if allowed is not None and allowed[0] <= clock <= allowed[1]]
    return None if value is None or not possible else min(possible, key=lambda clock: abs(clock - value))


def _check(uuid: str, name: str, value: float | None, bounds: tuple[float, float] | None) -> None:
    if value is None:
        return
    what = {"core_mhz": "core clock", "memory_mhz": "memory clock", "power_limit_w": "power limit"}[name]
    if bounds is None:
        raise RefusedError("policy", f"{uuid}: the policy of wastenotd does not let you set its {what}")
    low, high = bounds
    if not low <= value <= high:
        unit = "W" if name == "power_limit_w" else "MHz"
        raise RefusedError("policy", f"{uuid}: the policy of wastenotd allows a {what} of {low:g} to {high:g} {unit}")
