"""A training job on the stand-in that tells nobody of its iterations: ``python -m testbed.stand_in.unhooked_job GPU``.

It trains until the file ``enough`` is there, and holds the stand-in's time meanwhile. It knows nothing of wastenot.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from testbed.stand_in.held_time import HeldTime
from testbed.stand_in.wire import Client


def main() -> None:
    """Train."""
    socket = os.environ.get("STAND_IN_NVML") or os.environ["STAND_IN_AMDSMI"]
    gpu, now = Client(socket), HeldTime(socket, step_s=0.02)
    run = gpu.request("train", int(sys.argv[1]), 16)
    print("training", flush=True)
    while not Path("enough").exists():
        now.let_pass(0.1)
    gpu.request("end", run)
    now.close()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
