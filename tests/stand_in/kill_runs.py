"""Kills processes that are changing clocks, at random moments, and checks what is left after the next command.

Runs against the stand-in for NVML only, whose state outlives its clients; no real GPU is ever touched:

    python -m tests.stand_in.kill_runs [KILLS] [SEED]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from tests.stand_in.control import Control
from tests.stand_in.fixtures import start_stand_in
from tests.stand_in.library import SOCKET_VARIABLE
from wastenot.devices.nvidia.device import open_nvidia
from wastenot.devices.nvidia.journal import journals
from wastenot.setting import Setting

_MOST_REQUESTS = 6  # that a victim completes before it is killed
_LONGEST_WAIT_S = 0.002  # after that


def change_clocks_forever(seed: int, done: int) -> None:
    """What a victim does until it is killed: request and release settings, writing a byte to ``done`` after each."""
    rng = random.Random(seed)
    device = open_nvidia("nvidia:0", allow_clock_control=True)
    states, limits = device.clocks.supported_clocks(), device.clocks.power_limits_w()
    assert limits is not None
    while True:
        memory = rng.choice([*states, None])
        core = rng.choice([*states[memory or max(states)], None])
        limit = rng.choice([None, float(round(rng.uniform(*limits)))])
        device.clocks.request(Setting(core, memory, limit))
        if rng.random() < 0.3:
            device.clocks.release()
        os.write(done, b".")


def changed(control: Control) -> bool:
    """Whether any clock or power limit differs from the default."""
    state = control.state(0)
    locked = state.locked_core_mhz is not None or state.locked_memory_mhz is not None
    return locked or state.power_limit_w != state.default_power_limit_w


def kill_and_check(kills: int, seed: int = 0) -> dict[str, int]:
    """Kill a number of victims, each after a random number of requests, so that a busy machine changes nothing.

    Returns:
        How many were killed, how often a journal and how often changed clocks were left, and how often anything was
        still left after the next command.
    """
    control, rng = Control(os.environ[SOCKET_VARIABLE]), random.Random(seed)
    counts = {"kills": 0, "left_a_journal": 0, "left_clocks_changed": 0, "left_after_the_next_command": 0}
    for turn in range(kills):
        completed, done = os.pipe()
        victim = os.fork()
        if victim == 0:
            try:
                change_clocks_forever(seed * 1_000_003 + turn, done)
            finally:
                os._exit(1)
        for _ in range(rng.randint(0, _MOST_REQUESTS)):
            os.read(completed, 1)
        time.sleep(rng.uniform(0.0, _LONGEST_WAIT_S))
        os.kill(victim, signal.SIGKILL)
        os.close(completed)
        os.close(done)
        _, status = os.waitpid(victim, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("a victim died before it was killed")
        control.wait_for(victim)
        counts["kills"] += 1
        counts["left_a_journal"] += bool(journals())
        counts["left_clocks_changed"] += changed(control)
        open_nvidia("nvidia:0")  # the next command, which is not allowed to change clocks itself
        counts["left_after_the_next_command"] += changed(control) or bool(journals())
    return counts


def print_counts(kills: int, seed: int) -> None:
    """Print the counts as JSON."""
    print(json.dumps(kill_and_check(kills, seed)))


def main(kills: int = 1000, seed: int = 0) -> dict[str, int]:
    """The same in a separate process, on its own stand-in."""
    with start_stand_in("h200", memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [
                sys.executable,
                "-c",
                f"from tests.stand_in.kill_runs import *; print(json.dumps(kill_and_check({kills}, {seed})))",
            ],
            env=stand_in.environment(WASTENOT_STATE=folder, WASTENOT_READ_ONLY="0"),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    counts: dict[str, int] = json.loads(found.stdout)
    return counts


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
