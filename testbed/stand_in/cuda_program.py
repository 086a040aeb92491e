"""What a CUDA program would be: 2,000 decode steps of Llama 8B on the stand-in's first GPU, in real time."""

from __future__ import annotations

import os
import time

from testbed.stand_in.launcher import StandInLauncher
from testbed.stand_in.library import SOCKET_VARIABLE
from wastenot.meters.tasks import find_tasks
from wastenot.workloads.shape import Shape

STEPS = 2000


def main() -> None:
    """Run to the end."""
    [step] = find_tasks("llama-8b", "sim:h200", Shape(phase="decode"), "iteration").tasks
    with StandInLauncher(os.environ[SOCKET_VARIABLE]).start(step) as run:
        run.mark()
        while run.completed < STEPS:
            time.sleep(0.01)


if __name__ == "__main__":
    main()
