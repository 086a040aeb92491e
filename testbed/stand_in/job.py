"""A training job on the stand-in's GPU that marks its iterations by hand: ``python -m testbed.stand_in.job PLAN``.

It trains until the file ``enough`` is there, or for --iterations, and holds the stand-in's time meanwhile, which is that of
the wall otherwise.

--iterations N  how many, at most
--gpu N         index of the stand-in's GPU
--code C        exits with it
--batch N       sequences of an iteration, whose time they stand for
--step S        others see time pass in such steps
--linger        when the training is over, the program waits to be killed
--device GPUS   where it controls the clocks itself
--out FILE      summary, likewise
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from itertools import count
from pathlib import Path

import wastenot as wn
from testbed.stand_in.amd_library import SOCKET_VARIABLE as AMD_SOCKET_VARIABLE
from testbed.stand_in.held_time import STEP_S, HeldTime, SharedTime
from testbed.stand_in.library import SOCKET_VARIABLE
from testbed.stand_in.wire import Client
from wastenot.control import markers
from wastenot.control.wire import VARIABLE

_SHORTEST_S = 0.0002


def main() -> int:
    """Run to the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--linger", action="store_true")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--step", type=float, default=STEP_S)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--out")
    asked = parser.parse_args()
    socket = os.environ.get(SOCKET_VARIABLE) or os.environ[AMD_SOCKET_VARIABLE]
    if VARIABLE not in os.environ:
        from wastenot.control import session

        session.time = SharedTime(socket)  # type: ignore[assignment]
    gpu = Client(socket)
    with wn.apply(asked.plan, device=asked.device, out=asked.out) as applied:
        now = HeldTime(socket, asked.step)
        markers.time = now  # type: ignore[assignment]
        run = gpu.request("train", asked.gpu, asked.batch)
        print("training", flush=True)
        usual_s = 0.04  # of an iteration; the next one is known better
        for number in count() if asked.iterations is None else range(asked.iterations):
            if Path("enough").exists():
                break
            begin_s = now.monotonic()
            while (left := number + 1 - gpu.request("progress", run)) > 0.0:
                now.let_pass(max(min(left * usual_s, asked.step), _SHORTEST_S))  # the clocks may change meanwhile
            usual_s = now.monotonic() - begin_s
            applied.iteration()
        gpu.request("end", run)
        now.close()
    print("trained", flush=True)
    while asked.linger:
        time.sleep(1.0)
    return asked.code


if __name__ == "__main__":
    sys.exit(main())
