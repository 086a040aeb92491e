"""Faults of ours in a job at work: its epochs go on counting, it ends as its terms say, and no rank waits for another."""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress

import pytest

import wastenot as wn
from wastenot.core.errors import StudyError
from wastenot.jobs.plan.decision import Decision
from wastenot.jobs.run import following_run
from wastenot.jobs.run.control import JobControl
from wastenot.jobs.run.meter import JobMeter
from wastenot.jobs.run.training_run import TrainingRun
from wastenot.jobs.tables.run_in_flight import RunInFlight
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study

FAULTS = [
    (JobMeter, "epoch"), (JobMeter, "used"), (JobMeter, "save_due"), (JobMeter, "end"), (TrainingRun, "_new_speeds"),
]  # fmt: skip


def broken(*_, **__):
    raise RuntimeError("a fault of ours")


@pytest.fixture
def study(tmp_path):
    return str(tmp_path / "jobs.db")


def job(study, **more):
    terms = {"batch_sizes": [16, 32], "default": 32, "target": 0.9, "max_epochs": 5, "device": "cpu"}
    return wn.job("nightly", study=study, **(terms | more))


def kept(study):
    return JobStore(open_study(study)).read("nightly").runs


@contextmanager
def two_ranks(study, monkeypatch, **more):
    """The first rank's run and that of another, in one process."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with job(study, **more) as first:
        monkeypatch.setenv("RANK", "1")
        with job(study, **more) as other:
            yield first, other


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("kind", "method"), FAULTS)
def test_after_a_fault_the_other_ranks_end_with_the_first(study, monkeypatch, capsys, kind, method):
    monkeypatch.setattr(following_run, "_FIRST_REPORTS_S", math.inf)
    with two_ranks(study, monkeypatch) as (first, other):
        assert first.epoch(0.1) and other.epoch()
        with monkeypatch.context() as faulty:
            faulty.setattr(kind, method, broken)
            told = [(first.epoch(metric), other.epoch()) for metric in (0.2, 0.3, 0.95)]
    assert told == [(True, True), (True, True), (False, False)]
    (run,) = kept(study)
    assert run.epochs == 4 and run.outcome == ("reached" if method == "end" else "failed")
    assert capsys.readouterr().err.count("a fault of ours") == 1


@pytest.mark.parametrize(
    ("metrics", "epochs"), [([0.1, 0.2, 0.95, 0.1], 3), ([0.1] * 9, 5), ([0.1, math.nan, 0.1], 2)],
    ids=["target", "max_epochs", "no number"],
)  # fmt: skip
@pytest.mark.parametrize(("kind", "method"), [(JobMeter, "epoch"), (RunInFlight, "count")])
def test_after_a_fault_a_job_still_ends_as_its_terms_say(study, monkeypatch, kind, method, metrics, epochs):
    with job(study) as run:
        monkeypatch.setattr(kind, method, broken)
        told = [run.epoch(metric) for metric in metrics]
    assert told.index(False) == epochs - 1 and not any(told[epochs:])
    assert (run.outcome, kept(study)[0].outcome) == ("failed", "failed")


def test_a_fault_while_the_end_is_kept_does_not_keep_it_from_the_other_ranks(study, monkeypatch):
    with two_ranks(study, monkeypatch) as (first, other):
        monkeypatch.setattr(JobMeter, "speed", broken)
        assert not first.epoch(0.95) and not other.epoch() and other.outcome == "reached"


@pytest.mark.parametrize("method", ["iteration", "epoch"])
def test_a_fault_in_setting_clocks_costs_the_settings_and_not_what_is_learned(study, monkeypatch, capsys, method, runtime):
    ended = []
    end = JobControl.end
    monkeypatch.setattr(JobControl, "end", lambda self: (ended.append(1), end(self))[1])
    with job(study, device="sim:h200") as run:
        monkeypatch.setattr(JobControl, method, broken)
        run.iteration()
        assert run.epoch(0.1) and ended
        run.iteration()
        assert not run.epoch(0.95)
    assert (run.outcome, kept(study)[0].outcome, kept(study)[0].epochs) == ("reached", "reached", 2)
    said = capsys.readouterr().err
    assert said.count("a fault of ours; training continues at the default settings") == 1 and "learns nothing" not in said


def test_what_does_not_fit_is_remembered_after_a_fault_too(study, monkeypatch):
    with pytest.raises(MemoryError), job(study) as run, monkeypatch.context() as faulty:
        faulty.setattr(JobMeter, "epoch", broken)
        run.epoch(0.1)
        raise MemoryError
    assert [run.outcome for run in kept(study)] == ["no memory"]


def test_other_ranks_may_be_asked_what_the_first_is(study, monkeypatch):
    with two_ranks(study, monkeypatch) as (first, other):
        first.iteration()
        assert other.iteration() is None
        assert other.decision == Decision(first.batch_size, first.decision.why)
        assert not first.epoch(0.95) and not other.epoch()


def fails_to_read(monkeypatch, times):
    """The study is busy for the next so many looks at a run."""
    left, look = [times], JobStore.run

    def busy(self, name, number):
        left[0] -= 1
        if left[0] >= 0:
            raise StudyError("jobs.db: database is locked")
        return look(self, name, number)

    monkeypatch.setattr(JobStore, "run", busy)


def test_a_study_that_is_busy_is_asked_again_whether_the_first_rank_stops(study, monkeypatch, capsys):
    with two_ranks(study, monkeypatch) as (first, other):
        assert not first.epoch(0.95)
        fails_to_read(monkeypatch, 3)
        assert not other.epoch()
    assert "locked" not in capsys.readouterr().err


def test_a_study_that_stays_unreadable_is_waited_for_once(study, monkeypatch, capsys):
    monkeypatch.setattr(following_run, "_READABLE_S", 0.1)
    with two_ranks(study, monkeypatch) as (first, other):
        other._readable_s = 0.1
        assert not first.epoch(0.95)
        fails_to_read(monkeypatch, 1000)
        assert other.epoch() and other._readable_s == 0.0 and other.epoch()
        fails_to_read(monkeypatch, 0)
    assert capsys.readouterr().err.count("locked") == 1


def test_a_first_rank_whose_epochs_are_not_heard_of_is_not_waited_for_forever(study, monkeypatch, capsys):
    monkeypatch.setattr(following_run, "_FIRST_REPORTS_S", 0.1)
    with two_ranks(study, monkeypatch) as (first, other):
        assert other.epoch() and other.epoch()
        assert capsys.readouterr().err.count("continues without waiting for it") == 1
        assert first.epoch(0.1) and first.epoch(0.2) and first.epoch(0.3) and other.epoch()
        assert not first.epoch(0.95) and not other.epoch()


def fill(disk):
    """Leave no room on a disk; the file that takes it."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as stream:
        while stream.write(b"x" * 4096):
            pass
    return filler


def test_training_continues_on_a_full_disk_and_that_is_told_once(small_disk, capsys):
    study = small_disk / "jobs.db"
    with job(study, batch_sizes=[32]) as run:
        run.epoch(0.1)
        filler = fill(small_disk)
        for metric in (0.2, 0.3, 0.95):
            run.epoch(metric)
    said = capsys.readouterr().err
    assert said.count("the disk is full; make room") == 1 and "Traceback" not in said
    with pytest.raises(StudyError, match="the disk is full; make room and try again"), job(study, batch_sizes=[32]):
        pass
    filler.unlink()
    with job(study, batch_sizes=[32]) as after:
        after.epoch(0.95)
    assert kept(study)[-1].outcome == "reached"
