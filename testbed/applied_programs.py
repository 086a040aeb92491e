"""Running ``wastenot apply`` as a user does, on a stand-in for NVML that lives in real time."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import wastenot as wn
from testbed.stand_in.fixtures import StandIn

# What an iteration of the stand-in's job takes, about: passes at auto, and at 1605 MHz.
_ROWS = """kernel,count,core_mhz,memory_mhz,time_s,energy_j,pass
forward,1,,,0.0033,1.40,forward
forward,1,1605,,0.0034,1.20,forward
loss,1,,,0.0021,1.00,loss
loss,1,1605,,0.0021,0.85,loss
backward,1,,,0.0065,3.20,backward
backward,1,1605,,0.0067,2.70,backward
"""
PLANNED_MHZ = 1605.0


@dataclass
class Machine:
    """A machine with stand-in GPUs.

    Attributes:
        server: the GPUs.
        folder: for everything else.
    """

    server: StandIn
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Of a user's programs."""
        own = {
            "WASTENOT_STATE": str(self.folder / "state"), "WASTENOT_RUNTIME": str(self.folder / "run"),
            "WASTENOT_READ_ONLY": "0", "STAND_IN_WALL": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        return self.server.environment(**own) | more

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start ``wastenot``."""
        return self._started("testbed.stand_in.program", *arguments, **more)

    def start_job(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start the job by itself."""
        return self._started("tests.runtime.stand_in_job", *arguments, **more)

    def _started(self, module: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments], env=self.environment(**more), cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        """Run ``wastenot`` to its end: exit code, stdout, stderr."""
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def core_mhz(self, index: int = 0) -> float | None:
        """The highest core clock that a GPU is locked to; ``None`` for no lock."""
        locked = self.server.control.state(index).locked_core_mhz
        return None if locked is None else locked[1]

    def wait_for_clock(self, mhz: float | None, index: int = 0, seconds: float = 60.0) -> None:
        """Until the core clock is locked so."""
        end_s = time.monotonic() + seconds
        while self.core_mhz(index) != mhz:
            assert time.monotonic() < end_s, f"the clock is {self.core_mhz(index)}, not {mhz}"
            time.sleep(0.02)

    @property
    def left(self) -> list[Path]:
        """Journals that are left, as files."""
        state = self.folder / "state"
        return sorted(path for path in state.rglob("*.json*") if path.is_file()) if state.is_dir() else []


def make_plan(
    folder: Path, server: StandIn, name: str = "plan.json", device: str | None = None, slower: float = 3.55
) -> Path:
    """A plan of one setting for the stand-in's first GPU, or another device.

    Its iteration takes 11.9 ms times ``slower``, by default as that of the stand-in's job. The slowdown that it allows is
    far beyond what a busy machine makes of it.
    """
    rows = folder / "rows.csv"
    head, *lines = (line.split(",") for line in _ROWS.splitlines())
    scaled = [[*line[:4], str(slower * float(line[4])), str(slower * float(line[5])), line[6]] for line in lines]
    rows.write_text("\n".join(",".join(line) for line in [head, *scaled]) + "\n")
    sweep = wn.read_sweep(rows, workload="job", device=device or f"NVIDIA H200 {server.control.state(0).uuid}")
    plan = wn.plan(sweep, max_slowdown=0.3, granularity="iteration", as_measured=True)
    plan.write(folder / name)
    return folder / name
