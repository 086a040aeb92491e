"""Kills ``wastenot apply`` and the programs that it runs, at random moments from its start on, and checks what is left.

    python -m testbed.stand_in.apply_kills [KIND] [KILLS] [SEED]

Each is the command itself in a process of its own, with a program of its own, on the stand-in for NVML.

    apply           the command, with clocks set through wastenotd; checked while the daemon lives
    apply as root   the command, which sets clocks itself; checked after the next command
    program         the program, through the daemon or as root: the command gives the clocks back, and ends
    apply and program   both, in random order, through the daemon
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from testbed.applied_programs import make_plan
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.kill_runs import Runs, kill, wait_for
from wastenot.cli.main import run
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE as DAEMON_SOCKET
from wastenot.devices.common.journal import journals
from wastenot.devices.open import open_gpu

KINDS = ("apply", "apply as root", "program", "apply and program")
_LONGEST_WAIT_S = 0.4  # before a kill


def kill_and_check(plan: str, kills: int, seed: int, kind: str) -> dict[str, float]:
    """Kill so often; the counts of :func:`testbed.stand_in.kill_runs.kill_and_check`."""
    for name in ("application", "session"):
        importlib.import_module(f"wastenot.control.{name}")  # once, instead of in every command
    rng = random.Random(f"{kind} {seed}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), "client", seed)
        socket = os.environ[DAEMON_SOCKET]
        for _ in range(kills):
            through_daemon = kind != "apply as root" and (kind != "program" or rng.random() < 0.5)
            os.environ.pop(DAEMON_SOCKET, None)
            if through_daemon:
                os.environ[DAEMON_SOCKET] = socket
            found.append(_kill_one(plan, runs, rng, kind, through_daemon))
        os.environ[DAEMON_SOCKET] = socket
        runs.end()
    return {
        "kills": len(found),
        "journal_there": sum(one["journal"] for one in found),
        "clocks_changed": sum(one["changed"] for one in found),
        "left": sum(one["left"] for one in found),
        "median_s": statistics.median([one["restore_s"] for one in found]),
        "longest_s": max((one["restore_s"] for one in found), default=0.0),
    }


def _kill_one(plan: str, runs: Runs, rng: random.Random, kind: str, through_daemon: bool) -> dict[str, float]:
    noted = runs.folder / "program"
    noted.unlink(missing_ok=True)
    program = ["sh", "-c", f"echo $$ >{noted}.new; mv {noted}.new {noted}; exec sleep 60"]
    command = runs.fork(
        lambda: run(["apply", plan, "--device", "nvidia:0", "--quiet", "--patience", "0.05s", "--", *program])
    )
    if kind in ("program", "apply and program"):
        wait_for(noted.exists)
    time.sleep(rng.uniform(0.0, _LONGEST_WAIT_S))
    there = {"journal": bool(journals()), "changed": runs.changed()}
    began = time.monotonic()
    if kind == "program":
        os.kill(int(noted.read_text()), signal.SIGKILL)
        os.waitpid(command, 0)
    else:
        orders = [lambda: kill(command)]
        if kind == "apply and program":
            orders.insert(rng.randrange(2), lambda: os.kill(int(noted.read_text()), signal.SIGKILL))
        for order in orders:
            order()
        runs.control.wait_for(command)
        if through_daemon:
            runs.let_the_daemon_read()
            wait_for(lambda: not runs.changed() and not journals())
        else:
            open_gpu("nvidia:0")
    there["restore_s"] = time.monotonic() - began if through_daemon or kind == "program" else 0.0
    there["left"] = runs.changed() or bool(journals())
    if kind.startswith("apply"):
        with suppress(OSError, ValueError):  # it may never have begun
            os.kill(int(noted.read_text()), signal.SIGKILL)
    return there


def main(kind: str = "apply", kills: int = 200, seed: int = 0) -> dict[str, float]:
    """The same in a separate process, on its own stand-in, with a plan that is made there first."""
    with (
        start_stand_in("h200", gpus=2, memory_lock=True) as stand_in,
        tempfile.TemporaryDirectory(prefix="kills-") as folder,
    ):
        environment = stand_in.environment(WASTENOT_STATE=f"{folder}/state", WASTENOT_READ_ONLY="0")
        environment.pop(DAEMON_SOCKET, None)
        make_plan(Path(folder), stand_in)
        judged = f"kill_and_check('plan.json', {kills}, {seed}, {kind!r})"
        text = f"from testbed.stand_in.apply_kills import *; print(json.dumps({judged}))"
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    counts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return counts


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:2], *map(int, sys.argv[2:]))))
