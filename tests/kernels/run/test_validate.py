"""A plan measured again, interleaved with the default clocks, on the toy GPU."""

import numpy as np
import pytest

from testbed.binomial import ENOUGH, least_hits
from testbed.toy_gpu import TOY
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.kernels.run.interleaved import validate
from wastenot.meters.tasks import WorkloadTasks, tasks_of
from wastenot.planning.objective import Objective
from wastenot.planning.plan_file import read_plan
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions
from wastenot.workloads.build import build_workload

NAME = f"sim:{TOY}"
QUICK = PointOptions(warm_up_s=1.0, window_s=1.0)


class Counted:
    """Counts steps."""

    def __init__(self):
        self.steps = self.finished = 0

    def begin(self, steps, done=0):
        self.steps = steps

    def step(self, what):
        self.finished += 1

    def say(self, message):
        raise AssertionError(message)


@pytest.fixture(scope="module")
def units():
    whole = tasks_of(build_workload("gpt3-xl"))
    some = range(0, len(whole.kernels), 9)
    return WorkloadTasks("some", tuple(whole.kernels[k] for k in some), tuple(whole.tasks[k] for k in some))


@pytest.fixture(scope="module")
def made(units, tmp_path_factory):
    study = open_study(tmp_path_factory.mktemp("study") / "s.db", create=True)
    settings = [Setting(float(core), memory) for memory in (9501.0, 5001.0) for core in range(600, 2101, 300)]
    measure_sweep(open_device(NAME, seed=3), units, study, settings, options=QUICK)
    return plan(study.read("some"), Objective("waste", 0.02))


def test_what_is_measured_again_is_the_truth(made, units, tmp_path):
    device, progress = open_device(NAME, seed=4), Counted()
    checked = validate(made, units, device, repeats=5, options=QUICK, progress=progress)
    assert progress.steps == progress.finished == 2 * 5 * len(units.kernels)
    assert device.engine.requested == AUTO
    temperature = device.engine.temperature_c
    true = np.zeros((2, 2))
    for row, task in zip(made.assignments, units.tasks, strict=True):
        for place, setting in enumerate((AUTO, row.setting)):
            point = device.truth(task, setting, temperature)
            true[place] += row.count * point.time_s, row.count * point.time_s * point.power_w
    changes = true[1] / true[0] - 1
    found = checked.validation
    assert found.time_change.mean == pytest.approx(changes[0], abs=2e-3)
    assert found.energy_change.mean == pytest.approx(changes[1], abs=6e-3)
    for change in (found.time_change, found.energy_change):
        assert change.least <= change.mean <= change.most
        assert change.interval[0] < change.mean < change.interval[1]
    pairs = np.array(found.energy_j)[:, None] / np.array(found.baseline_energy_j) - 1
    assert (found.pairs, pairs.size) == (25, 25)
    assert (pairs.min(), pairs.max()) == pytest.approx((found.energy_change.least, found.energy_change.most))
    checked.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == checked
    assert checked.assignments == made.assignments and checked.digest != made.digest


def test_an_edited_validation_is_noticed(made, units, tmp_path):
    validate(made, units, open_device(NAME, seed=4), repeats=2, options=QUICK).write(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('"pairs": 4', '"pairs": 5'))
    with pytest.raises(BadInputError, match="pairs"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.slow
def test_intervals_cover_what_many_validations_give(made, units):
    """The 95 % intervals of validations on other seeds hold the mean of all of them about as often as they say."""
    seeds = range(10, 10 + ENOUGH)
    found = [validate(made, units, open_device(NAME, seed=s), repeats=4, options=QUICK).validation for s in seeds]
    for what in ("time_change", "energy_change"):
        changes = [getattr(each, what) for each in found]
        centre = np.mean([change.mean for change in changes])
        held = sum(change.interval[0] <= centre <= change.interval[1] for change in changes)
        assert held >= least_hits(ENOUGH), what


@pytest.mark.parametrize("wrong", ["device", "kernels", "repeats"])
def test_refusals(made, units, wrong):
    device = open_device(NAME if wrong != "device" else "sim:rtx-3080-ti")
    if wrong == "kernels":
        units = WorkloadTasks("others", units.kernels[1:], units.tasks[1:])
    with pytest.raises(
        BadInputError, match={"device": "not on", "kernels": "different kernels", "repeats": "at least 2"}[wrong]
    ):
        validate(made, units, device, repeats=1 if wrong == "repeats" else 2, options=QUICK)


def test_clocks_are_released_when_it_breaks(made, units):
    class Breaks(Counted):
        def step(self, what):
            super().step(what)
            if self.finished == 3:
                raise KeyboardInterrupt

    device = open_device(NAME, seed=4)
    with pytest.raises(KeyboardInterrupt):
        validate(made, units, device, repeats=3, options=QUICK, progress=Breaks())
    assert device.engine.requested == AUTO
