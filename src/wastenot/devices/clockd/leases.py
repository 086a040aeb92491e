"""The leases of all GPUs of this machine, each with a thread of its own, as the event loop of wastenotd gives and ends them.

A request is answered when the GPU's thread has done it, or when its driver has not answered for a while: then whoever waits
for that GPU is told so, who was refused a setting that may still take effect loses the lease, and the clocks are restored
behind the call that hangs. Nothing is begun for who has been told so or has gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from wastenot.core.errors import WastenotError
from wastenot.core.setting import Setting
from wastenot.devices.clockd.gpu_leases import GpuLeases
from wastenot.devices.clockd.log_lines import Log
from wastenot.devices.clockd.policy import Bounds, Gpu, Peer, Policy
from wastenot.devices.clockd.recoveries import Recoveries
from wastenot.devices.clockd.refused import RefusedError
from wastenot.devices.clockd.shares import Shares
from wastenot.devices.clockd.worker import Answer, Job, Worker, nobody
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import ClockSetter, Missing, setter_of
from wastenot.devices.common.patience import PATIENCE_S

_SEARCH_S = 5.0  # between looks for GPUs that a dead command of root left changed
_QUEUED = 64  # requests that wait for one GPU


class Leases:
    """All leases.

    Args:
        setters: of all GPUs, in the order of their indices; they allow changes. One that does not answer is asked again.
        policy: who may do what.
        now_s: the clock.
        log: takes what happened, and fields, from any thread.
        wake: called by any thread to have :meth:`finish` called.

    Attributes:
        policy: who may do what; see :meth:`take_policy`.
        gpus: by UUID, those that answer.
        shares: of GPUs in budgets.
    """

    def __init__(
        self,
        setters: Sequence[ClockSetter | Missing],
        policy: Policy,
        now_s: Callable[[], float],
        log: Log,
        wake: Callable[[], None],
    ) -> None:
        self.policy, self.gpus = policy, dict[str, Gpu]()
        self._now_s, self._log, self._wake = now_s, log, wake
        self._served, self._missing = dict[str, GpuLeases](), dict[int, Missing]()
        self.shares = Shares(self._served, self._missing, now_s, log)
        self._asked: dict[object, set[GpuLeases]] = {}  # by connection: GPUs that it has asked for
        for index, setter in enumerate(setters):
            if isinstance(setter, Missing):
                self._missing[index] = setter
            else:
                self._add(index, setter)
        self._searcher = Worker("wastenotd-search", now_s, wake)
        self._searched_s = now_s()
        self._elsewhere = Recoveries(now_s, log, setter_of, lambda uuid: uuid not in self._served)

    def recover(self) -> None:
        """Restore what dead processes left changed, an earlier daemon among them, as far as drivers answer."""
        self.search()
        self._wait()
        for served in self._served.values():
            served.worker.once("power", served.read_power)  # as it is found
        self._wait()

    def _wait(self) -> None:
        until_s = self._now_s() + 2.0 * PATIENCE_S
        while self.searching() or any(each.worker.jobs and not each.worker.hung for each in self._served.values()):
            time.sleep(1e-3)
            self.look_after()
            if self._now_s() > until_s:  # what is unknown to it, or does not answer at all
                return

    def search(self) -> None:
        """Look for GPUs that dead processes left changed, and restore them; and for those that did not answer."""
        self._searched_s = self._now_s()
        found, stale = list[tuple[int, ClockSetter]](), set[str]()

        def look() -> None:
            for index, each in tuple(self._missing.items()):
                with suppress(Exception):  # it still does not, which has been logged
                    found.append((index, each.ask_again()))
            with suppress(WastenotError):  # what the next line tells
                stale.update(left.uuid for left in journal.stale())
            self._elsewhere.recover()

        def take(_: RefusedError | None) -> None:
            for index, setter in found:
                if setter.unique_id not in self.gpus:  # else another is in its place
                    self._add(index, setter)
                    del self._missing[index]
                    self._log("answers again", gpu=setter.unique_id)
            for uuid, served in self._served.items():
                if uuid in stale or uuid in served.recoveries.status():
                    served.worker.once("recover", served.recoveries.recover)

        if not self._searcher.has("search"):
            self._searcher.put(Job(look, take, "search"))

    def allowed(self, peer: Peer) -> dict[str, Bounds]:
        """By UUID, what a peer may set."""
        found = {uuid: self.policy.bounds(peer, gpu) for uuid, gpu in self.gpus.items()}
        return {uuid: bounds for uuid, bounds in found.items() if bounds is not None}

    def missing(self) -> list[str]:
        """Names of the GPUs that do not answer."""
        return [each.name for each in self._missing.values()] + self.hung()

    def hung(self) -> list[str]:
        """Names of those whose driver has not returned from a call."""
        return [str(served) for served in self._served.values() if served.worker.hung]

    def holds_any(self, owner: object) -> bool:
        """Whether a connection has a lease."""
        return any(served.holder() is owner for served in self._asked.get(owner, ()))

    def status(self) -> dict[str, Any]:
        """By UUID, who has a lease, for how long and for how much longer, and whether the GPU waits to be restored."""
        known = {uuid: served.status() for uuid, served in self._served.items()}
        return self._elsewhere.status() | {uuid: status for uuid, status in known.items() if status is not None}

    def numbers(self) -> Mapping[str, tuple[int, bool, int]]:
        """By UUID, how many requests wait, whether the GPU does not answer, and how often it could not be restored."""
        return {
            uuid: (len(served.worker.jobs), served.worker.hung, served.undo_failures)
            for uuid, served in self._served.items()
        }

    def searching(self) -> bool:
        """Whether a search is not over yet."""
        return bool(self._searcher.jobs)

    def acquire(self, owner: object, peer: Peer, uuid: str, claim: bool, answer: Answer) -> None:
        """Have a lease given.

        Raises:
            RefusedError: too much is asked of the GPU, or it does not answer; else that is an answer.
        """
        self._ask(uuid, owner, lambda leases: leases.acquire(owner, peer, claim), answer)

    def set(self, owner: object, uuid: str, setting: Setting, answer: Answer) -> None:
        """Have a setting requested; raises as :meth:`acquire` does."""
        self._ask(uuid, owner, lambda leases: leases.set(owner, setting), answer)

    def release(self, owner: object, uuid: str, answer: Answer) -> None:
        """Have a lease ended, whatever else is asked of the GPU; raises as :meth:`acquire` does."""
        served = self._served[uuid]
        if served.worker.hung:
            if served.holder() is owner:
                self._take_back(served, owner, "it asked for that", "asked")
            raise self._no_answer(served)
        served.worker.put(Job(lambda: served.release(owner), answer))

    def hung_up(self, owner: object, why: str, then: Callable[[], None]) -> None:
        """End the leases of a connection that is no more, then do something; at once where a GPU does not answer."""

        def ended(served: GpuLeases, _: RefusedError | None) -> None:
            waits.discard(served)
            if not waits:
                then()

        waits = self._asked.pop(owner, set())
        ends = [(served, Job(partial(served.hung_up, owner, why), partial(ended, served))) for served in waits]
        for served, end in ends:
            for job in served.worker.jobs:
                if job.owner is owner:
                    job.tell(RefusedError("lost", why))
            served.worker.put(end)
            if served.worker.hung:
                end.tell(None)
        if not ends:
            then()

    def silent(self, owner: object) -> None:
        """End the leases of a connection that has missed its heartbeats; it is told when it speaks again."""
        for served in self._asked.get(owner, ()):
            if served.holder() is owner:
                self._take_back(served, owner, f"no heartbeat for {self.policy.heartbeat_s:g} s", "missed heartbeats")

    def finish(self) -> None:
        """Answer those whose requests are done."""
        self._searcher.finish()
        for served in tuple(self._served.values()):
            if served.worker.finish() and served.worker.hung:
                served.worker.hung = False
                self._log("answers again", gpu=served.gpu.uuid)

    def look_after(self) -> float:
        """Look after each GPU whose time has come, and tell who waits for one that does not answer; when to look again."""
        self.finish()
        now_s = self._now_s()
        if now_s - self._searched_s >= _SEARCH_S:
            self.search()
        due_s = self.shares.look_after()
        for served in self._served.values():
            if served.worker.busy_s() >= PATIENCE_S and not served.worker.hung:
                self._give_up(served)
            if served.due_s() <= now_s:
                served.worker.once("look", served.look_after)
            elif not served.worker.jobs:
                due_s = min(due_s, served.due_s())
        return due_s

    def take_policy(self, policy: Policy) -> None:
        """Hold another policy from now on: leases that it does not allow end, and what was set comes within its bounds."""
        self.policy = policy
        for served in self._served.values():
            if not any(job.name == "policy" for job in list(served.worker.jobs)[1:]):  # the first may have begun
                latest = partial(lambda served: served.take_policy(self.policy), served)
                served.worker.put(Job(latest, nobody, "policy"))

    def has_taken_policy(self) -> bool:
        """Whether the policy holds for all GPUs, but for those that do not answer, for which it will when they do."""
        return not any(served.worker.has("policy") and not served.worker.hung for served in self._served.values())

    def end_all(self, longest_s: float) -> tuple[bool, list[str]]:
        """End all leases within a time: whether every GPU is restored, and the names of those that do not answer."""
        until_s = self._now_s() + longest_s
        for served in self._served.values():
            served.worker.put(Job(served.end_all, nobody))
            served.worker.stop()
        self._searcher.stop()
        hung = [each for each in self._served.values() if not each.worker.has_ended(max(0.0, until_s - self._now_s()))]
        self.finish()
        return not hung and not any(each.unrestored for each in self._served.values()), [str(each) for each in hung]

    def _add(self, index: int, setter: ClockSetter) -> None:
        gpu = self.gpus[setter.unique_id] = Gpu(index, setter.unique_id)
        worker = Worker(f"wastenotd-gpu-{index}", self._now_s, self._wake)
        served = self._served[gpu.uuid] = GpuLeases(gpu, setter, worker, self.policy, self._now_s, self._log)
        served.worker.once("power", served.read_power)

    def _ask(self, uuid: str, owner: object, do: Callable[[GpuLeases], None], answer: Answer) -> None:
        served = self._served[uuid]
        if served.worker.hung:
            raise self._no_answer(served)
        if len(served.worker.jobs) >= _QUEUED:
            raise RefusedError("busy", f"{served}: {_QUEUED} requests wait for it already; try again later")
        self._asked.setdefault(owner, set()).add(served)
        served.worker.put(Job(lambda: do(served), answer, owner=owner))

    def _take_back(self, served: GpuLeases, owner: object, told: str, why: str) -> None:
        lease = served.lease
        if lease is not None and lease.owner is owner:
            lease.ending = True
        served.worker.put(Job(lambda: served.take_back(owner, told, why), nobody))

    def _give_up(self, served: GpuLeases) -> None:
        """Tell who waits for a GPU that it does not answer; who may get something all the same does not keep it."""
        self._log("does not answer", gpu=served.gpu.uuid, index=served.gpu.index)
        served.worker.hung = True
        waiting = tuple(served.worker.jobs)
        owners = {job.owner for job in waiting if job.owner is not None and not job.answered}
        for job in waiting:
            job.tell(self._no_answer(served))
        for owner in owners:
            self._take_back(served, owner, f"the driver did not answer for {PATIENCE_S:g} s", "the driver did not answer")

    def _no_answer(self, served: GpuLeases) -> RefusedError:
        gpu = served.gpu
        return RefusedError(
            "device",
            f"GPU {gpu.index} does not answer: a call of its driver has taken more than {PATIENCE_S:g} s; its clocks are "
            f"restored when it returns ({gpu.uuid})",
        )
