"""How long ``wastenot --help`` takes."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from benchmarks.verdict import Verdict


def main(verdict: Verdict) -> None:
    times = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from wastenot.cli.main import main; main(['--help'])"],
            check=True,
            capture_output=True,
        )
        times.append(time.perf_counter() - began)
    verdict.at_most("wastenot --help: seconds", float(np.median(times)), 0.3)
