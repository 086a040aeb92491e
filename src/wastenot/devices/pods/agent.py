"""Has wastenotd set what annotated pods ask for, on the GPUs that they use, and takes it back when they no longer do.

    driver: processes of a GPU ──▶ /proc: their pods ──▶ API: annotations ──▶ wastenotd: lease, journal, set, restore

It sets nothing itself, so wastenotd restores the clocks however it ends. A GPU that anybody else uses too is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

from wastenot.core.errors import BadInputError, ServerError, WastenotError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.clockd.log_lines import Log, Repeats
from wastenot.devices.clockd.metrics import Kind, Labels, Metrics
from wastenot.devices.common.daemon_clocks import DaemonClocks
from wastenot.devices.pods.api import Pod
from wastenot.devices.pods.wish import wish_of

METRICS: Mapping[str, tuple[Kind, str]] = {
    "core_mhz": ("gauge", "Ceiling of the core clock set for the pods that use a GPU"),
    "memory_mhz": ("gauge", "Memory clock set for the pods that use a GPU"),
    "power_limit_w": ("gauge", "Power limit set for the pods that use a GPU"),
    "refused": ("gauge", "1 where what pods ask for is not set, else 0; the log says why"),
    "api_failures_total": ("counter", "Requests to Kubernetes' API that failed"),
}
_NOBODY = ""  # pods_of: a process that is in no pod


@dataclass(slots=True)
class Gpu:
    """A GPU of the node.

    Attributes:
        uuid: of the card.
        clocks: of it, through wastenotd.
        processes: gives the IDs of the processes that compute on it; ``None`` where the driver does not tell.
        pods: names of those for which something is set, or would be.
        setting: that is set.
        refused: why what they ask for is not set; empty where it is.
    """

    uuid: str
    clocks: DaemonClocks
    processes: Callable[[], tuple[int, ...] | None]
    pods: str = ""
    setting: Setting = AUTO
    refused: str = ""


class Agent:
    """What a node needs.

    Args:
        gpus: of the node.
        ask: gives the node's pods by their UIDs; raises ServerError.
        pod_of: the UID of a process' pod, see :func:`wastenot.devices.pods.owners.pod_of`.
        plans: folder of the plans that annotations name.
        stale_s: after which annotations are asked for again; those of a pod that is new are asked for at once.
        now_s: the clock.
        log: takes what happened, and fields.

    Attributes:
        metrics: in Prometheus' text format, as of the last turn.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        ask: Callable[[], Mapping[str, Pod]],
        pod_of: Callable[[int], str | None],
        plans: Path,
        stale_s: float,
        now_s: Callable[[], float],
        log: Log,
    ) -> None:
        self._gpus, self._ask, self._pod_of, self._plans, self._stale_s = gpus, ask, pod_of, plans, stale_s
        self._now_s, self._log = now_s, log
        self._pods: Mapping[str, Pod] = {}
        self._asked_s, self._repeats = -inf, Repeats(now_s)
        self._counts = Metrics(METRICS, "wastenot_pods")
        for part in ("core_mhz", "memory_mhz", "power_limit_w"):
            self._counts.read(part, partial(self._set, part))
        self._counts.read("refused", self._refused)
        self.metrics = self._counts.text()

    def turn(self) -> None:
        """Look who uses the GPUs, and set or take back what that means; faults of one GPU leave the others alone."""
        users = {gpu.uuid: uids for gpu in self._gpus if (uids := self._users(gpu)) is not None}
        seen = {uid for uids in users.values() for uid in uids} - {_NOBODY}
        if seen - self._pods.keys() or (seen and self._now_s() - self._asked_s >= self._stale_s):
            self._refresh()
        for gpu in self._gpus:
            if gpu.uuid not in users:
                continue
            uids = users[gpu.uuid]
            gpu.pods = ", ".join(sorted(self._name(uid) for uid in uids))
            try:
                self._hold(gpu, self._wanted(gpu, uids, [*users.values()]))
                gpu.refused = ""
            except WastenotError as error:
                self._refuse(gpu, error)
        self.metrics = self._counts.text()

    def close(self) -> None:
        """Take everything back."""
        for gpu in self._gpus:
            self._give_back(gpu)

    def _users(self, gpu: Gpu) -> frozenset[str] | None:
        """UIDs of the pods whose processes compute on a GPU, one empty where there are others'; ``None`` after a fault."""
        try:
            found = {self._pod_of(process) for process in gpu.processes() or ()}
        except WastenotError as error:
            self._refuse(gpu, error)
            return None
        return frozenset(uid for uid in found if uid is not None)

    def _refresh(self) -> None:
        try:
            self._pods = self._ask()
            self._asked_s = self._now_s()
        except ServerError as error:  # what was known holds
            self._counts.count("api_failures_total")
            if self._repeats.is_news("API", str(error)):
                self._log("API", error=error, kept="what was known of pods")

    def _wanted(self, gpu: Gpu, uids: frozenset[str], users: Sequence[frozenset[str]]) -> Setting:
        """What is to be set for the pods of a GPU.

        Raises:
            BadInputError: an annotation cannot be understood or carried out, or they do not ask for the same.
        """
        settings = set[Setting]()
        for uid in uids:
            pod = self._pods.get(uid)
            wish = None if pod is None else wish_of(pod, self._plans)
            if pod is None or wish is None:
                settings.add(AUTO)
                continue
            settings.add(wish.setting(gpu.clocks, max(pod.gpus, sum(uid in each for each in users))))
            if wish.note and self._repeats.is_news(uid, wish.note):
                self._log("note", pod=pod.name, text=wish.note)
        if len(settings) > 1:
            raise BadInputError("those who share this GPU do not ask for the same, so nothing is set")
        return settings.pop() if settings else AUTO

    def _hold(self, gpu: Gpu, setting: Setting) -> None:
        if gpu.clocks.lost:
            self._give_back(gpu)
        if setting == gpu.setting:
            return
        if setting == AUTO:
            self._give_back(gpu)
            return
        gpu.clocks.request(setting)
        gpu.setting = setting
        self._log("set", gpu=gpu.uuid, pods=gpu.pods, setting=setting)

    def _refuse(self, gpu: Gpu, error: WastenotError) -> None:
        self._give_back(gpu)
        gpu.refused = str(error)
        if self._repeats.is_news(gpu.uuid, f"{gpu.pods} {error}"):
            self._log("not set", gpu=gpu.uuid, pods=gpu.pods, why=error)

    def _give_back(self, gpu: Gpu) -> None:
        had, gpu.setting = gpu.setting, AUTO
        try:
            gpu.clocks.release()
        except WastenotError as error:  # the connection is closed, so that wastenotd tries until it is restored
            self._log("cannot give back", gpu=gpu.uuid, error=error)
        else:
            if had != AUTO:
                self._log("given back", gpu=gpu.uuid)

    def _name(self, uid: str) -> str:
        return "a process in no pod" if uid == _NOBODY else self._pods[uid].name if uid in self._pods else f"pod {uid}"

    def _set(self, part: str) -> dict[Labels, float]:
        """A part of what is set, by GPU and pods, whose names need no quoting."""
        found = ((gpu, getattr(gpu.setting, part)) for gpu in self._gpus)
        return {(("gpu", gpu.uuid), ("pods", gpu.pods)): value for gpu, value in found if value is not None}

    def _refused(self) -> dict[Labels, float]:
        return {(("gpu", gpu.uuid),): float(bool(gpu.refused)) for gpu in self._gpus}
