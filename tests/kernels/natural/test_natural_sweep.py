"""The loop of a natural sweep: what it does when kernels, the card or somebody else gets in its way."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from testbed.natural_studies import read_curves
from wastenot.core.errors import BadInputError, CannotRunError, DeviceError, StudyError
from wastenot.core.progress import Silent
from wastenot.devices.open import open_device
from wastenot.kernels.natural.measure import HEAVY, natural_sweep, twins_of
from wastenot.kernels.natural.overview import natural_overview
from wastenot.meters.tasks import find_tasks
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.workloads.shape import Shape

NAMES = ("softmax", "down_gemm", "norm_first")
SHORT_S = 3.0  # of each kernel, where it does not matter how good the curves are


class Told(Silent):
    def __init__(self):
        self.lines, self.steps = [], []

    def say(self, message):
        self.lines.append(message)

    def step(self, what):
        self.steps.append(what)


@pytest.fixture
def tasks():
    whole = find_tasks("llama-8b", "sim:h200", Shape("prefill", 2))
    chosen = [index for index, task in enumerate(whole.tasks) if task.name in NAMES]
    return replace(
        whole, run=None, kernels=tuple(whole.kernels[i] for i in chosen), tasks=tuple(whole.tasks[i] for i in chosen)
    )


@pytest.fixture
def study(tmp_path):
    return open_study(tmp_path / "study.db", create=True)


def swap(device, prepare):
    """The device's recorder, with another way to prepare."""
    recorder = device.timelines()
    original = recorder.prepare

    class Recorder:
        identity, channels, stamps = recorder.identity, recorder.channels, recorder.stamps

        @contextmanager
        def prepare(self, subjects, *, group_s=1e-3):
            with prepare(original, subjects, group_s) as prepared:
                yield prepared

    device.timelines = Recorder
    return device


def card(seed=1):
    device = open_device("sim:h200", seed=seed)

    class Loose:  # a simulated device has slots
        def __init__(self):
            self.identity, self.time, self.clocks = device.identity, device.time, device.clocks
            self.sensors, self.launcher, self.timelines = device.sensors, device.launcher, device.timelines

    return Loose()


def test_every_kernel_gets_a_curve_over_the_clocks_it_was_seen_at(tasks, study):
    outcome = natural_sweep(card(), tasks, study)
    assert outcome.measured == 3 and not outcome.notes and not outcome.out_of_time
    curves = read_curves(study)
    assert [curve.kernel for curve in curves] == [task.name for task in tasks.tasks]
    device = open_device("sim:h200")
    for curve, task in zip(curves, tasks.tasks, strict=True):
        assert curve.core_mhz[-1] > 1.1 * curve.core_mhz[0]
        truth = [device.truth_at(task.steps[0][0], float(mhz)).time_s for mhz in curve.core_mhz]
        np.testing.assert_allclose(curve.time_s, truth, rtol=0.02)
    assert plan(study).state == "natural"


def test_a_kernel_that_cannot_run_is_named_and_the_others_are_measured(tasks, study):
    @contextmanager
    def prepare(original, subjects, group_s):
        if subjects[0].kernel.name == "softmax":
            raise CannotRunError("softmax: the data do not fit into the free memory")
        with original(subjects, group_s=group_s) as prepared:
            yield prepared

    told = Told()
    outcome = natural_sweep(swap(card(), prepare), tasks, study, progress=told, seconds_each=SHORT_S)
    assert outcome.skipped == {"CannotRunError": 1} and outcome.measured == 2
    assert any("'softmax' cannot be measured: softmax: the data do not fit" in line for line in told.lines)
    with pytest.raises(StudyError, match="has not measured 1 of its kernels yet, first 'softmax'"):
        study.read()


def test_a_smaller_product_is_taken_where_memory_is_short(tasks, study):
    tried = []

    @contextmanager
    def prepare(original, subjects, group_s):
        tried.append(subjects[1].kernel.name)
        if subjects[1].kernel.name == "gemm-8192":
            raise CannotRunError("out of memory")
        with original(subjects, group_s=group_s) as prepared:
            yield prepared

    natural_sweep(swap(card(), prepare), tasks, study, seconds_each=SHORT_S)
    assert tried[:2] == [name.replace(":", "-") for name in HEAVY[:2]]
    assert study.timelines()[0].content.header["subjects"][1] == ["gemm-4096", "random"]


