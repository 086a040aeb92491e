"""Programs that run the same job at once, in a file and on a server: they learn of each other, and one may be killed."""

from __future__ import annotations

import signal

import pytest

from testbed.study_programs import program, recur
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study


def read(where):
    return JobStore(open_study(where)).read("nightly")


@pytest.mark.slow
def test_two_programs_recur_at_once_and_learn_of_each_other(where):
    programs = [program("recur", where, 8, "wait") for _ in range(2)]
    assert [each.stdout.readline() for each in programs] == ["begun\n"] * 2
    assert [run.outcome for run in read(where).runs] == ["running"] * 2
    for each in programs:
        each.stdin.write("go\n")
        each.stdin.flush()
    told = [each.communicate() for each in programs]
    assert [each.returncode for each in programs] == [0, 0], told
    runs = read(where).runs
    assert [run.number for run in runs] == list(range(1, 17))
    assert {run.outcome for run in runs} <= {"reached", "stopped"}
    # Nothing is left to chance but who runs when: each size is tried a few times at most, whatever the order, and costs
    # are those of the programs' own clocks.
    assert {run.batch_size for run in runs[8:]} == {16}, "both have found the cheapest"


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGINT))]
)
@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_a_run_that_is_killed_is_lost_and_the_next_goes_on(where, number):
    killed = program("never_end", where)
    assert killed.stdout.readline() == "begun\n", killed.stderr.read()
    assert read(where).runs[0].outcome == "running"
    killed.send_signal(number)
    killed.communicate()
    (run,) = read(where).runs
    assert (run.outcome, run.epochs) == ("lost", 1) and run.time_s > 0.0
    recur(where, 2)
    first, second, third = read(where).runs
    assert (first.outcome, second.outcome) == ("lost", "reached") and third.outcome in ("reached", "stopped")
