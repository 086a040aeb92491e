"""Refining a plan, measuring settings in turn with auto, and plans elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.kernels.run.interleaved import InterleavedRuns, compare_with_auto, transfer
from wastenot.kernels.run.refine import Finalists, around, finalists, refine, scheduled_settings
from wastenot.meters.tasks import tasks_of
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions
from wastenot.workloads.build import build_workload

DEVICE = "sim:testbed/toy.toml"
QUICK = PointOptions(1.0, 1.0)


def some_tasks(**shape):
    """A third of the kernels of a small model."""
    whole = tasks_of(build_workload("gpt3-small", **shape))
    return replace(whole, run=None, kernels=whole.kernels[::3], tasks=whole.tasks[::3])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    path = tmp_path_factory.mktemp("swept") / "s.db"
    device, units = open_device(DEVICE, seed=1), some_tasks()
    study = open_study(path, create=True)
    settings = Grid(core_step_mhz=300, memory_mhz=(5001.0, 9501.0)).settings(device.clocks.supported_clocks())
    measure_sweep(device, units, study, settings, options=QUICK)
    return study, units


def test_refining_measures_the_finalists_again(swept):
    study, units = swept
    before = study.read()
    made = plan(before)
    chosen = finalists(before, made, 2)
    assert all(row.setting in chosen[row.kernel] for row in made.assignments)
    outcome = refine(open_device(DEVICE, seed=2), units, study, chosen, repeats=2, options=QUICK)
    after = study.read()
    assert len(after) - len(before) == outcome.measured == 2 * sum(len({AUTO, *some}) for some in chosen.values())
    # More readings of the same: the promise shrinks towards what can be kept, and is better known.
    assert plan(after).predicted.energy_change_se < made.predicted.energy_change_se or made.predicted.energy_change_se > 0


def test_refining_on_another_card_needs_no_sweep_of_it(swept, tmp_path):
    study, units = swept
    made = plan(study.read())
    device = open_device(DEVICE, seed=99)
    states = device.clocks.supported_clocks()
    candidates = {row.kernel: around(row.setting, states, 150) for row in made.assignments}
    other = open_study(tmp_path / "other.db", create=True)
    refine(device, units, other, candidates, repeats=1, options=QUICK)
    assert plan(other.read()).predicted.energy_change < 0.5 * made.predicted.energy_change


def test_what_is_around_a_setting():
    states = {5001.0: (900.0, 1000.0, 1100.0), 9501.0: (900.0, 1000.0, 1100.0)}
    assert set(around(Setting(1000.0, 9501.0), states, 100)) == {
        Setting(1000.0, 9501.0), Setting(900.0, 9501.0), Setting(1100.0, 9501.0), Setting(1000.0, 5001.0)
    }  # fmt: skip
    assert around(AUTO, states, 100) == (AUTO,)


def test_every_kernel_is_measured_at_and_around_the_settings_of_the_schedule(swept):
    """Otherwise no stretch of a schedule could have them."""
    study, units = swept
    made, device = plan(study.read(), max_slowdown=0.02), open_device(DEVICE, seed=3)
    states = device.clocks.supported_clocks()
    used = {each.setting for each in made.schedule.rungs[0].segments if not each.setting.is_auto}
    near = {other for each in used for other in around(each, states, 150) if other.memory_mhz == each.memory_mhz}
    assert used and used < near
    candidates = Finalists(1, 150.0).of(study.read(), made, device)
    assert set(candidates) == {kernel.name for kernel in units.tasks}
    assert all(near <= set(settings) for settings in candidates.values())
    # Where nothing is scheduled, the clocks just below the highest are what is missing.
    auto = made.schedule.model_copy(update={"rungs": made.schedule.rungs[-1:]})
    highest = Setting(max(states[9501.0]), 9501.0)
    below = scheduled_settings(made.model_copy(update={"schedule": auto}), states, 150.0)
    assert set(below) == {highest, Setting(highest.core_mhz - 150.0, 9501.0)}


def test_transfer_measures_the_plan_elsewhere(swept):
    study, units = swept
    made = plan(study.read())
    targets = [some_tasks(batch=batch) for batch in (40, 4)]
    found = transfer(open_device(DEVICE, seed=3), made, targets, repeats=2, options=QUICK)
    assert [row.workload for row in found.rows] == ["gpt3-small", "gpt3-small-batch4"]
    assert found.rows[0].auto_time_s > 5 * found.rows[1].auto_time_s
    here = found.rows[0]
    assert here.energy_change.mean == pytest.approx(made.predicted.energy_change, abs=0.02)
    for change in (here.energy_change, here.time_change):
        assert change.low <= change.mean <= change.high
        assert change.least_pair <= change.mean <= change.greatest_pair
    with pytest.raises(BadInputError, match="no clocks for kernel"):
        transfer(open_device(DEVICE), made, [tasks_of(build_workload("llama-1b"))], repeats=2)
    with pytest.raises(BadInputError, match="at least 2"):
        compare_with_auto(open_device(DEVICE), units, {}, repeats=1)


def test_intervals_hold_the_truth_at_their_rate():
    rng = np.random.default_rng(2)
    held = []
    for _ in range(2000):
        plan_j, auto_j = 0.9 * (1 + 0.004 * rng.standard_normal(10)), 1 + 0.004 * rng.standard_normal(10)
        change = InterleavedRuns(plan_j, plan_j, auto_j, auto_j).energy_change
        held.append(change.low <= -0.1 <= change.high)
    assert 0.935 <= np.mean(held) <= 0.965
