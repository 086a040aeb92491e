"""The driver fails with every error code of NVML, in each call that sets or undoes, once or until it is repaired.

Every call fails in two ways: without effect, and after it has taken effect. Clocks are set by root's own process and through
the daemon. Whatever is left changed must have been told, and be in the journal; once the driver works it must be undone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.safety.trial import Trial
from testbed.daemon_process import Daemon
from testbed.stand_in.codes import Code
from testbed.stand_in.fixtures import StandIn, start_stand_in
from wastenot.core.errors import WastenotError
from wastenot.core.setting import Setting
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE
from wastenot.devices.common.journal import journals
from wastenot.devices.open import open_gpu

_SETTING = Setting(1200.0, 2201.0, 500.0)
_LATER = Setting(1305.0, 3201.0, 400.0)
# Calls that go well before: of the power limit, the last that sets it is the undo.
_CALLS = (
    ("set", "nvmlDeviceSetGpuLockedClocks", 0),
    ("set", "nvmlDeviceSetGpuLockedClocks", 1),
    ("set", "nvmlDeviceSetMemoryLockedClocks", 0),
    ("set", "nvmlDeviceSetPowerManagementLimit", 0),
    ("set", "nvmlDeviceSetPowerManagementLimit", 1),
    ("undo", "nvmlDeviceResetGpuLockedClocks", 0),
    ("undo", "nvmlDeviceResetMemoryLockedClocks", 0),
    ("undo", "nvmlDeviceSetPowerManagementLimit", 2),
)
_NOTHING_DONE = (Code.NO_PERMISSION, Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.INVALID_ARGUMENT)
"""What says that a call has changed nothing; a driver that returns it after a change is not believed in here."""


@dataclass(frozen=True, slots=True)
class Run:
    """A fault, and where it comes."""

    where: str
    call: str
    after: int
    code: Code
    times: int | None
    takes_effect: bool

    def __str__(self) -> str:
        often = "until repaired" if self.times is None else "once"
        effect = "after it took effect" if self.takes_effect else "without effect"
        return f"{self.call} ({self.after} before) returns {self.code.name} {often}, {effect}"


def runs(code: Code) -> Iterator[Run]:
    """All with a code."""
    for where, call, after in _CALLS:
        for times in (1, None):
            for takes_effect in (False, True):
                if not (takes_effect and where == "set" and code in _NOTHING_DONE):
                    yield Run(where, call, after, code, times, takes_effect)


def main() -> Trial:
    """Run all, in both ways; each code has a stand-in of its own, as one that has a long past becomes slow."""
    codes = [code for code in Code if code != Code.SUCCESS]
    failed: list[str] = []
    count = told = 0
    for code in codes:
        with (
            start_stand_in("h200", gpus=1, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as name,
            pytest.MonkeyPatch.context() as patch,
        ):  # fmt: skip
            stand_in.use(patch)
            patch.setenv("WASTENOT_STATE", f"{name}/state")
            patch.delenv("WASTENOT_READ_ONLY", raising=False)
            patch.delenv(SOCKET_VARIABLE, raising=False)
            daemon = Daemon(stand_in, Path(name))
            for way in ("directly", "through the daemon"):
                if way != "directly":
                    patch.setenv(SOCKET_VARIABLE, str(daemon.socket))
                    daemon.start(f"requests_per_s = 100000\n[[allow]]\nusers = [{os.getuid()}]\n")
                for run in runs(code):
                    wrong, left = _tried(stand_in, run)
                    failed += [f"{way}: {run}: {each}" for each in wrong]
                    count, told = count + 1, told + left
            if "Traceback" in daemon.said() or "wastenotd failed" in daemon.said():
                failed.append(f"{code.name}: the daemon failed: {daemon.said()[-1000:]}")
            if daemon.stop():
                failed.append(f"{code.name}: the daemon could not restore everything at its end")
    return Trial(count, failed, {"error_codes": len(codes), "left_changed_and_told_until_repaired": told})


def _tried(stand_in: StandIn, run: Run) -> tuple[list[str], bool]:
    """What of a run went wrong, and whether something was left changed, which was told."""
    control = stand_in.control
    control.reset()  # what it remembers of its past would slow it down
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    control.fault(run.call, run.code.name, times=run.times, after=run.after, takes_effect=run.takes_effect)
    wrong, told = list[str](), False
    for do in (lambda: clocks.request(_SETTING), lambda: clocks.request(_LATER), clocks.release):
        try:
            do()
        except WastenotError:
            told = True
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
    left = not control.state().untouched
    if left and not told:
        wrong.append("something was left changed, and nobody was told")
    if left and not journals():
        wrong.append("something was left changed without a journal")
    control.clear_faults()
    try:
        clocks.release()
        with open_gpu("nvidia:0", allow_clock_control=True).clocks.claimed():
            pass
    except WastenotError as error:
        wrong.append(f"after the repair: {error}")
    if not control.state().untouched or journals():
        wrong.append("it was not undone after the repair")
    return wrong, left
