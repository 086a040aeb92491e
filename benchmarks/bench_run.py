"""How long ``wastenot run gpt3-xl`` takes: 46 kernels at 10 core clocks (210 MHz apart) × 5 memory clocks."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from benchmarks.verdict import Verdict


def main(verdict: Verdict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "wastenot", "run", "gpt3-xl", "--out", folder], check=True, capture_output=True
        )
        verdict.at_most("wastenot run gpt3-xl: seconds", time.perf_counter() - began, 60)
