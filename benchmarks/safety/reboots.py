"""The machine is started again at random moments: all processes are killed, and the next boot has another identity.

In half of the boots ``/run`` is empty, as tmpfs is; in the others the journals are still there. The driver has its defaults
until an administrator's script, before the daemon or root's next command, sets power limits and locks clocks. From then on
nothing may be set but by who acquires a lease, and what that changes returns to what the administrator has set.

    clients at work, or the daemon just started ──SIGKILL──▶ new boot ID, driver reset, /run emptied or not
        ──administrator──▶ daemon or root's command ──▶ checked ──▶ a client sets and releases ──▶ checked

The kernel's ``boot_id`` is a file that is mounted over it, in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.safety.trial import Trial
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.kill_runs import Runs, change_clocks_forever, kill
from wastenot.core.errors import DeviceError, WastenotError
from wastenot.core.setting import Setting
from wastenot.devices.common.daemon_connection import Connection, LeaseLostError
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE
from wastenot.devices.common.journal import journals
from wastenot.devices.nvidia.nvml import Nvml
from wastenot.devices.open import open_gpu

REBOOTS, _SEED, _GPUS = 500, 31, 2
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LOCK_MHZ = (0, 1500)  # that an administrator's script sets, and the policy names
_MOST_REQUESTS = 6  # that a client completes before the machine stops
_LONGEST_WAIT_S = 0.004  # after that
_LONGEST_START_S = 0.1  # of a daemon, and a little more


def main(reboots: int = REBOOTS) -> Trial:
    """Start the machine again so often; needs root, which may mount."""
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*alone, sys.executable, "-m", __name__, str(reboots)], stdout=subprocess.PIPE, text=True, check=True
    )
    return Trial(**json.loads(done.stdout.splitlines()[-1]))


class Machine:
    """A machine that is started again and again.

    Args:
        folder: what is ``/run`` there.
        boot: the file that says which boot it is.
    """

    def __init__(self, folder: Path, boot: Path) -> None:
        self._folder, self._boot, self._rng = folder, boot, random.Random(_SEED)
        self._runs = Runs(folder, "both", _SEED)  # starts a daemon
        self._policy = ""
        self.failed: list[str] = []
        self.numbers = dict.fromkeys(
            ("changed_when_killed", "daemon_killed_while_starting", "run_kept", "journals_found", "administrators_settings"),
            0,
        )

    def start_again(self, turn: int) -> None:
        """Let it work, stop it at a random moment, and start it."""
        wrong = self._stop(turn) + self._start() + self._work()
        self.failed += [f"boot {turn}: {each}" for each in wrong]

    def _states(self) -> list[tuple[object, ...]]:
        states = map(self._runs.control.state, range(_GPUS))
        return [(each.locked_core_mhz, each.locked_memory_mhz, each.power_limit_w) for each in states]

    def _stop(self, turn: int) -> list[str]:
        rng, runs, before = self._rng, self._runs, self._states()
        survivor = Connection()
        survivor.ask("acquire", gpu=runs.control.state(0).uuid)
        survivor.ask("set", gpu=runs.control.state(0).uuid, core_mhz=float(1200))
        completed, done = os.pipe()
        gpus = [1] if rng.random() < 0.5 else [0, 1]
        alive = [runs.fork(lambda gpu=gpu: change_clocks_forever(turn * _GPUS + gpu, gpu, done)) for gpu in gpus]
        os.close(done)
        for _ in range(rng.randint(0, _MOST_REQUESTS)):
            os.read(completed, 1)
        time.sleep(rng.uniform(0.0, _LONGEST_WAIT_S))
        alive.append(runs.daemon)
        if rng.random() < 0.25:  # the daemon has been killed before, and is just being started again
            kill(alive.pop())
            alive.append(runs.begin_daemon(self._policy))
            time.sleep(rng.uniform(0.0, _LONGEST_START_S))
            self.numbers["daemon_killed_while_starting"] += 1
        rng.shuffle(alive)
        for process in alive:
            kill(process)
        for process in alive:
            runs.control.wait_for(process)
        os.close(completed)
        self.numbers["changed_when_killed"] += self._states() != before
        try:
            survivor.ask("set", gpu=runs.control.state(0).uuid, core_mhz=float(1200))
        except DeviceError:
            return []
        finally:
            survivor.close()
        return ["a client was not told that its lease is gone"]

    def _start(self) -> list[str]:
        rng, runs, wrong = self._rng, self._runs, list[str]()
        self._boot.write_text(f"{uuid.UUID(int=rng.getrandbits(128), version=4)}\n")
        runs.control.reset()
        if rng.random() < 0.5:
            self.numbers["run_kept"] += 1
            self.numbers["journals_found"] += len(journals())
        else:
            for path in self._folder.iterdir():
                if path.name != "log":
                    path.unlink()
        locked = rng.random() < 0.5
        self._policy = f"[[restore]]\ncore_mhz = {[*_LOCK_MHZ]}\n" if locked else ""
        limit_w = rng.choice([None, rng.randint(250, 650)])
        self.numbers["administrators_settings"] += locked or limit_w is not None
        administrator = runs.fork(lambda: _administrate(locked, limit_w))
        os.waitpid(administrator, 0)
        before = self._states()
        if rng.random() < 0.3:
            open_gpu("nvidia:0")  # a command of root comes first
        runs.start_daemon(self._policy)
        setters = [call for gpu in range(_GPUS) for call in runs.control.state(gpu).setters if call.process != administrator]
        if setters or self._states() != before:
            wrong.append(f"{before} became {self._states()} by {setters}")
        if journals():
            wrong.append(f"a journal is left: {journals()}")
        return wrong

    def _work(self) -> list[str]:
        """A lease of before is gone, and a new one gives back what it has found."""
        runs, wrong, before = self._runs, list[str](), self._states()
        connection = Connection()
        if connection.ask("status")["leases"]:
            wrong.append("somebody has a lease")
        try:
            connection.ask("set", gpu=runs.control.state(0).uuid, core_mhz=float(1200))
            wrong.append("a lease of before is still in force")
        except LeaseLostError:
            pass
        connection.close()
        clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
        try:
            clocks.request(Setting(1200.0, 2201.0, 500.0))
            if self._states() == before:
                wrong.append("a client's setting had no effect")
        except WastenotError as error:
            wrong.append(f"a client is refused: {error}")
        clocks.release()
        if self._states() != before:
            wrong.append(f"a client left {self._states()} of {before}")
        return wrong

    def end(self) -> None:
        """Stop it."""
        self._runs.end()
        said = (self._folder / "log").read_text()
        if "Traceback" in said or "wastenotd failed" in said:
            self.failed.append(f"the daemon failed: {said[-3000:]}")


def _administrate(locked: bool, limit_w: int | None) -> None:
    """What a script does when the machine starts, in a process of its own."""
    nvml = Nvml(allow_changes=True)
    for gpu in range(_GPUS):
        handle = nvml.call("nvmlDeviceGetHandleByIndex", gpu)
        if locked:
            nvml.call("nvmlDeviceSetGpuLockedClocks", handle, *_LOCK_MHZ)
        if limit_w is not None:
            nvml.call("nvmlDeviceSetPowerManagementLimit", handle, 1000 * limit_w)


def _inside(reboots: int) -> Trial:
    with (
        start_stand_in("h200", gpus=_GPUS, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
    ):  # fmt: skip
        boot, folder = Path(name, "boot_id"), Path(name, "run")
        folder.mkdir(mode=0o700)
        boot.write_text("the first boot\n")
        subprocess.run(["mount", "--bind", boot, _BOOT_ID], check=True)
        stand_in.use(patch)
        patch.setenv("WASTENOT_STATE", str(folder))
        patch.delenv("WASTENOT_READ_ONLY", raising=False)
        patch.delenv(SOCKET_VARIABLE, raising=False)
        machine = Machine(folder, boot)
        for turn in range(reboots):
            machine.start_again(turn)
        machine.end()
        subprocess.run(["umount", _BOOT_ID], check=True)
    return Trial(reboots, machine.failed, machine.numbers)


if __name__ == "__main__":
    print(json.dumps(asdict(_inside(int(sys.argv[1])))))
