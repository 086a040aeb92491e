"""Running ``wastenot apply`` as a user does, on a stand-in for NVML that lives in real time."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wastenot as wn
from testbed.stand_in.fixtures import StandIn
from testbed.stand_in.program import on_stand_in
from wastenot.cli.main import run as wastenot
from wastenot.control.wire import Line

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
_PATIENCE_S = 300.0


@dataclass
class Machine:
    """A machine with stand-in GPUs.

    Attributes:
        server: the GPUs.
        folder: for everything else.
        started: processes.
        sockets: of its sessions, in a folder whose name is short, as those of sockets must be.
    """

    server: StandIn
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    sockets: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="wn-")))

    def environment(self, **more: str) -> dict[str, str]:
        """Of a user's programs."""
        own = {
            "WASTENOT_STATE": str(self.folder / "state"), "WASTENOT_RUNTIME": str(self.sockets),
            "WASTENOT_READ_ONLY": "0", "STAND_IN_WALL": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        return self.server.environment(**own) | more

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start ``wastenot``."""
        return self._started("testbed.stand_in.program", *arguments, **more)

    def start_job(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start the job by itself."""
        return self._started("testbed.stand_in.job", *arguments, **more)

    def _started(self, module: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], env=self.environment(**more), cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def end(self) -> None:
        """Kill what was started and has not ended, as when a test failed."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with process:  # closes its pipes
                pass
        shutil.rmtree(self.sockets, ignore_errors=True)

    def run(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        """Run ``wastenot`` to its end inside this process, where it starts no program: exit code, stdout, stderr."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment(**more).items():
                patch.setenv(name, value)
            self.server.use(patch)
            patch.chdir(self.folder)
            with redirect_stdout(out), redirect_stderr(err), on_stand_in():
                code = wastenot(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """What has been started, once it has ended: exit code, stdout, stderr."""
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def enough(self) -> None:
        """Let jobs end their training."""
        (self.folder / "enough").touch()

    def status(self) -> dict[str, Any] | None:
        """What the only session of this machine says of its plan; ``None`` where there is none."""
        for path in self.sockets.glob("*.sock"):
            with suppress(OSError):
                line = Line.to(str(path))
                try:
                    status: dict[str, Any] = line.ask({"ask": "status"})["status"]
                    return status
                finally:
                    line.close()
        return None

    def wait_for_status(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until something is true of what the session says; what it says then."""
        found: list[dict[str, Any]] = []

        def said() -> bool:
            status = self.status()
            found[:] = [] if status is None else [status]
            return status is not None and true(status)

        wait_until(said)
        return found[0]

    def core_mhz(self, index: int = 0) -> float | None:
        """The highest core clock that a GPU is locked to; ``None`` for no lock."""
        locked = self.server.control.state(index).locked_core_mhz
        return None if locked is None else locked[1]

    def wait_for_clock(self, mhz: float | None, index: int = 0) -> None:
        """Until the core clock is locked so."""
        wait_until(lambda: self.core_mhz(index) == mhz or (mhz is not None and self._all_ended()))
        assert self.core_mhz(index) == mhz, [each.communicate() for each in self.started]

    def _all_ended(self) -> bool:
        return all(each.poll() is not None for each in self.started)

    @property
    def left(self) -> list[Path]:
        """Journals that are left, as files."""
        state = self.folder / "state"
        return sorted(path for path in state.rglob("*.json*") if path.is_file()) if state.is_dir() else []


def wait_until(true: Callable[[], bool]) -> None:
    """Until something has come to pass, as it will, however busy the machine is."""
    end_s = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.02)


def make_plan(
    folder: Path,
    server: StandIn,
    name: str = "plan.json",
    device: str | None = None,
    slower: float = 3.55,
    core_mhz: float = PLANNED_MHZ,
) -> Path:
    """A plan of one core clock for the stand-in's first GPU, or another device.

    Its iteration takes 11.9 ms times ``slower``, by default as that of the stand-in's job. The slowdown that it allows is
    far beyond what a busy machine makes of it.
    """
    rows = folder / "rows.csv"
    head, *lines = (line.split(",") for line in _ROWS.replace("1605", f"{core_mhz:.0f}").splitlines())
    scaled = [[*line[:4], str(slower * float(line[4])), str(slower * float(line[5])), line[6]] for line in lines]
    rows.write_text("\n".join(",".join(line) for line in [head, *scaled]) + "\n")
    sweep = wn.read_sweep(rows, workload="job", device=device or f"NVIDIA H200 {server.control.state(0).uuid}")
    plan = wn.plan(sweep, max_slowdown=0.3, granularity="iteration", as_measured=True)
    plan.write(folder / name)
    return folder / name
