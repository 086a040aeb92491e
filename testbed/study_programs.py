"""Programs that write into a study at the same time as others do: each function here is run in a process of its own.

    program("recur", address, 15)    # in a process; what it prints comes through its pipe

Jobs take as long as a clock of their own says, so that what they learn does not depend on how busy the machine is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.tables.records import JobTerms
from wastenot.jobs.tables.run_in_flight import RunInFlight
from wastenot.jobs.tables.store import JobStore
from wastenot.study.recorder import Measurement
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Kernel

KERNELS = (Kernel("a", 1), Kernel("b", 2))
TERMS = JobTerms("nightly", (16, 32, 64), 32, 0.9, max_epochs=20)
JOB: dict[str, Any] = {"batch_sizes": [16, 32, 64], "default": 32, "target": 1.0, "device": "cpu"}
"""A job whose cheapest batch size is 16, since the others need more epochs."""
_EPOCHS = {16: 3, 32: 6, 64: 12}
_EPOCH_S = 0.02


def program(function: str, *arguments: object) -> subprocess.Popen[str]:
    """One of the functions below in a process of its own."""
    code = f"import sys; from testbed.study_programs import {function}; {function}(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path])},
    )  # fmt: skip


# ---- sweeps ------------------------------------------------------------------------------------------------------


def measuring(study: Study, workload: str = "w", **more: Any) -> Any:
    """Hold the lease of a workload."""
    return study.recording(KERNELS, workload=workload, device="sim:x", origin="simulated", source="a test", **more)


def measured(kernel: str, clock: float | None = None) -> Measurement:
    """A measurement of one of ``KERNELS``."""
    setting = AUTO if clock is None else Setting(clock)
    return Measurement(kernel, setting, 1.0, 0.1, 2.0, 0.1, None, None, 3, None, 1.0, None, None, "", "done", ())


def hold(address: str, workload: str) -> None:
    """Measure a workload at each clock that is read, until the input ends; says so when it has begun."""
    with measuring(open_study(address, create=True), workload) as recorder:
        print("begun", flush=True)
        for line in sys.stdin:
            recorder.append(measured("a", clock=float(line)))
            print("stored", flush=True)


# ---- jobs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """A batch size, as a test says."""

    batch_size: int
    why: str = "a test says so"


def begin(store: JobStore, size: int = 32, device: str = "gpu", terms: JobTerms = TERMS, **more: Any) -> RunInFlight:
    """Begin a run of a job."""
    return store.begin(terms, device, lambda stored: Choice(size), **more)


def killed(address: str) -> None:
    """Begin a run, and kill the own process."""
    flight = begin(JobStore(open_study(address, create=True)))
    flight.count(0.1)
    flight.save()
    os.kill(os.getpid(), signal.SIGKILL)


def take_turns(address: str, times: str) -> None:
    """Begin runs whose batch size tells how many others had begun before."""
    store = JobStore(open_study(address, create=True, busy_timeout_s=60.0))
    for _ in range(int(times)):
        flight = store.begin(TERMS, "gpu", lambda stored: Choice(TERMS.batch_sizes[len(stored.runs) % 3]))
        flight.count(0.5)
        flight.end("reached")


class _Clock:
    """Time that passes only where a program says so."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def recur(address: str, times: str | int, wait: str = "") -> None:
    """Run the job again and again until its target; with ``wait`` the first run says that it has begun, and waits."""
    import wastenot as wn

    clock = _Clock()
    with mock.patch("wastenot.jobs.run.meter.time", clock):
        for index in range(int(times)):
            with wn.job("nightly", study=address, **JOB) as run:
                if wait and not index:
                    print("begun", flush=True)
                    sys.stdin.readline()
                epoch, more = 0, True
                while more:
                    epoch += 1
                    clock.now_s += _EPOCH_S
                    more = run.epoch(epoch / _EPOCHS[run.batch_size])


def never_end(address: str) -> None:
    """Begin a run of the job that is still on its way after its first epoch."""
    import wastenot as wn

    clock = _Clock()
    with mock.patch("wastenot.jobs.run.meter.time", clock), wn.job("nightly", study=address, **JOB) as run:
        clock.now_s = 1.1  # what a run has used is stored once a second
        run.epoch(0.5)
        print("begun", flush=True)
        sys.stdin.readline()
