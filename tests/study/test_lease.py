"""One process at a time measures a workload: with real processes, real kills, and rows as another host would leave them."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from testbed.study_programs import measured, measuring, program
from wastenot.core.errors import StudyError
from wastenot.core.setting import Setting
from wastenot.study import lease
from wastenot.study.store import open_study


class Process:
    """A process that measures."""

    def __init__(self, where, workload="w"):
        self.program = program("hold", where, workload)
        assert self.program.stdout.readline() == "begun\n", self.program.stderr.read()

    def measure(self, clock):
        self.program.stdin.write(f"{clock}\n")
        self.program.stdin.flush()

    def end(self, number=None):
        if number is not None:
            self.program.send_signal(number)
        _, said = self.program.communicate()
        return said


@pytest.fixture
def begin(where):
    """Start processes that measure; whatever is left of them is killed in the end."""
    begun = []

    def start(workload="w"):
        begun.append(Process(where, workload))
        return begun[-1]

    yield start
    for process in begun:
        process.program.kill()
        process.program.communicate()


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_a_second_process_is_told_who_measures(begin, study):
    first = begin()
    with pytest.raises(StudyError) as caught, measuring(study):
        pass
    said = str(caught.value)
    assert f"workload 'w': is being measured by process {first.program.pid} of " in said
    assert f" on {os.uname().nodename} since {datetime.now(UTC):%Y-%m-%d} " in said and "(a test)" in said
    assert "wait for it or end it, then run this again to resume" in said and "\n" not in said
    assert "machine is lost" not in said  # that it ends would be seen from here
    (held,) = study.summary().workloads
    assert held.holder.process == first.program.pid
    assert len(held.imports) == 1  # the refused one left nothing
    assert first.end() == ""
    with measuring(study) as recorder:
        recorder.append(measured("a"))
    assert study.summary().workloads[0].holder is None


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_other_workloads_are_measured_at_the_same_time(begin, study):
    begin("w")
    with measuring(study, "other") as recorder:
        recorder.append(measured("a"))
    assert [workload.rows for workload in study.summary().workloads] == [0, 1]


def test_one_process_cannot_measure_twice_either(study):
    with measuring(study), pytest.raises(StudyError, match=f"by process {os.getpid()} "), measuring(study):
        pass
    with measuring(study):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_a_process_that_was_killed_is_in_nobodys_way(begin, study, number):
    first = begin()
    first.measure(900)
    assert first.program.stdout.readline() == "stored\n"
    first.program.send_signal(number)
    first.program.wait()
    assert study.summary().workloads[0].holder is None
    with measuring(study) as recorder:
        assert recorder.done["a", Setting(900.0)] == 1  # what it measured counts
        recorder.append(measured("a"))


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_a_process_that_is_not_reaped_is_dead_all_the_same(begin, study):
    first = begin()
    first.program.send_signal(signal.SIGKILL)
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            with measuring(study):
                return
        except StudyError:
            time.sleep(0.05)
    raise AssertionError("a zombie holds the lease")


def elsewhere(raw, *, silent_s):
    """Make the lease one of another host that was last heard of some time ago."""
    heard = (datetime.now(UTC) - timedelta(seconds=silent_s)).isoformat(timespec="seconds")
    with raw.begin() as connection:
        connection.execute(text("UPDATE wastenot_leases SET host = 'far', process_space = 'far'"))
        connection.execute(text("UPDATE wastenot_leases SET heard_at = :heard"), {"heard": heard})


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_on_another_host_it_is_in_the_way_until_it_falls_silent(begin, study, raw):
    first = begin()
    elsewhere(raw, silent_s=lease.SILENT_S - 60)
    first.program.kill()  # which this host cannot see
    first.program.wait()
    refused = pytest.raises(
        StudyError, match=r"on far since .*last heard from 1\d\d s ago.*can continue from \d\d:\d\d:\d\d UTC"
    )
    with refused, measuring(study):
        pass
    elsewhere(raw, silent_s=lease.SILENT_S + 2)
    with measuring(study) as recorder:
        recorder.append(measured("a"))


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_a_process_that_slept_too_long_measures_no_more(begin, study, raw):
    first = begin()
    first.measure(900)
    assert first.program.stdout.readline() == "stored\n"
    first.program.send_signal(signal.SIGSTOP)
    with pytest.raises(StudyError, match="is being measured"), measuring(study):
        pass
    elsewhere(raw, silent_s=lease.SILENT_S + 2)
    with measuring(study) as recorder:
        recorder.append(measured("a"))
        first.program.send_signal(signal.SIGCONT)
        first.measure(1200)
        assert "another process took over its measurement" in first.end()
        recorder.append(measured("b"))  # and did not take the lease with it
    assert sorted(row.setting.core_mhz or 0 for row in study.measurements()) == [0, 0, 900]


def test_long_measurements_give_signs_of_life(where, raw, monkeypatch):
    monkeypatch.setattr(lease, "BEAT_S", 0.05)
    with measuring(open_study(where, create=True, busy_timeout_s=60)) as recorder:
        elsewhere(raw, silent_s=1000)
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            with raw.connect() as connection:
                heard = datetime.fromisoformat(connection.execute(text("SELECT heard_at FROM wastenot_leases")).scalar_one())
            if datetime.now(UTC) - heard < timedelta(seconds=30):
                break
            time.sleep(0.02)
        else:
            raise AssertionError("no sign of life")
        recorder.append(measured("a"))


def test_of_many_that_begin_at_once_one_measures(where):
    began, refused = [], []
    leave = threading.Event()

    def begin_one():
        try:
            with measuring(open_study(where, create=True, busy_timeout_s=30)):
                began.append(1)
                assert leave.wait(60)
        except StudyError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=begin_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 60
    while len(began) + len(refused) < 6 and time.monotonic() < ends:
        time.sleep(0.02)
    leave.set()
    for thread in threads:
        thread.join()
    assert (len(began), len(refused)) == (1, 5)
    assert all("is being measured by process" in said for said in refused)
