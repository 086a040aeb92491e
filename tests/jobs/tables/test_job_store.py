"""Jobs in a study: what is kept of them, what a killed run leaves, and processes that begin at once."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from sqlalchemy import text

from testbed.study_programs import TERMS, Choice, begin, program
from testbed.sweeps import small_sweep
from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.tables.records import Speed
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study


class Clock:
    """What a run has used, as a test says."""

    def __init__(self):
        self.time_s, self.energy_j = 0.0, 0.0

    def __call__(self):
        return self.time_s, self.energy_j


@pytest.fixture
def store(study):
    return JobStore(study)


def test_a_run_is_kept_from_its_beginning_to_its_end(store):
    used = Clock()
    flight = begin(store, used=used)
    assert [(run.outcome, run.epochs) for run in store.read("nightly").runs] == [("running", 0)]
    used.time_s, used.energy_j = 10.0, 500.0
    flight.count(0.5, Setting(power_limit_w=200.0))
    flight.save()
    (run,) = store.read("nightly").runs
    assert (run.outcome, run.epochs, run.time_s, run.energy_j, run.metric) == ("running", 1, 10.0, 500.0, 0.5)
    assert run.setting == Setting(power_limit_w=200.0)
    used.time_s = 20.0
    flight.count(0.91)
    flight.save()
    ended = flight.end("reached")
    stored = store.read("nightly")
    assert stored.runs == (ended,) and (ended.epochs, ended.time_s, ended.outcome) == (2, 20.0, "reached")
    assert stored.terms == TERMS and stored.device == "gpu" and stored.why == ("a test says so",)
    assert store.names() == ("nightly",)


def test_a_decision_sees_all_runs_that_have_begun(store):
    seen = []

    def choose(stored):
        seen.append([(run.number, run.outcome) for run in stored.runs])
        return Choice(16)

    first, second = (store.begin(TERMS, device, choose) for device in ("gpu", "another"))
    assert second.run.number == 2
    for each in (first, second):
        each.abandon()
    assert seen == [[], [(1, "running")]]
    assert [run.outcome for run in store.read("nightly").runs] == ["lost", "lost"]  # left without an end


def test_a_decision_that_fails_leaves_nothing(store):
    def choose(stored):
        raise BadInputError("no")

    with pytest.raises(BadInputError, match="no"):
        store.begin(TERMS, "gpu", choose)
    with pytest.raises((BadInputError, StudyError)):
        store.read("nightly")


def test_speeds_replace_those_of_the_same_setting_alone(store):
    flight = begin(store)
    slow, fast = (Speed("gpu", 32, setting, 2.0, 300.0, 0.01, 0.02) for setting in (Setting(power_limit_w=100.0), AUTO))
    flight.save(speeds=[slow, fast])
    flight.save(speeds=[replace(fast, epoch_time_s=1.0)])
    flight.save(speeds=[replace(fast, device="other", power_w=None)])
    flight.end("reached")
    assert store.read("nightly").speeds == (
        slow,
        replace(fast, epoch_time_s=1.0),
        replace(fast, device="other", power_w=None),
    )


def test_terms_may_change_except_for_what_a_run_is_to_reach(store):
    begin(store).end("reached")
    more = replace(TERMS, batch_sizes=(8, 16, 128), default=16, max_epochs=None, eta=1.0, within_s=5.0, max_power_w=250.0)
    begin(store, 8, terms=more).end("missed")
    begin(store, 8, "other", terms=replace(more, eta=0.25)).end("missed")
    assert store.read("nightly", "gpu").terms == more
    assert store.read("nightly").terms == replace(more, eta=0.25)
    for changed in ({"target": 0.91}, {"target": None}, {"higher_is_better": False}):
        with pytest.raises(BadInputError, match="another job: give it another name"):
            begin(store, terms=replace(TERMS, **changed))
    assert len(store.read("nightly").runs) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": ""}, "`name`"),
        ({"batch_sizes": ()}, "`batch_sizes`: is empty"),
        ({"batch_sizes": (0, 32)}, "0 is not a batch size"),
        ({"batch_sizes": (32, 32)}, "ascend"),
        ({"default": 48}, "`default` 48: is not one of `batch_sizes` 16, 32, 64; add it to them, or write 64"),
        ({"target": float("nan")}, "`target`"),
        ({"max_epochs": 0}, "`max_epochs`"),
        ({"eta": 1.5}, "`eta`"),
        ({"eta": float("nan")}, "`eta`"),
        ({"within_s": -1.0}, "`within_s`"),
        ({"power_budget_w": float("inf")}, "`power_budget_w`"),
        ({"within_s": 1.0, "power_budget_w": 1.0}, "give one of them"),
    ],
)
def test_terms_that_make_no_sense_change_nothing(store, where, changes, says):
    with pytest.raises(BadInputError) as error:
        begin(store, terms=replace(TERMS, **changes))
    assert says in error.value.text(lambda name: f"`{name}`")
    if "://" not in where:
        assert not os.path.exists(where)


def test_a_job_that_is_not_there_is_said_so(store):
    begin(store).end("reached")
    with pytest.raises(BadInputError, match="did you mean 'nightly'"):
        store.read("nigtly")


def test_a_run_that_falls_silent_is_lost_until_it_is_heard_of_again(store, raw, monkeypatch):
    flight = begin(store)
    with raw.begin() as connection:  # as a run on another machine, long silent
        connection.execute(
            text("UPDATE wastenot_job_runs SET heard_at = '2020-01-01T00:00:00+00:00', process_space = 'elsewhere'")
        )
    assert [run.outcome for run in store.read("nightly").runs] == ["lost"]
    flight.count(0.5)
    flight.save()
    assert [run.outcome for run in store.read("nightly").runs] == ["running"]
    flight.end("reached")
    assert [run.outcome for run in store.read("nightly").runs] == ["reached"]


def test_a_killed_run_is_lost_at_once_and_has_cost_what_it_used(where):
    assert program("killed", where).wait() == -9
    (run,) = JobStore(open_study(where)).read("nightly").runs
    assert (run.outcome, run.epochs) == ("lost", 1) and run.time_s > 0.0


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_processes_that_begin_at_once_see_each_other(where):
    programs = [program("take_turns", where, 4) for _ in range(2)]
    assert [(each.communicate()[1], each.returncode) for each in programs] == [("", 0)] * 2
    runs = JobStore(open_study(where)).read("nightly").runs
    # Each decision counted all the runs before it, finished or not: no two decided from the same state.
    assert [run.number for run in runs] == list(range(1, 9))
    assert [run.batch_size for run in runs] == [TERMS.batch_sizes[index % 3] for index in range(8)]
    assert all(run.outcome == "reached" for run in runs)


def test_a_study_of_jobs_takes_measurements_of_any_one_device(store, study):
    begin(store).end("reached")
    study.add(small_sweep(device="sim:x"), source="a test")
    with pytest.raises(BadInputError, match="sim:x"):
        study.add(small_sweep(device="sim:y", workload="other"), source="a test")
    begin(store, device="yet another").end("reached")
    assert study.summary().device == "sim:x" and len(store.read("nightly").runs) == 2


def test_a_study_of_a_newer_version_is_left_alone(store, raw):
    begin(store).end("reached")
    with raw.begin() as connection:
        connection.execute(text("UPDATE wastenot_study SET schema_version = 99"))
    with pytest.raises(StudyError, match="newer wastenot"):
        begin(store)
    with pytest.raises(StudyError, match="newer wastenot"):
        store.read("nightly")


def test_a_damaged_run_is_said_so(store, raw):
    begin(store).end("reached")
    with raw.begin() as connection:
        connection.execute(text("UPDATE wastenot_job_runs SET outcome = 'splendid'"))
    with pytest.raises(StudyError, match="splendid"):
        store.read("nightly")


def test_a_study_of_jobs_alone_says_so(store, study):
    begin(store).end("reached")
    assert (study.summary().device, study.summary().workloads, study.summary().others["jobs"]) == ("", (), ("nightly",))
    with pytest.raises(StudyError, match="holds no measurements of kernels"):
        study.read()
