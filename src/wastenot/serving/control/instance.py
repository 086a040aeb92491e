"""One server and the GPUs that it runs on: from a reading to a clock, and to the default clocks where readings fail.

    unknown ── two good readings ──▶ controlled ─── stale, gone, frozen, restarted, nonsense ──▶ default
                                         ▲                                                         │
                                         └──────────────── two good readings ─────────────────────┘

Whatever is not known for certain leaves the clocks to the driver. What is asked for is a ceiling, so a clock that is too
high costs energy and never time.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wastenot.control.candidates import common_clocks
from wastenot.control.obeyed import Obeyed
from wastenot.core.errors import DeviceError, WastenotError, first_line
from wastenot.core.setting import AUTO, Setting, setting_text
from wastenot.core.wording import counted
from wastenot.devices.protocol import Device
from wastenot.serving.bench.server_metrics import ServerReading
from wastenot.serving.control.sources import Heard
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.by_metrics import ByMetrics

EventKind = Literal["began", "clock", "default", "controlled", "recommendation", "note", "ended"]


@dataclass(frozen=True, slots=True)
class Event:
    """What a controller tells: a clock that is set, a server that is left to its default clocks, a recommendation.

    Attributes:
        kind: of it.
        text: for a person.
        instance: that it is about; empty for all of them.
        values: for a program.
    """

    kind: EventKind
    text: str
    instance: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


Tell = Callable[[Event], None]
State = Literal["unknown", "controlled", "default"]

STALE_S = 8.0
"""Age of the last good reading from which on the clocks are left to the driver; the defaults are back within 10 s."""
_SAME_S = 0.01  # between times of one and the same reading, computed from its age
_RETRY_S = 30.0  # before a device that refused is asked again


@dataclass(frozen=True, slots=True)
class Rules:
    """How clocks are chosen.

    Attributes:
        deadlines: to be kept.
        headroom: share of each deadline that is to be left over, as the profile predicts it.
        stale_s: age of a reading that is of no use.
        dry_run: choose, and set nothing.
    """

    deadlines: Deadlines = LITERATURE
    headroom: float = 0.15
    stale_s: float = STALE_S
    dry_run: bool = True


@dataclass(slots=True)
class Instance:
    """A server under control.

    Attributes:
        name: its URL.
        devices: that it runs on; may be none, and then it is only watched.
        engine: what its steps cost.
        rules: see there.
        tell: is told what changes.
        state: see the picture above.
        why: it is left to the default clocks.
        setting: chosen for its devices.
        index: of that setting in the engine's tables.
        policy: that chooses it, by what was heard.
        latency_s: from asking for its latest reading until its clock was set.
        sets: of clocks, so far.
        requests: that have had their first token since it was heard of.
    """

    name: str
    devices: Sequence[Device]
    engine: Engine
    rules: Rules
    tell: Tell
    state: State = "unknown"
    why: str = "no metrics yet"
    setting: Setting = AUTO
    index: int = -1
    policy: ByMetrics = field(init=False)
    latency_s: float | None = None
    sets: int = 0
    requests: float = 0.0
    _last_good_s: float = 0.0
    _moved_s: float = 0.0
    _fault: str = ""
    _retry_s: float = 0.0
    _undone: bool = True
    _ladder: tuple[Setting, ...] = ()
    _obeyed: list[Obeyed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last_good_s = self._moved_s = time.monotonic()
        self.policy = ByMetrics(self.rules.headroom)
        self.index = self.policy.begin(self.engine, self.rules.deadlines)
        self._ladder = ladder(self.engine, self.devices)
        self._obeyed = [Obeyed() for _ in self.devices]

    # ---- readings ------------------------------------------------------------------------------------------------------

    def hear(self, heard: Heard, now_s: float) -> None:
        """Take in what was heard, and set the clock that follows from it."""
        if heard.reading is None:
            self._fault = heard.why
            if heard.nonsense:
                self._to_default(heard.why)
        elif self._is_new(heard, now_s):
            self._take(heard, heard.reading, now_s)

    def check(self, now_s: float) -> None:
        """Leave the clocks to the driver where nothing good has been heard for too long; try again what failed."""
        silent_s = now_s - self._last_good_s
        if silent_s >= self.rules.stale_s:
            self._to_default(f"no metrics for {silent_s:.0f} s" + (f": {self._fault}" if self._fault else ""))
        elif self.state == "default" and not self._undone:
            self._undo()
        if self.setting.core_mhz is not None and not self.rules.dry_run:
            self._look(now_s, self.setting.core_mhz)

    def _look(self, now_s: float, asked_mhz: float) -> None:
        """Whether the GPUs keep the clock that they accepted."""
        for device, obeyed in zip(self.devices, self._obeyed, strict=True):
            try:
                told = obeyed.look(now_s, asked_mhz, device.sensors.clocks().core_mhz)
            except DeviceError:
                continue  # setting its clock will say so
            if told is not None:
                self.tell(Event("note", f"{self.name}: {device.identity.name}: {told}", self.name))

    def _is_new(self, heard: Heard, now_s: float) -> bool:
        """Whether a reading is recent, and later than the one before."""
        age_s = now_s - heard.at_s
        if age_s >= self.rules.stale_s:
            self._fault = f"its metrics are {age_s:.0f} s old"
            return False
        readings = self.policy.recent.readings
        return not readings or heard.at_s > readings[-1][0] + _SAME_S

    def _take(self, heard: Heard, reading: ServerReading, now_s: float) -> None:
        before = self.policy.recent.latest
        self._fault, self._last_good_s = "", heard.at_s
        if before is not None and reading.began_anew(before):
            self._to_default("its counters restarted: the server was restarted")
            before = None
        self.policy.hear(heard.at_s, reading)
        if before is None or _moved(before, reading):
            self._moved_s = heard.at_s
        if before is not None and before.ttft is not None and reading.ttft is not None:
            self.requests += reading.ttft.total - before.ttft.total
        if heard.at_s - self._moved_s >= self.rules.stale_s:
            self._to_default("requests are running, but its metrics have not changed")
        elif self.policy.ready and now_s >= self._retry_s:
            self._control(heard.at_s, reading, now_s)

    # ---- clocks --------------------------------------------------------------------------------------------------------

    def _control(self, at_s: float, reading: ServerReading, now_s: float) -> None:
        if self.state != "controlled":
            self.state, self.why = "controlled", ""
            self.tell(Event("controlled", f"{self.name}: its metrics are valid; its clocks are chosen from them", self.name))
        self._set(self.policy.decide(), reading, now_s)
        self.latency_s = time.monotonic() - at_s

    def _set(self, index: int, reading: ServerReading, now_s: float) -> None:
        wanted = self._ladder[index]
        self.index = index
        if wanted == self.setting:
            return
        if not self.rules.dry_run:
            try:
                for device in self.devices:
                    self._undone = False
                    device.clocks.request(wanted)
            except DeviceError as error:
                self._retry_s = now_s + _RETRY_S
                self._to_default(f"a clock cannot be set: {first_line(error)}")
                return
        self.setting, wanted_text = wanted, setting_text(wanted, "default clocks")
        self.sets += 1
        would, seen, steps = "would be " if self.rules.dry_run else "", self.policy.load, self.policy.feedback.steps
        load = "" if seen is None else f", at most {seen.rate_per_s:.2g} requests/s"
        up = f", {counted(steps, 'clock')} higher for missed deadlines" if steps else ""
        self.tell(
            Event(
                "clock",
                f"{self.name}: {would}{wanted_text}; {reading.running:g} running, {reading.waiting:g} waiting{load}{up}",
                self.name,
                {
                    "core_mhz": wanted.core_mhz, "running": reading.running, "waiting": reading.waiting,
                    "rate_per_s": None if seen is None else seen.rate_per_s, "steps_up": steps,
                    "dry_run": self.rules.dry_run,
                },
            )
        )  # fmt: skip

    def _to_default(self, why: str) -> None:
        """Leave the clocks to the driver, and say why once."""
        told = self.state == "default"
        self.state, self.setting, self.index = "default", AUTO, len(self._ladder) - 1
        self.policy.restart()
        self._undo()
        if told:
            return
        self.why = why
        self.tell(Event("default", f"{self.name}: default clocks: {why}", self.name, {"why": why}))

    def _undo(self) -> None:
        """Give the clocks back; what fails is tried again at the next check."""
        if self.rules.dry_run or self._undone:
            return
        failed = False
        for device in self.devices:
            try:
                device.clocks.release()
            except WastenotError as error:
                failed = True
                text = f"{self.name}: {device.identity.name}: its clocks could not be reset: {first_line(error)}"
                if text != self._fault:
                    self._fault = text
                    self.tell(Event("note", text, self.name))
        self._undone = not failed


def ladder(engine: Engine, devices: Sequence[Device]) -> tuple[Setting, ...]:
    """What to ask the devices for, for each setting of an engine's tables: the next clock that they have, and last auto."""
    have = common_clocks(devices) if devices else []
    found = []
    for setting in engine.tables.settings[:-1]:
        core = setting.core_mhz
        if core is not None and have:
            at = bisect_left(have, core - 0.5)
            core = have[at] if at < len(have) else None
        found.append(Setting(core, None, None))
    return (*found, AUTO)


def _moved(before: ServerReading, now: ServerReading) -> bool:
    """Whether a server has done something since, or has nothing to do; one that does not say counts as moving.

    SGLang counts tokens only when a request ends, so latencies, which it counts with each token, are looked at, too.
    """
    if now.running == 0.0 and now.waiting == 0.0:
        return True
    told = [(now.output_tokens, before.output_tokens), (now.prompt_tokens, before.prompt_tokens)]
    latencies = ((now.tbt, before.tbt), (now.ttft, before.ttft))
    told += [(new.total, old.total) for new, old in latencies if new is not None and old is not None]
    known = [(new, old) for new, old in told if new is not None and old is not None]
    return not known or any(new > old for new, old in known)
