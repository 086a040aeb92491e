"""What is announced before a sweep, how much there is to measure and how long that takes, against what it then takes."""

from functools import partial

import pytest

import wastenot as wn
from testbed.few_kernels import write_few_kernels
from testbed.toy_gpu import TOY as TOY_FILE
from wastenot.core.setting import AUTO
from wastenot.sweeping.defaults import CORE_STEP_MHZ
from wastenot.sweeping.point import PointOptions

TOY = f"sim:{TOY_FILE}"
SLOW = partial(pytest.param, marks=pytest.mark.slow)


def estimated_and_taken(device, study, **how):
    workload = how.pop("workload", "gpt3-small")
    estimate = wn.sweep(workload, device, study, dry_run=True, **how).estimate
    before_s = device.time.now_s()
    outcome = wn.sweep(workload, device, study, **how)
    return estimate, outcome, device.time.now_s() - before_s


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (TOY, {"clocks": wn.Grid(core_step_mhz=1800, memory_mhz=[9501, 5001]), "options": PointOptions(0.5, 1.0)}),
        ("sim:h200", {"clocks": wn.Grid(core_mhz=[1200], memory_mhz=[3201])}),
        SLOW("sim:rtx-3080-ti", {"clocks": wn.AtAuto(rounds=2)}),
        ("sim:h200", {"clocks": wn.AtAuto(), "options": PointOptions(0.5, 1.0)}),
        ("sim:mi300x", {"clocks": wn.Grid(core_step_mhz=700), "granularity": "pass"}),
        SLOW("sim:rtx-a4000", {"clocks": wn.Grid(memory_mhz=[7001, 5001]), "granularity": "iteration"}),
    ],
)  # fmt: skip
def test_a_sweep_takes_as_long_as_announced(tmp_path, name, how):
    estimate, outcome, took_s = estimated_and_taken(wn.open_device(name, seed=5), tmp_path / "s.db", **how)
    assert outcome.measured == estimate.points == estimate.todo
    assert estimate.device_s == pytest.approx(took_s, rel=0.15)
    assert estimate.virtual and estimate.wait_s > 0.0


@pytest.mark.slow
def test_a_sweep_at_the_defaults_takes_as_long_as_announced(tmp_path):
    estimate, outcome, took_s = estimated_and_taken(wn.open_device("sim:h200"), tmp_path / "s.db", workload="gpt3-small")
    assert outcome.measured == estimate.points and estimate.device_s == pytest.approx(took_s, rel=0.05)


def test_the_default_grid_has_the_steps_that_run_has(tmp_path):
    estimate = wn.sweep("gpt3-small", "sim:h200", tmp_path / "t.db", dry_run=True).estimate
    same = wn.sweep("gpt3-small", "sim:h200", tmp_path / "t.db", clocks=wn.Grid(CORE_STEP_MHZ), dry_run=True).estimate
    assert (same.points, same.device_s) == (estimate.points, estimate.device_s)
    every = wn.sweep("gpt3-small", "sim:h200", tmp_path / "t.db", clocks=wn.Grid(1), dry_run=True).estimate
    assert every.settings == sum(map(len, wn.open_device("sim:h200").clocks.supported_clocks().values()))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("sim:rtx-3080-ti", {"clocks": wn.AtAuto(), "options": PointOptions(5.0, 5.0, 0.01)}),
        (TOY, {"clocks": wn.AtNatural(3.0)}),
        (TOY, {"clocks": wn.AtAuto(), "state": "context", "options": PointOptions(0.2, 0.5)}),
    ],
)
def test_where_it_depends_on_what_is_measured_a_range_is_announced(tmp_path, name, how):
    few = str(write_few_kernels(tmp_path / "few.json"))
    estimate, _, took_s = estimated_and_taken(wn.open_device(name, seed=2), tmp_path / "s.db", workload=few, **how)
    assert estimate.least_device_s < estimate.most_device_s
    assert 0.85 * estimate.least_device_s <= took_s <= 1.15 * estimate.most_device_s