def test_what_was_measured_is_kept_and_known_when_the_device_fails(tasks, study):
    runs = []

    @contextmanager
    def prepare(original, subjects, group_s):
        with original(subjects, group_s=group_s) as prepared:

            def run(phases):
                runs.append(subjects[0].kernel.name)
                if len(set(runs)) == 3:
                    raise DeviceError("GPU has fallen off the bus")
                return prepared.run(phases)

            yield replace(prepared, run=run)

    with pytest.raises(DeviceError, match="fallen off"):
        natural_sweep(swap(card(), prepare), tasks, study, seconds_each=SHORT_S)
    assert [each.header["together"] for each in study.natural_curves().values()] == [False, False]
    outcome = natural_sweep(card(2), tasks, study, seconds_each=SHORT_S)
    assert (outcome.found, outcome.measured) == (2, 1)
    assert len(read_curves(study).curves) == 3
    assert all(each.header["together"] for each in study.natural_curves().values())


def test_another_process_on_the_card_is_said(tasks, study):
    @contextmanager
    def prepare(original, subjects, group_s):
        with original(subjects, group_s=group_s) as prepared:
            yield replace(prepared, run=lambda phases: replace(prepared.run(phases), shared=True))

    outcome = natural_sweep(swap(card(), prepare), tasks, study, seconds_each=SHORT_S)
    assert len(outcome.notes) == 1 and "another process used the GPU" in outcome.notes[0]


def test_a_card_that_never_throttles_says_what_load_would_be_needed(study):
    tasks = find_tasks("llama-8b", "sim:v100", Shape("decode", 8))
    tasks = replace(tasks, run=None, kernels=tasks.kernels[:2], tasks=tasks.tasks[:2])
    told = Told()
    outcome = natural_sweep(open_device("sim:v100", seed=1), tasks, study, progress=told)
    assert len(outcome.notes) == 1 and "never throttled: it stayed at 13" in outcome.notes[0]
    assert "reaches the power limit" in outcome.notes[0]
    assert len(told.lines) == 1 and "none of the loads made it run at another clock" in told.lines[0]
    made = plan(study, max_slowdown=0.05)
    assert all(row.setting.is_auto for row in made.assignments)


def test_kernels_share_a_limit_of_time_so_that_all_are_reached(tasks, study):
    outcome = natural_sweep(card(), tasks, study, budget_s=9.0)
    assert outcome.measured == 3 and not outcome.out_of_time
    assert sum(curve.groups > 0 for curve in read_curves(study)) == 3


def test_what_a_sweep_has_not_reached_is_left_out_and_said(tasks, study):
    outcome = natural_sweep(card(), tasks, study, budget_s=0.5)  # the first run of the first kernel ends it
    assert outcome.out_of_time
    with pytest.raises(StudyError, match="has not measured"):
        study.read()
    sweep = study.read(partial=True)
    assert [kernel.name for kernel in sweep.kernels] == [tasks.tasks[0].name]
    assert sweep.unreached == tuple(task.name for task in tasks.tasks[1:])
    overview = natural_overview(study, draws=40)
    assert len(overview.kernels) == 1
    assert any("2 of 3 kernels are not measured (" in note for note in overview.notes)


def test_the_same_kernel_twice_is_measured_once(study):
    whole = find_tasks("llama-8b", "sim:h200", Shape("training", 1))
    names = ("residual_1", "residual_2", "norm_1_backward", "norm_2_backward")
    chosen = [index for index, task in enumerate(whole.tasks) if task.name in names]
    tasks = replace(
        whole, run=None, kernels=tuple(whole.kernels[i] for i in chosen), tasks=tuple(whole.tasks[i] for i in chosen)
    )
    assert len(set(twins_of(tasks.tasks).values())) == 2
    outcome = natural_sweep(card(), tasks, study, seconds_each=SHORT_S)
    assert outcome.measured == 4 and outcome.found == 0
    again = natural_sweep(card(), tasks, study, seconds_each=SHORT_S)
    assert again.measured == 0 and again.found == 4
    curves = {curve.kernel: curve for curve in read_curves(study)}
    assert set(curves) == set(names)
    np.testing.assert_array_equal(curves["residual_2"].time_s, curves["residual_1"].time_s)
    assert any("the same kernel as 'residual_1'" in note for note in curves["residual_2"].notes)
    assert not study.timelines(kernel="residual_2")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_nonsense_is_refused(tasks, study, seconds):
    with pytest.raises(BadInputError, match="seconds_each"):
        natural_sweep(card(), tasks, study, seconds_each=seconds)
    with pytest.raises(BadInputError, match="single kernels"):
        natural_sweep(card(), replace(tasks, granularity="pass"), study)
    assert not study.path.exists()
