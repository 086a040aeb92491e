"""What is known of a job: its cost, its regret, and what is next."""

from dataclasses import replace

import pytest

from testbed.recurring_jobs import recurred
from testbed.stored_jobs import stored_job
from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.judge.made import made_job
from wastenot.jobs.plan.overview import overview_of
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed
from wastenot.jobs.tables.store import StoredJob

LOW = Setting(power_limit_w=200.0)
TERMS = JobTerms("nightly", (32, 64), 32, 0.9, settings=(Setting(power_limit_w=250.0), LOW), max_power_w=250.0)


def run(number, size, outcome, epochs, setting=LOW, device="gpu"):
    return JobRun(number, size, device, outcome, epochs, 10.0 * epochs, 2000.0 * epochs, setting)


def stored(*runs, **changes):
    speeds = (
        Speed("gpu", 32, TERMS.settings[0], 8.0, 250.0),
        Speed("gpu", 32, LOW, 10.0, 200.0),
        Speed("gpu", 64, LOW, 10.0, 200.0),
    )
    job = StoredJob(TERMS, "gpu", runs, speeds, ("gpu",), tuple(f"reason {each.number}" for each in runs))
    return replace(job, **changes)


def test_regret_is_what_was_paid_beyond_the_cheapest_pair():
    # By hand: an epoch costs 0.5 · 2000 J + 0.5 · 250 W · 10 s = 2250 J at the low limit, 2000 J at the high one.
    overview = overview_of(stored(run(1, 32, "reached", 8), run(2, 64, "stopped", 4), run(3, 64, "reached", 4)))
    assert [each.cost for each in overview.history] == [8 * 2250.0, 4 * 2250.0, 4 * 2250.0]
    assert overview.cheapest.batch_size == 32 and overview.cheapest.setting == TERMS.settings[0]
    assert overview.cheapest.cost(TERMS) == 8 * 2000.0  # of 64 it is (4 + 4) · 2250
    assert [each.regret for each in overview.history] == pytest.approx([0.125, 0.6875, 0.25])
    assert overview.regret == pytest.approx(0.25)
    assert [each.why for each in overview.history] == ["reason 1", "reason 2", "reason 3"]
    assert overview.total_cost == 16 * 2250.0


def test_the_default_is_compared_at_its_own_setting():
    overview = overview_of(stored(run(1, 32, "reached", 8), run(2, 64, "reached", 4)))
    assert overview.default.setting == TERMS.settings[0]
    assert overview.against_default.cost == 16_000.0
    assert overview.against_default.ratio == pytest.approx(12 * 2250 / (2 * 16_000))
    assert overview.against_default.time_ratio == pytest.approx(120.0 / (2 * 64.0))
    assert overview.against_default.energy_ratio == pytest.approx(24_000 / (2 * 16_000))


def test_a_run_under_way_costs_nothing_yet():
    ended = overview_of(stored(run(1, 32, "reached", 8)))
    both = overview_of(stored(run(1, 32, "reached", 8), run(2, 64, "running", 3)))
    assert both.regret == ended.regret and both.total_cost == ended.total_cost
    assert both.reached == 1 and len(both.history) == 2


def test_runs_elsewhere_are_counted_apart():
    overview = overview_of(stored(run(1, 32, "reached", 8, device="other"), run(2, 32, "reached", 8)))
    assert len(overview.history) == 1 and overview.elsewhere == 1
    assert overview.cheapest.epochs.reached == 2


def test_where_no_batch_size_fits_the_history_is_still_shown():
    overview = overview_of(stored(run(1, 32, "no memory", 0)))
    assert overview.next is None and overview.no_memory == 32
    assert len(overview.notes) == 1 and "none fits into the memory of gpu: 32 did not" in overview.notes[0]


def test_a_job_that_never_ran():
    overview = overview_of(stored(speeds=()))
    assert overview.next.batch_size == 32
    assert (overview.pairs, overview.regret, overview.cheapest, overview.against_default) == ((), None, None, None)


def test_energies_that_are_not_known_are_said():
    overview = overview_of(stored(replace(run(1, 32, "reached", 8), energy_j=None)))
    assert overview.history[0].cost is None and overview.regret is None
    assert "energy of some runs is unknown" in overview.notes[0]


def test_time_alone_needs_no_energy():
    job = recurred(recurrences=6, energy=False)
    overview = overview_of(job)
    assert overview.notes == () and overview.regret is not None
    assert overview.total_cost == pytest.approx(sum(each.time_s for each in job.runs))
    assert all(pair.energy_j is None for pair in overview.pairs) and len(overview.pareto) == 1


def test_auto_is_the_default_setting_where_it_was_measured():
    job = stored(run(1, 32, "reached", 8))
    speeds = (*job.speeds, Speed("gpu", 32, AUTO, 7.9, 260.0))
    assert overview_of(replace(job, speeds=speeds)).default.setting == AUTO


def test_a_forecast_is_not_on_the_frontier():
    overview = overview_of(stored(run(1, 32, "reached", 8), run(2, 32, "reached", 8), run(3, 64, "stopped", 1)))
    assert {pair.batch_size for pair in overview.pairs} == {32, 64}
    assert {pair.batch_size for pair in overview.known} == {pair.batch_size for pair in overview.pareto} == {32}


def test_where_numbers_come_from():
    assert overview_of(stored()).origin == "measured"
    assert overview_of(replace(stored(), device="sim:h200")).origin == "simulated"
    for several in ("4 × sim:h200", "NVIDIA H200 + sim:h200", "2 × (8 × sim:h200)", "2 × (sim:h200)"):
        assert overview_of(replace(stored(), device=several)).origin == "simulated"
    assert overview_of(stored(), origin="synthetic").origin == "synthetic"


def test_after_a_change_of_the_data_older_runs_do_not_count_for_what_is_next():
    job = made_job("smooth", 2)
    before = stored_job(job, 25, 1)
    assert overview_of(before).changed_at == ()
    number = len(before.runs)
    size = before.runs[-1].batch_size
    needs = round(3.0 * before.runs[-1].epochs)
    new = tuple(replace(before.runs[-1], number=number + index, epochs=needs) for index in range(1, 7))
    overview = overview_of(replace(before, runs=before.runs + new, why=()))
    (changed,) = overview.changed_at
    assert abs(changed - number - 1) <= 1
    assert {pair.epochs.mean for pair in overview.known if pair.batch_size == size} == {needs}
    assert any(f"since run {changed}" in note for note in overview.notes)
    # The six new runs took what the cheapest pair of theirs takes, so that they add no regret but their settings'.
    assert overview.history[-1].regret - overview.history[-6].regret < 1.0


def test_what_does_not_fit_is_never_the_cheapest():
    overview = overview_of(stored(run(1, 32, "reached", 8), run(2, 64, "reached", 2), run(3, 64, "no memory", 0)))
    assert overview.cheapest.batch_size == 32
    assert {pair.batch_size for pair in overview.known} == {pair.batch_size for pair in overview.pareto} == {32}
