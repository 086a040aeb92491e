"""A training job on the stand-in's GPU that marks its iterations by hand: ``python -m tests.runtime.stand_in_job PLAN``.

--seconds S     how long it trains
--gpu N         index of the stand-in's GPU
--code C        exits with it
--alone         without wn.apply: nothing is marked
--batch N       sequences of an iteration, whose time they stand for
--poll S        how often it looks whether an iteration has ended
--until FILE    once it exists, training is over
--linger S      for so long it runs on without training
--out FILE      summary, where it controls the clocks itself
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import wastenot as wn
from testbed.stand_in.launcher import StandInLauncher, StandInTime
from testbed.stand_in.library import SOCKET_VARIABLE
from wastenot.tasks import find_tasks
from wastenot.workloads.shape import Shape


def main() -> int:
    """Run to the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--linger", type=float, default=0.0)
    parser.add_argument("--poll", type=float, default=0.0005)
    parser.add_argument("--until", type=Path)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--device")
    parser.add_argument("--out")
    asked = parser.parse_args()
    if os.environ.get("IGNORE_SIGTERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    [step] = find_tasks("gpt3-small", "sim:h200", Shape(batch=asked.batch), "iteration").tasks
    gpu_time = StandInTime(os.environ[SOCKET_VARIABLE], asked.gpu, wall=True)
    plan = wn.apply(asked.plan, device=asked.device, out=asked.out, dry_run=asked.dry_run)
    with StandInLauncher(os.environ[SOCKET_VARIABLE], asked.gpu).start(step) as run:
        run.mark()
        with nullcontext() if asked.alone else plan as applied:
            print("training", flush=True)
            done, end_s = 0, time.monotonic() + asked.seconds
            while time.monotonic() < end_s and not (asked.until is not None and asked.until.exists()):
                while gpu_time.now_s() and run.completed <= done:  # the GPU lives on when it is asked for the time
                    time.sleep(asked.poll)
                done = run.completed
                if applied is not None:
                    applied.iteration()
    print("trained", flush=True)
    time.sleep(asked.linger)
    return asked.code


if __name__ == "__main__":
    sys.exit(main())