def test_a_search_measures_no_more_and_takes_no_longer_than_announced(tmp_path):
    how = {"clocks": wn.Search(0.3, grid=wn.Grid(core_step_mhz=300, memory_mhz=[9501]))}
    estimate, outcome, took_s = estimated_and_taken(wn.open_device("sim:rtx-3080-ti"), tmp_path / "s.db", **how)
    assert 0 < outcome.measured <= estimate.points
    assert took_s <= 1.15 * estimate.most_device_s


def test_what_is_measured_already_is_neither_counted_nor_timed_again(tmp_path):
    how = {"clocks": wn.AtAuto(), "options": PointOptions(0.5, 0.5)}
    study = tmp_path / "s.db"
    first = wn.sweep("gpt3-small", TOY, study, budget_s=150.0, **how)
    assert first.out_of_time and first.measured > 0
    estimate, outcome, took_s = estimated_and_taken(wn.open_device(TOY), study, **how)
    assert (estimate.found, estimate.todo) == (first.measured, outcome.measured)
    assert estimate.device_s == pytest.approx(took_s, rel=0.15)
    again = wn.sweep("gpt3-small", TOY, study, dry_run=True, **how).estimate
    assert (again.todo, again.device_s, again.wait_s) == (0, 0.0, 0.0)


def test_a_dry_run_sets_nothing_and_writes_nothing(tmp_path, monkeypatch):
    device = wn.open_device(TOY)
    requested, request = [], type(device.clocks).request

    def watched(clocks, setting):
        if clocks is device.clocks:  # and not those of the copy that a trial runs on
            requested.append(setting)
        request(clocks, setting)

    monkeypatch.setattr(type(device.clocks), "request", watched)
    for how in ({}, {"clocks": wn.AtAuto()}, {"clocks": wn.AtNatural()}, {"clocks": wn.Search()}):
        outcome = wn.sweep("gpt3-small", device, tmp_path / "s.db", dry_run=True, **how)
        assert outcome.estimate.points > 0 and outcome.measured == 0
    assert requested == [] and device.engine.requested == AUTO and device.time.now_s() < 0.1
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_another_card_is_refused_before(tmp_path):
    wn.sweep("gpt3-small", TOY, tmp_path / "s.db", clocks=wn.AtAuto(), options=PointOptions(0.1, 0.1))
    with pytest.raises(wn.BadInputError, match="name another study"):
        wn.sweep("gpt3-small", "sim:h200", tmp_path / "s.db", dry_run=True)


def test_a_sweep_announces_before_it_measures(tmp_path):
    heard = []
    outcome = wn.sweep(
        "gpt3-small", TOY, tmp_path / "s.db", clocks=wn.AtAuto(), options=PointOptions(0.1, 0.1), announce=heard.append
    )
    assert [estimate.points for estimate in heard] == [outcome.measured] and outcome.estimate is None


def test_a_recording_is_swept_at_every_clock_that_it_has(tmp_path):
    quick = PointOptions(0.1, 0.1)
    wn.sweep("gpt3-small", TOY, tmp_path / "s.db", clocks=wn.Grid(300, memory_mhz=[9501]), options=quick)
    again = wn.sweep("gpt3-small", f"recorded:{tmp_path / 's.db'}", tmp_path / "r.db", dry_run=True).estimate
    swept = wn.open_study(tmp_path / "s.db").read()
    assert again.settings == len({swept.setting(row) for row in range(len(swept))}) - 1 > 5


def test_a_step_and_clocks_at_once_are_refused(tmp_path):
    with pytest.raises(wn.BadInputError, match="use only one of them"):
        wn.sweep("gpt3-small", TOY, tmp_path / "s.db", clocks=wn.Grid(210, [1005]))
    assert list(tmp_path.iterdir()) == []
