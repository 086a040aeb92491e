"""What captured operations explain of a trace: on records made up, on profiler events made up, and on a real CPU trace."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from wastenot.workloads.capturing.coverage import (
    Missing,
    OperationInterval,
    Spent,
    attribute,
    captured_operations,
    coverage,
    enclosing,
)

torch = pytest.importorskip("torch")

from torch.autograd.profiler_util import FunctionEvent  # noqa: E402
from torch.profiler import record_function  # noqa: E402

from testbed.tiny_model import make_step  # noqa: E402
from wastenot.workloads.capturing.capture import capture  # noqa: E402
from wastenot.workloads.capturing.coverage import CPU_TIME, GPU_TIME, records_of, trace  # noqa: E402

DEVICE = type(FunctionEvent(0, "", 0, 0, 0).device_type)


def test_the_first_captured_operation_around_a_kernel_explains_it():
    operations = [
        OperationInterval("aten::linear", 1, 0, 100),
        OperationInterval("aten::addmm", 1, 10, 90),
        OperationInterval("cudaLaunchKernel", 1, 20, 30),
        OperationInterval("triton_poi_fused_gelu_0", 1, 110, 120),
        OperationInterval("Torch-Compiled Region", 1, 105, 130),
        OperationInterval("aten::addmm", 2, 106, 140),
    ]
    spent = [
        Spent("nvjet", 60.0, 2), Spent("triton_poi_fused_gelu_0", 10.0, 3), Spent("triton_poi_fused_gelu_0", 12.0, 3),
        Spent("memset", 5.0, None), Spent("splitk", 3.0, 1), Spent("prologue", 1.0, 0),
    ]  # fmt: skip
    found = attribute(operations, spent, frozenset({"aten::addmm", "aten::gelu"}))
    assert (found.total_us, found.explained_us) == (91.0, 63.0)
    assert found.share == pytest.approx(63 / 91)
    assert found.missing == (
        Missing("triton_poi_fused_gelu_0", "triton_poi_fused_gelu_0", 2, 22.0),
        Missing("memset", None, 1, 5.0),
        Missing("prologue", "aten::linear", 1, 1.0),
    )
    assert found.absent == ("aten::gelu",)


def test_a_trace_without_time_has_no_share():
    assert attribute([], [], frozenset()).share is None


intervals = st.lists(
    st.builds(
        lambda thread, start, length: OperationInterval("op", thread, start, start + length),
        st.integers(0, 2), st.integers(0, 40), st.integers(0, 20),
    ),
    max_size=12,
)  # fmt: skip


def _nested(operations):
    """Whether one of each pair contains the other or ends before it; an instant on a boundary belongs to neither side."""
    pairs = [(a, b) for a in operations for b in operations if a is not b and a.thread == b.thread]
    if any(b.start_us == b.end_us and b.start_us in (a.start_us, a.end_us) and a.start_us < a.end_us for a, b in pairs):
        return False
    return all(
        b.start_us >= a.end_us or a.start_us >= b.end_us
        or (a.start_us <= b.start_us and b.end_us <= a.end_us) or (b.start_us <= a.start_us and a.end_us <= b.end_us)
        for a, b in pairs
    )  # fmt: skip


@given(intervals.filter(_nested))
def test_what_encloses_an_operation_is_the_least_that_does(operations):
    for inner, outer in enumerate(enclosing(operations)):
        a = operations[inner]
        around = [
            b for place, b in enumerate(operations)
            if b.thread == a.thread and b.start_us <= a.start_us and a.end_us <= b.end_us
            and (b.end_us - b.start_us > a.end_us - a.start_us)
        ]  # fmt: skip
        if outer is None:
            assert not around
        else:
            b = operations[outer]
            assert b.thread == a.thread and b.start_us <= a.start_us and a.end_us <= b.end_us
            least = min((c.end_us - c.start_us for c in around), default=0)
            assert b.end_us - b.start_us <= max(least, a.end_us - a.start_us)


def _host(ident, name, start, end, *kernels):
    event = FunctionEvent(ident, name, 1, start, end, use_device="cuda", device_type=DEVICE.CPU)
    for kernel in kernels:
        event.append_kernel(kernel, 0, 5.0)
    return event


def _gpu(name, start, **more):
    return FunctionEvent(0, name, 7, start, start + 5.0, use_device="cuda", device_type=DEVICE.CUDA, **more)


def test_events_of_a_gpu_trace():
    profile = SimpleNamespace(
        events=lambda: [
            _host(1, "aten::mm", 0, 10, "nvjet"),
            _host(2, "Torch-Compiled Region", 12, 30),
            _host(3, "triton_fused", 14, 20, "triton_fused"),
            _gpu("nvjet", 100), _gpu("triton_fused", 110), _gpu("Memset (Device)", 120),
            _gpu("Optimizer.step", 100, is_user_annotation=True),
        ]
    )  # fmt: skip
    operations, spent, of = records_of(profile)
    assert of == GPU_TIME
    found = attribute(operations, spent, frozenset({"aten::mm"}), of=of)
    assert (found.total_us, found.explained_us) == (15.0, 5.0)
    assert {(entry.name, entry.launched_by) for entry in found.missing} == {
        ("triton_fused", "triton_fused"), ("Memset (Device)", None),
    }  # fmt: skip


def test_a_trace_on_the_cpu_is_explained_by_what_was_captured():
    step, _ = make_step("fused")
    with capture() as captured:
        step()
    profile = trace(step)
    found = coverage(profile, captured.workload)
    assert found.of == CPU_TIME and found.share is not None and 0.0 < found.share < 1.0
    assert found.absent == ()
    names = {entry.name for entry in found.missing}
    assert "aten::addmm" not in names and "aten::t" in names
    operations, spent, _ = records_of(profile)
    own = sum(item.time_us for item in spent)
    assert found.total_us == pytest.approx(own)
    assert found.explained_us + sum(entry.time_us for entry in found.missing) == pytest.approx(own)
    without = captured_operations(captured.workload) - {"aten::addmm"}
    assert attribute(operations, spent, without).explained_us < found.explained_us


def test_what_the_trace_lacks_is_said():
    with capture() as captured:
        torch.randn(8).exp()
        torch.randn(8).sinh()

    def other_step():
        with record_function("part"):
            torch.randn(8).exp()

    found = coverage(trace(other_step), captured.workload)
    assert found.absent == ("aten::sinh",)
    assert "part" not in {entry.name for entry in found.missing}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
def test_what_compiled_code_runs_outside_the_dispatcher_is_missing(monkeypatch):
    monkeypatch.setenv("SETUPTOOLS_USE_DISTUTILS", "stdlib")  # whichever of the two another test has loaded
    linear = torch.nn.Linear(32, 32)
    compiled = torch.compile(lambda x: torch.nn.functional.gelu(linear(x)).sum())

    def step():
        compiled(torch.ones(8, 32)).backward()

    step()
    with capture() as captured:
        step()
    seen = captured_operations(captured.workload)
    assert {"aten::addmm", "aten::mm"} <= seen and not {"aten::gelu", "aten::gelu_backward"} & seen
    found = coverage(trace(step), captured.workload)
    assert any("Compiled" in entry.name for entry in found.missing)
    assert found.absent == ()
