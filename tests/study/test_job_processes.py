"""Programs that run the same job at once, in a file and on a server: they learn of each other, and one may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from wastenot.study.job_store import JobStore
from wastenot.study.store import open_study

# A job whose epochs take 20 ms and whose cheapest batch size is 16: the others need more epochs.
RECURRING = """
import sys, time
import wastenot as wn
needed = {16: 3, 32: 6, 64: 12}
for _ in range(int(sys.argv[2])):
    with wn.job("nightly", study=sys.argv[1], batch_sizes=[16, 32, 64], default=32, target=1.0, device="cpu") as run:
        epoch = 0
        go_on = True
        while go_on:
            epoch += 1
            time.sleep(0.02)
            go_on = run.epoch(epoch / needed[run.batch_size])
"""

ENDLESS = """
import sys, time
import wastenot as wn
with wn.job("nightly", study=sys.argv[1], batch_sizes=[16, 32, 64], default=32, target=1.0, device="cpu") as run:
    time.sleep(1.1)
    run.epoch(0.5)
    print("begun", flush=True)
    time.sleep(60)
"""


def program(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path])},
    )  # fmt: skip


def read(where):
    return JobStore(open_study(where)).read("nightly")


def test_two_programs_recur_at_once_and_learn_of_each_other(where):
    programs = [program(RECURRING, where, 15) for _ in range(2)]
    told = [each.communicate(timeout=120) for each in programs]
    assert [each.returncode for each in programs] == [0, 0], told
    runs = read(where).runs
    assert [run.number for run in runs] == list(range(1, 31))
    assert {run.outcome for run in runs} <= {"reached", "stopped"}
    began = [run.started_unix_s for run in runs]
    ended = [run.started_unix_s + run.time_s for run in runs]
    assert any(later < end for later, end in zip(began[1:], ended, strict=False))  # they did overlap
    assert sum(run.batch_size == 16 for run in runs[15:]) >= 12  # both have found the cheapest


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_killed_is_lost_and_the_next_goes_on(where, number):
    killed = program(ENDLESS, where)
    assert killed.stdout.readline() == "begun\n", killed.stderr.read()
    assert read(where).runs[0].outcome == "running"
    killed.send_signal(number)
    killed.communicate()
    time.sleep(0.05)
    (run,) = read(where).runs
    assert (run.outcome, run.epochs) == ("lost", 1) and run.time_s > 0.0
    after = program(RECURRING, where, 2)
    assert after.wait() == 0, after.stderr.read()
    first, second, third = read(where).runs
    assert (first.outcome, second.outcome) == ("lost", "reached") and third.outcome in ("reached", "stopped")
