"""Kills processes that are changing clocks, at random moments, and checks what is left.

Runs against stand-ins for drivers only, whose state outlives its clients; no real GPU is ever touched:

    python -m testbed.stand_in.kill_runs [KIND] [KILLS] [SEED] [PRESET]    # mi210: AMD's, behind AMD SMI

Every victim is a process of its own, which requests and releases settings of one of two GPUs for as long as it lives. It is
killed after a random number of requests and a random wait, so in the middle of any of its steps. One kill of root's
processes in five is aimed: at a moment when clocks are changed.

    root     a process that sets clocks itself, as root; checked after the next command
    client   a client of wastenotd; checked while the daemon lives
    hang     the same, stopped (SIGSTOP) instead of killed
    daemon   wastenotd, while a client works; checked after its next start
    both     wastenotd and its client, in random order; checked after the next start or the next command of root
    budget   the same while the GPUs share a budget of watts; checked after the next start, without one
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from testbed.stand_in.amd_library import SOCKET_VARIABLE as AMD_SOCKET_VARIABLE
from testbed.stand_in.control import Control
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.library import SOCKET_VARIABLE
from testbed.stand_in.profiles import NUMBERS
from wastenot.core.errors import WastenotError
from wastenot.core.setting import Setting
from wastenot.devices.clockd.main import main as wastenotd
from wastenot.devices.common.daemon_connection import Connection
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE as DAEMON_SOCKET
from wastenot.devices.common.journal import journals
from wastenot.devices.open import open_gpu

KINDS = ("root", "client", "hang", "daemon", "both", "budget")
HEARTBEAT_S = 0.3
_GPUS = 2
_MOST_REQUESTS = 6  # that a victim completes before it is killed
_LONGEST_WAIT_S = 0.004  # after that
_AIMED_EVERY = 5  # one kill in so many finds clocks changed, however slow the machine is
_BUDGET = "[[budget]]\nbudget_w = 900\n"  # of two H200, which may draw 700 W each
_PATIENCE_S = 60.0  # for what should take no longer than a heartbeat


def vendor() -> str:
    """Whose GPUs the server has."""
    return "amd" if AMD_SOCKET_VARIABLE in os.environ else "nvidia"


def change_clocks_forever(seed: int, gpu: int, done: int) -> None:
    """What a victim does until it is killed: request and release settings, writing a byte to ``done`` after each."""
    rng = random.Random(seed)
    while True:
        try:
            clocks = open_gpu(f"{vendor()}:{gpu}", allow_clock_control=True).clocks
            states, limits, profiles = clocks.supported_clocks(), clocks.power_limits_w(), clocks.profiles()
            break
        except WastenotError:
            time.sleep(0.001)  # its daemon was killed
    assert limits is not None
    while True:
        memory = rng.choice([*states, None])
        core = rng.choice([*states[memory or max(states)], None])
        limit = rng.choice([None, float(round(rng.uniform(*limits)))])
        try:
            clocks.request(Setting(core, memory, limit, rng.choice([*profiles, None])))
            if rng.random() < 0.3:
                clocks.release()
        except WastenotError:
            time.sleep(0.001)  # its daemon was killed
        os.write(done, b".")


class Runs:
    """Kills of one kind.

    Args:
        folder: of journals, policy, socket and log.
        kind: of :data:`KINDS`.
        seed: of all that is random.
    """

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.control = Control(os.environ[AMD_SOCKET_VARIABLE if vendor() == "amd" else SOCKET_VARIABLE])
        self.folder, self._kind, self._seed, self._rng = folder, kind, seed, random.Random(f"{kind} {seed}")
        self._policy, self._socket = folder / "wastenotd.toml", folder / "wastenotd.sock"
        self.daemon = 0
        if kind != "root":
            os.environ[DAEMON_SOCKET] = str(self._socket)
            self.start_daemon(_BUDGET if kind == "budget" else "")

    def kill(self, turn: int) -> dict[str, float]:
        """Kill once; what was found."""
        gpu = self._rng.randrange(_GPUS)
        completed, done = os.pipe()
        victim = self.fork(lambda: change_clocks_forever(self._seed * 1_000_003 + turn, gpu, done))
        os.close(done)
        for _ in range(self._rng.randint(0, _MOST_REQUESTS)):
            os.read(completed, 1)
        time.sleep(self._rng.uniform(0.0, _LONGEST_WAIT_S))
        if self._kind == "hang":
            os.kill(victim, signal.SIGSTOP)
        elif self._kind == "root" and turn % _AIMED_EVERY == 0:
            self.stop_where_changed(victim)
        changed = self._kind in ("client", "hang") and bool(journals())  # the daemon may be faster than a look afterwards
        began = time.monotonic()
        both = [victim, self.daemon]
        self._rng.shuffle(both)
        dead = {"root": [victim], "client": [victim], "hang": [], "daemon": [self.daemon]}.get(self._kind, both)
        for process in dead:
            try:
                kill(process)
            except RuntimeError as error:
                raise RuntimeError(f"{error}: {(self.folder / 'log').read_text()[-3000:]}") from error
        for process in dead:
            self.control.wait_for(process)
        found = {"journal": changed or bool(journals()), "changed": self.changed(), "restore_s": 0.0}
        if self._kind in ("client", "hang"):
            self.let_the_daemon_read()
            wait_for(lambda: not self.changed() and not journals())
            found["restore_s"] = time.monotonic() - began
        elif self._kind == "daemon":
            kill(victim)  # it would begin anew
            self.control.wait_for(victim)
            self.start_daemon()
        elif self._kind == "budget" or (self._kind == "both" and self._rng.random() < 0.5):
            self.start_daemon()
        else:
            open_gpu(f"{vendor()}:0")  # the next command, which is not allowed to change clocks itself
        found["left"] = self.changed() or bool(journals())
        if self._kind == "both":
            if not runs(self.daemon):
                self.start_daemon()
        elif self._kind == "budget":
            self.end()
            self.start_daemon(_BUDGET)
        elif self._kind == "hang":
            kill(victim)
        os.close(completed)
        return found

    def stop_where_changed(self, victim: int) -> None:
        """Stop a victim at a moment when it has changed clocks."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            os.kill(victim, signal.SIGSTOP)
            os.waitpid(victim, os.WUNTRACED)
            if self.changed():
                return
            os.kill(victim, signal.SIGCONT)
            time.sleep(self._rng.uniform(0.0, _LONGEST_WAIT_S))

    def begin_daemon(self, more: str = "") -> int:
        """Start a daemon with a policy that allows everything, and says more; its process."""
        allowed = f"heartbeat_s = {HEARTBEAT_S}\nrequests_per_s = 100000\n[[allow]]\nusers = [{os.getuid()}]\n"
        allowed += f"profiles = {[*NUMBERS]}\n"
        self._policy.write_text(allowed + more)
        self._policy.chmod(0o644)
        self.daemon = self.fork(lambda: wastenotd(["--policy", str(self._policy)]))
        return self.daemon

    def start_daemon(self, more: str = "") -> None:
        """Start a daemon, and wait until it answers."""
        self.begin_daemon(more)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            try:
                Connection().close()
                return
            except WastenotError:
                if not runs(self.daemon):
                    break
                time.sleep(0.001)
        raise RuntimeError(f"the daemon did not start: {(self.folder / 'log').read_text()[-1000:]}")

    def let_the_daemon_read(self) -> None:
        """Wait until it has read and done what a victim sent before.

        It looks at all connections before it answers one again, and a GPU's requests are done one after another.
        """
        connection = Connection()
        for _ in range(4):
            connection.ask("status")
        for gpu in connection.welcome.gpus:
            with suppress(WastenotError):  # it could not be restored yet
                connection.ask("release", gpu=gpu)
        connection.close()

    def end(self) -> None:
        """Stop the daemon, if there is one."""
        if self.daemon:
            os.kill(self.daemon, signal.SIGTERM)
            os.waitpid(self.daemon, 0)

    def fork(self, do: Callable[[], object]) -> int:
        """A process that does something, and writes what it says into the log."""
        child = os.fork()
        if child:
            return child
        try:
            os.dup2(os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            do()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def changed(self) -> bool:
        """Whether any clock or power limit differs from the default."""
        return not all(self.control.state(gpu).untouched for gpu in range(_GPUS))


def kill_and_check(kills: int, seed: int = 0, kind: str = "root") -> dict[str, float]:
    """Kill a number of victims.

    Returns:
        How many were killed, how often a journal and how often changed clocks were there at that moment, how often anything
        was left at last, and the longest time that a living daemon took to restore.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), kind, seed)
        found = [runs.kill(turn) for turn in range(kills)]
        runs.end()
    return {
        "kills": len(found),
        "journal_there": sum(one["journal"] for one in found),
        "clocks_changed": sum(one["changed"] for one in found),
        "left": sum(one["left"] for one in found),
        "median_s": statistics.median([one["restore_s"] for one in found]),
        "longest_s": max((one["restore_s"] for one in found), default=0.0),
    }


def main(kind: str = "root", kills: int = 1000, seed: int = 0, preset: str = "h200") -> dict[str, float]:
    """The same in a separate process, on its own stand-in."""
    with (
        start_stand_in(preset, gpus=_GPUS, memory_lock=True) as stand_in,
        tempfile.TemporaryDirectory(prefix="kills-") as folder,
    ):
        environment = stand_in.environment(WASTENOT_STATE=folder, WASTENOT_READ_ONLY="0")
        environment.pop(DAEMON_SOCKET, None)
        command = f"from testbed.stand_in.kill_runs import *; print(json.dumps(kill_and_check({kills}, {seed}, {kind!r})))"
        found = subprocess.run(
            [sys.executable, "-c", command], env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    counts: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return counts


def kill(process: int) -> None:
    """Kill a child."""
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status):
        raise RuntimeError("a victim died before it was killed")


def wait_for(true: Callable[[], bool]) -> None:
    """Wait until something is true, or for as long as nothing should take."""
    deadline = time.monotonic() + _PATIENCE_S
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)


def runs(process: int) -> bool:
    """Whether a child lives."""
    try:
        return os.waitpid(process, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:2], *map(int, sys.argv[2:4]), *sys.argv[4:])))
