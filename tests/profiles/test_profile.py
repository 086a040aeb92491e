"""``wn.profile``: kernels by name, functions, and what makes no sense."""

import numpy as np
import pytest

import wastenot as wn
from wastenot.core.setting import Setting
from wastenot.devices.instrument import Burst
from wastenot.devices.open import open_device
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.profile import profile
from wastenot.profiles.subjects import Subjects
from wastenot.workloads.build import build_workload
from wastenot.workloads.primitives import primitive


class RunsFunctions:
    """A simulated instrument that takes a function for a product."""

    def __init__(self, inner, functions):
        self._inner, self.functions = inner, functions

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def with_callables(self, calls):
        self.functions.update(calls)
        return self

    def prepare(self, burst):
        product = primitive("gemm:4096")[0]
        return self._inner.prepare(Burst(tuple((product, times) for _, times in burst.steps)))


def test_names_kernels_and_workloads_are_found(tmp_path):
    subjects = Subjects("sim:mi300x")
    assert subjects.one("gemm:4096") == primitive("gemm:4096")[0]
    softmax = subjects.one("gpt3-small:softmax")
    assert softmax.op == "softmax"
    assert subjects.several(["gemv:64x40", ("gpt3-small:softmaxx3", 2), softmax]) == (
        (primitive("gemv:64")[0], 40), (softmax, 6), (softmax, 1),
    )  # fmt: skip
    captured = tmp_path / "mine.json"
    wn.write_workload(build_workload("gpt3-small"), captured)
    assert subjects.one(f"{captured}:softmax").name == "softmax"


def test_functions_of_one_name_are_told_apart():
    subjects = Subjects("nvidia:0")
    first, second = (lambda: None), (lambda: None)
    names = [kernel.name for kernel, _ in subjects.several([first, second, first])]
    assert names == ["lambda", "lambda-2", "lambda"] and list(subjects.functions.values()) == [first, second]


def test_a_device_given_as_one_is_profiled_and_a_kernel_by_formula():
    found = wn.profile(primitive("gemm:4096")[0], open_device("sim:mi300x"), options=ProfileOptions(runs=30, executions=20))
    assert isinstance(found, wn.Profile) and found.kernel == "gemm-4096" and found.states[-1].unit == 20


def test_functions_run_where_they_can(monkeypatch):
    device = open_device("sim:mi300x")
    functions = {}
    inner = device.instrument()
    monkeypatch.setattr(type(device), "instrument", lambda self: RunsFunctions(inner, functions))

    def step():
        raise AssertionError("the stand-in does not call it")

    found = profile(step, device, options=ProfileOptions(runs=20, executions=8))
    assert found.kernel == "step" and functions == {"step": step}


def test_functions_are_refused_on_a_simulated_device():
    with pytest.raises(wn.WastenotError, match=r"sim:mi300x: it cannot run Python functions \(step\)"):

        def step():
            """Never called."""

        profile(step, "sim:mi300x")


def test_after_and_in_turn_are_told_apart():
    found = profile("gemm:2048", "sim:mi300x", after=[("gemv:4096", 10)], options=ProfileOptions(runs=20))
    assert found.before == "10 × gemv-4096" and found.states[0].name == "in context"


def test_the_time_allowed_ends_a_profile():
    found = profile("gemm:4096", "sim:mi300x", options=ProfileOptions(budget_s=1.0))
    assert not found.complete and found.notes


@pytest.mark.parametrize("name, skipped", [("sim:mi300x", False), ("sim:h200", True)])
def test_cycles_of_each_execution_are_those_of_the_clock_in_effect_that_are_not_skipped(name, skipped):
    device, kernel = open_device(name, seed=2), primitive("gemv:8192")[0]
    memory = max(device.clocks.supported_clocks())
    core = device.clocks.supported_clocks()[memory][-8]
    device.clocks.request(Setting(core, memory))
    device.time.sleep(1.0)
    found = profile(kernel, device, options=ProfileOptions(runs=20, executions=30, budget_s=6.0))
    left = float(device.engine.physics.response(kernel, np.array([core]), Setting(core, memory)).counted[0])
    assert (left < 1.0) is skipped
    assert len(found.unit_counted_mhz) == len(found.unit_time_s)
    assert found.unit_counted_mhz == pytest.approx(np.full(len(found.unit_counted_mhz), left * core), rel=1e-3)
    assert np.ptp(found.unit_counted_mhz) > 0.0  # the GPU's timer has a resolution
    for state in found.states:
        assert found.counted_mhz(state) == pytest.approx(left * core, rel=1e-3)
