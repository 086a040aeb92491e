"""Kernels after the kernel before them, against the truth of a GPU on which that matters."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from testbed.binomial import ENOUGH, least_hits
from testbed.toy_gpu import toy
from wastenot.cli.main import flag_of
from wastenot.core.errors import BadInputError, DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.preset import find_preset
from wastenot.kernels.run.interleaved import validate
from wastenot.meters.tasks import WorkloadTasks, find_tasks
from wastenot.planning.planner import plan
from wastenot.study.recorder import Recorder
from wastenot.study.store import open_study
from wastenot.sweeping import states
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions, measure_point, warm_up
from wastenot.sweeping.states import LEAST_TURNS, loop_of, measure_in_context, tasks_before
from wastenot.workloads.identity import WorkloadKey
from wastenot.workloads.shape import Shape

DEVICE = "sim:mi300x"
LOW = Setting(1300.0, 1300.0)
QUICK = PointOptions(0.5, 1.0)
UNITS = find_tasks("gpt3-small", DEVICE)
BEFORE = tasks_before(UNITS)
PART = WorkloadTasks("part", UNITS.kernels[12:16], UNITS.tasks[12:16])
NAMES = [kernel.name for kernel in UNITS.kernels]
SLOW = partial(pytest.param, marks=pytest.mark.slow)


def truth(device, task, setting):
    point = device.truth(task, setting, device.engine.temperature_c)
    return np.array([point.time_s, point.time_s * point.power_w])


def true_in_context(device, kernel, setting):
    """Half of (loop + alone - the other alone): time and energy."""
    task, before = UNITS.tasks[kernel], BEFORE[kernel]
    loop = truth(device, loop_of(before, task), setting)
    return 0.5 * (loop + truth(device, task, setting) - truth(device, before, setting))


@pytest.mark.parametrize(
    ("name", "setting", "seeds"),
    [("softmax", LOW, 25), SLOW("gelu", AUTO, ENOUGH), SLOW("values_gemm", LOW, ENOUGH), SLOW("unpermute", LOW, ENOUGH)],
)
def test_errors_hold_the_truth_over_seeds(name, setting, seeds):
    kernel = NAMES.index(name)
    within, excess = [], []
    for seed in range(seeds):
        device = open_device(DEVICE, seed=seed)
        found = measure_in_context(device, UNITS.tasks[kernel], BEFORE[kernel], setting, PointOptions(60.0, 4.0))
        should = true_in_context(device, kernel, setting)
        within.append(abs(found.within.energy_j - should[1]) <= 1.96 * found.within.energy_se_j)
        excess.append(found.within.energy_j / should[1] - 1)
        assert found.within.time_s == pytest.approx(should[0], abs=4.5 * found.within.time_se_s)
        assert found.within.energy_se_j > 0 and "after" in found.within.how
        assert found.alone.energy_j == pytest.approx(truth(device, UNITS.tasks[kernel], setting)[1], rel=0.015)
    assert sum(within) >= least_hits(seeds)
    assert abs(np.mean(excess)) < 0.004


def test_a_light_kernel_after_a_heavy_one_costs_more_and_the_whole_is_the_iteration():
    """Half of each loop adds up to the iteration; the whole of it counts what kernels do to each other twice."""
    device = open_device(DEVICE)
    counts = [kernel.count for kernel in UNITS.kernels]
    iteration = truth(
        device, Task("iteration", tuple((t.steps[0][0], n) for t, n in zip(UNITS.tasks, counts, strict=True))), LOW
    )
    alone = sum(n * truth(device, task, LOW) for task, n in zip(UNITS.tasks, counts, strict=True))
    half = sum(n * true_in_context(device, kernel, LOW) for kernel, n in enumerate(counts))
    missing = 1 - alone[1] / iteration[1]
    assert missing > 0.003
    assert half[1] == pytest.approx(iteration[1], rel=0.2 * missing)
    whole = alone + 2 * (half - alone)
    assert whole[1] / iteration[1] - 1 > 0.8 * missing


def test_a_kernel_that_follows_itself_is_the_same_alone_and_in_context():
    device = open_device(DEVICE)
    found = measure_in_context(device, UNITS.tasks[4], UNITS.tasks[4], LOW, QUICK)
    assert found.alone == found.within


def test_more_turns_where_the_kernel_before_is_much_heavier():
    device = open_device(DEVICE)
    light, heavy = NAMES.index("down_dbias_reduce"), NAMES.index("logits_gemm")
    few = measure_in_context(device, UNITS.tasks[heavy], UNITS.tasks[light], LOW, QUICK)
    many = measure_in_context(device, UNITS.tasks[light], UNITS.tasks[heavy], LOW, QUICK)
    assert few.within.stopped == f"{LEAST_TURNS} turns: error reached"
    assert many.within.calls / many.within.window_s < few.within.calls / few.within.window_s * 1.1
    assert int(many.within.stopped.split()[0]) > LEAST_TURNS


def test_a_kernel_hundreds_of_times_lighter_than_the_one_before_it_is_as_alone_with_the_error_of_the_difference():
    decoding, setting = find_tasks("llama-8b", "sim:toy", Shape(phase="decode")), Setting(1500.0, 9501.0)
    embedding, before = decoding.tasks[0], tasks_before(decoding)[0]
    assert (
        truth(simulated_device(toy(), "sim:toy"), before, setting)[1]
        > 500 * truth(simulated_device(toy(), "sim:toy"), embedding, setting)[1]
    )
    for seed in range(5):
        device = simulated_device(toy(), "sim:toy", seed=seed)
        warm_up(device, decoding.tasks)
        found = measure_in_context(device, embedding, before, setting, PointOptions(0.1, 0.1))
        assert (found.within.time_s, found.within.energy_j) == (found.alone.time_s, found.alone.energy_j)
        assert found.within.energy_se_j > 10 * found.alone.energy_se_j and "those of the kernel alone" in found.within.how


def cheap_loops(monkeypatch, factor):
    """Loops of two kernels are measured with a part of their energy from now on."""

    def measured(device, task, setting, options):
        found = measure_point(device, task, setting, options)
        return replace(found, energy_j=factor * found.energy_j) if " > " in task.name else found

    monkeypatch.setattr(states, "measure_point", measured)


def test_an_energy_that_is_not_above_zero_ends_the_sweep_and_is_not_stored(tmp_path, monkeypatch):
    study, units, short = (
        open_study(tmp_path / "s.db", create=True),
        replace(PART, state="context"),
        PointOptions(0.05, 0.05),
    )
    with monkeypatch.context() as patch:
        cheap_loops(patch, 0.1)
        with pytest.raises(
            DeviceError, match=r"after '.*' at auto: its energy in context, .* comes to -.* for longer"
        ) as ended:
            measure_sweep(open_device(DEVICE), units, study, (), options=short)
    assert "--window" in ended.value.text(flag_of) and "--in-context" in ended.value.text(flag_of)
    assert all(one.energy_j > 0.0 for one in study.measurements("part", "context"))
    measure_sweep(open_device(DEVICE), units, study, (), options=short, rounds=1)
    assert (study.read(state="context").energy_j > 0.0).all()


def test_without_carry_over_and_limits_nothing_is_found_that_errors_do_not_explain():
    preset = find_preset("h200")
    setting = Setting(1305.0, preset.clocks.memory_mhz[-1])
    off = []
    for seed in range(10):
        device = simulated_device(preset, "sim:h200", seed=seed)
        found = measure_in_context(device, UNITS.tasks[5], BEFORE[5], setting, QUICK)
        off.append((found.within.energy_j - found.alone.energy_j) / found.within.energy_se_j)
    assert abs(np.mean(off)) < 1.0


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    device = open_device(DEVICE, seed=2)
    study = open_study(tmp_path_factory.mktemp("swept") / "s.db", create=True)
    units = replace(PART, state="context")
    outcome = measure_sweep(device, units, study, (LOW,), options=QUICK)
    return device, units, study, outcome


def test_a_sweep_in_context_keeps_both_states_and_goes_on(swept):
    device, units, study, outcome = swept
    assert study.workloads() == (WorkloadKey("part", "context"), WorkloadKey("part"))
    alone, within = study.read("part"), study.read(state="context")
    assert (alone.key, within.key) == (WorkloadKey("part"), WorkloadKey("part", "context"))
    assert len(alone) == len(within) == outcome.measured
    assert study.read().state == "ssp"  # what is not said is steady power
    again = measure_sweep(device, units, study, (LOW,), options=QUICK)
    assert (again.measured, again.found) == (0, outcome.measured)
    known = study.measurements("part", "context")[0]
    assert known.how.startswith("after '") and "turns" in known.stopped
    made = plan(within)
    assert made.measured == WorkloadKey("part", "context")


def test_what_a_sweep_alone_has_is_not_measured_into_it_again(tmp_path):
    device = open_device(DEVICE, seed=2)
    study = open_study(tmp_path / "s.db", create=True)
    measure_sweep(device, PART, study, (), options=QUICK)
    before = len(study.read("part"))
    measure_sweep(device, replace(PART, state="context"), study, (), options=QUICK)
    assert len(study.read("part")) == before == len(study.read(state="context"))


def test_what_is_broken_off_between_alone_and_in_context_is_kept_once(swept, tmp_path, monkeypatch):
    device, units, _, outcome = swept
    study = open_study(tmp_path / "s.db", create=True)
    append, made = Recorder.append, []

    def broken(self, trial):
        made.append(trial)
        if len(made) == 6:  # of the third point, alone is kept, in context not
            raise KeyboardInterrupt
        append(self, trial)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "append", broken)
        with pytest.raises(KeyboardInterrupt):
            measure_sweep(device, units, study, (LOW,), options=QUICK)
    assert device.engine.requested == AUTO  # given back
    rest = measure_sweep(device, units, study, (LOW,), options=QUICK)
    assert (rest.found, rest.measured) == (2, outcome.measured - 2)
    assert len(study.read("part")) == len(study.read(state="context")) == outcome.measured


def test_a_plan_in_context_is_validated_in_context(swept):
    device, units, study, _ = swept
    made = plan(study.read(state="context"))
    checked = validate(made, units, device, repeats=2, options=QUICK).validation
    assert checked is not None
    assert np.mean(checked.baseline_energy_j) == pytest.approx(made.baseline.energy_j, rel=0.01)


def test_a_recording_cannot_run_loops(swept, tmp_path):
    _, _, study, _ = swept
    recorded = open_device(f"recorded:{study.path}", workload="part")
    units = find_tasks("part", f"recorded:{study.path}")
    with pytest.raises(BadInputError, match="one after another"):
        measure_sweep(
            recorded, replace(units, state="context"), open_study(tmp_path / "new.db", create=True), (), options=QUICK
        )
    assert not (tmp_path / "new.db").exists()


def test_a_state_that_was_not_measured_is_said_with_the_way_to_it(tmp_path):
    study = open_study(tmp_path / "s.db", create=True)
    measure_sweep(open_device(DEVICE), PART, study, (), options=QUICK, rounds=1)
    with pytest.raises(BadInputError, match="--in-context"):
        study.read(state="context")
    with pytest.raises(BadInputError, match="there is no 'other'"):
        study.read("other", state="context")
