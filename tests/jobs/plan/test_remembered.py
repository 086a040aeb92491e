"""What a study remembers of a job, told to a policy at once and bit by bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.plan.remembered import catch_up, fitting_terms, in_vain, recall
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed

TERMS = JobTerms("nightly", (16, 32, 64), 32, 0.9, eta=0.0)
SPEEDS = tuple(Speed("cpu", size, AUTO, 10.0 + 100.0 / size, None, 0.01) for size in TERMS.batch_sizes)


def run(number, size, outcome, epochs=5, metric=None, device="cpu"):
    return JobRun(number, size, device, outcome, epochs, 10.0 * epochs, None, metric=metric)


HISTORY = (
    run(1, 32, "reached", 6), run(2, 16, "stopped", 2), run(3, 64, "running", 1), run(4, 32, "reached", 7),
    run(5, 128, "reached", 9), run(6, 16, "reached", 5),
)  # fmt: skip


class Told:
    """A policy that writes down what it is told."""

    def __init__(self):
        self.said = []

    def measured(self, speed):
        self.said.append(("measured", speed.batch_size, speed.setting))

    def began(self, run):
        self.said.append(("began", run.number))

    def ended(self, run):
        self.said.append(("ended", run.number, run.outcome))


def test_only_what_may_be_chosen_is_recalled():
    told = recall(Told(), TERMS, [*SPEEDS, replace(SPEEDS[0], batch_size=128)], HISTORY)
    assert [each for each in told.said if each[0] == "measured"] == [("measured", size, AUTO) for size in (16, 32, 64)]
    assert ("began", 3) in told.said and ("began", 5) not in told.said
    assert not any(each[:2] == ("ended", 3) for each in told.said)


def test_what_another_device_took_counts_though_this_one_has_other_limits():
    limits = {device: Setting(power_limit_w=watts) for device, watts in (("cpu", 200.0), ("another", 150.0))}
    faster = [Speed("another", size, limits["another"], 6400.0 / size, 100.0) for size in TERMS.batch_sizes]
    terms = replace(TERMS, settings=(limits["cpu"],), max_power_w=200.0)
    runs = [run(number, size, "reached", device="another") for number, size in enumerate((32, 64, 16, 64), 1)]
    assert recall(Learner(terms, "cpu"), terms, faster, runs).choose().batch_size == 64
    refused = [replace(each, device="cpu") for each in faster]  # a limit that may no longer be chosen on this one
    told = recall(Learner(terms, "cpu"), terms, refused, ())
    assert told.setting(64) is None


def test_what_is_told_bit_by_bit_decides_as_what_is_told_at_once():
    later = (*HISTORY[:2], replace(HISTORY[2], outcome="missed", epochs=20), *HISTORY[3:], run(7, 16, "running", 0))
    at_once, bit_by_bit = Learner(TERMS, "cpu"), Learner(TERMS, "cpu")
    recall(at_once, TERMS, SPEEDS, later)
    recall(bit_by_bit, TERMS, SPEEDS[:1], HISTORY)
    assert catch_up(bit_by_bit, TERMS, HISTORY, SPEEDS, later)
    told = Told()
    assert catch_up(told, TERMS, HISTORY, (), later)
    assert told.said == [("ended", 3, "missed"), ("began", 7)]
    first, second = (each.choose() for each in (at_once, bit_by_bit))
    assert first.batch_size == second.batch_size
    for one, other in zip(first.outlook, second.outlook, strict=True):
        assert one.cost == pytest.approx(other.cost, rel=0.05)  # the order in which runs ended differs


@pytest.mark.parametrize("change", [{"outcome": "running"}, {"outcome": "no memory"}])
def test_what_is_no_longer_as_it_was_is_not_caught_up_with(change):
    assert not catch_up(Told(), TERMS, HISTORY, SPEEDS, (replace(HISTORY[0], **change), *HISTORY[1:]))


def test_what_did_not_fit_leaves_smaller_ones_on_that_device_alone():
    runs = (*HISTORY, run(7, 32, "no memory", 0))
    assert fitting_terms(TERMS, runs, "cpu") == replace(TERMS, batch_sizes=(16,), default=16)
    assert fitting_terms(TERMS, runs, "another") == TERMS
    with pytest.raises(BadInputError, match="none fits into the memory of cpu: 16 did not; add smaller ones"):
        fitting_terms(TERMS, (*runs, run(8, 16, "no memory", 0)), "cpu")


def test_a_job_in_vain_is_one_that_never_reached_its_target():
    missed = [run(number, size, "missed", metric=0.1 * number) for number, size in enumerate((16, 32, 32), 1)]
    assert in_vain(TERMS, missed[:2]) is None and in_vain(TERMS, (*missed, HISTORY[0])) is None
    assert "none of 3 runs has reached the target (batch sizes 16, 32); the nearest ended at 0.3" in in_vain(TERMS, missed)
    assert "nearest ended at 0.1" in in_vain(replace(TERMS, higher_is_better=False), missed)
