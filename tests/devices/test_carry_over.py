"""What a light kernel draws in the wake of a heavy one, in steady state, against the run execution by execution."""

import dataclasses

import numpy as np
import pytest

from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import find_preset
from wastenot.devices.simulated.trace import Parts, trace
from wastenot.workloads.build import build_workload

LOW = Setting(1100.0, 1300.0)  # no power limit in the way
TEMPERATURE_C = 70.0


def kernels(*names):
    known = {kernel.name: kernel for kernel in build_workload("gpt3-small").kernels}
    return [known[name] for name in names]


@pytest.mark.parametrize(
    ("names", "times"),
    [
        (("scores_gemm", "softmax"), (1, 1)),
        (("softmax", "scores_gemm"), (1, 1)),
        (("scores_gemm", "softmax", "gelu", "unpermute"), (1, 1, 1, 1)),
        (("logits_gemm", "cross_entropy"), (1, 1)),
        (("softmax", "logits_gemm"), (7, 2)),
    ],
)
def test_closed_form_is_the_energy_of_a_long_trace(names, times):
    preset = find_preset("mi300x")
    quiet = preset.dynamics.quiet().model_copy(update={"warm_up": (), "firmware": None})
    physics = ModelPhysics(preset)
    members = [dataclasses.replace(kernel, block=None) for kernel in kernels(*names)]
    task = Task("loop", tuple(zip(members, times, strict=True)))
    point = physics.operating_point(task, LOW, TEMPERATURE_C)
    steady = [physics.steady(kernel, LOW, TEMPERATURE_C) for kernel in members]
    rounds = int(0.2 / point.time_s)
    told = trace(quiet, steady, task.order * rounds, Parts(preset.idle_w, 0.0, 0.0))
    half = len(task.order) * (rounds // 2)
    seconds = told.begin_s[-len(task.order)] - told.begin_s[half]
    idle = np.array([preset.idle_w, 0.0, 0.0])
    mean_w = told.history.mean_w(told.begin_s[[half]], told.begin_s[[-len(task.order)]], idle).sum()
    calls = (rounds - 1) - rounds // 2
    assert seconds == pytest.approx(calls * point.time_s, rel=1e-9)
    assert mean_w == pytest.approx(point.power_w, rel=2e-5)
    alone_j = sum(n * one.time_s * one.parts.total for n, one in zip(times, steady, strict=True))
    assert point.time_s * point.power_w > alone_j * (1 + 5e-4)  # there is something to be seen


@pytest.mark.parametrize("name", sorted(set(preset_names()) - {"mi300x"}))
def test_other_presets_have_none(name):
    preset = find_preset(name)
    device = simulated_device(preset, f"sim:{name}")
    members = kernels("scores_gemm", "softmax")
    setting = Setting(preset.clocks.core_mhz[len(preset.clocks.core_mhz) // 3], preset.clocks.memory_mhz[-1])
    alone = [device.truth(Task.of_kernel(kernel), setting) for kernel in members]
    loop = device.truth(Task("loop", tuple((kernel, 1) for kernel in members)), setting)
    assert not any(point.throttled for point in alone)
    assert loop.time_s == pytest.approx(sum(point.time_s for point in alone), rel=1e-12)
    assert loop.power_w * loop.time_s == pytest.approx(sum(point.time_s * point.power_w for point in alone), rel=1e-12)


def test_a_kernel_by_itself_has_none():
    physics = ModelPhysics(find_preset("mi300x"))
    without = ModelPhysics(
        physics.preset.model_copy(update={"dynamics": physics.preset.dynamics.model_copy(update={"carry_over_share": 0.0})})
    )
    for kernel in kernels("scores_gemm", "softmax"):
        task = Task(kernel.name, ((kernel, 5),))
        assert physics.operating_point(task, AUTO, 50.0) == without.operating_point(task, AUTO, 50.0)
