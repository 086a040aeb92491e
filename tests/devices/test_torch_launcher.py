"""The launcher: on the CPU for real; the GPU's queue with stand-ins for its stream and events."""

import builtins
import gc
import re
import types
import weakref
from dataclasses import replace

import pytest
import torch

from testbed.fake_queue import FakeEvent, fake_queue
from testbed.host_launcher import HostLauncher
from wastenot.core.errors import BadInputError, CannotRunError, DeviceError, MissingExtraError
from wastenot.core.setting import AUTO
from wastenot.devices.protocol import Task
from wastenot.devices.torch import devices as torch_devices
from wastenot.devices.torch.launcher import Program, TorchLauncher, copies_of
from wastenot.devices.torch.task_run import GpuRun, Launch
from wastenot.workloads.kernel import Call, KernelSpec
from wastenot.workloads.operations import prepared_call
from wastenot.workloads.parts import Parts


def kernel(name="gelu", elements=1 << 16, block=None, count=1):
    work = Parts(2).elementwise(elements)
    return replace(work.placed(name, "GELU", "forward", block, count), element_bytes=2)


UNKNOWN = Task.of_kernel(KernelSpec("mystery", "?", "other", (), 0.0, 0.0, 0.0, "", None, 1))


# ---- on the CPU ----------------------------------------------------------------------------------------------


def test_laps_and_completed_count_every_call_between_marks(monkeypatch):
    ran = []
    run_call = Program.run
    monkeypatch.setattr(Program, "run", lambda self: (ran.append(1), run_call(self)))
    with HostLauncher("cpu").start(Task.of_kernel(kernel())) as run:
        run.feed()
        assert run.completed == 0 and run.laps == ()
        run.mark()
        first = len(ran)
        run.feed()
        run.feed()
        run.mark()
        second = len(ran)
        run.mark()  # nothing ran in between: no lap
        run.feed()
        run.mark()
        assert run.completed == len(ran) - first > 0
        assert run.laps == ()
    assert [lap.calls for lap in run.laps] == [second - first, len(ran) - second]
    assert all(lap.seconds >= 0.02 for lap in run.laps) and run.laps[0].seconds >= 0.04
    assert run.how.startswith("eager: on the CPU")


def test_the_time_of_a_call_is_that_of_the_laps():
    def ratio():
        with HostLauncher("cpu").start(Task.of_kernel(kernel())) as run:
            run.mark()
            run.feed()
            run.mark()
        (lap,) = run.laps
        return run.call_s / (lap.seconds / lap.calls)

    assert any(0.5 < ratio() < 2 for _ in range(10))  # a machine that is busy may stretch either of them


def test_a_call_longer_than_a_feed_runs_once_a_feed():
    task = Task.of_kernel(kernel(elements=1 << 24))
    with HostLauncher("cpu").start(task) as run:
        run.mark()
        run.feed()
        run.mark()
    assert [lap.calls for lap in run.laps] == [1]


def test_everything_is_let_go_of_at_the_end(monkeypatch):
    made = []
    normal = prepared_call.Buffers.normal

    def watched(self, *shape, dtype=None):
        tensor = normal(self, *shape, dtype=dtype)
        made.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(prepared_call.Buffers, "normal", watched)
    launcher = HostLauncher("cpu")
    with launcher.start(Task.of_kernel(kernel())) as run:
        run.feed()
        assert made and all(ref() is not None for ref in made)
    gc.collect()
    assert all(ref() is None for ref in made)
    made.clear()
    with pytest.raises(KeyError), launcher.start(Task.of_kernel(kernel())):
        raise KeyError("from the caller")
    gc.collect()
    assert made and all(ref() is None for ref in made)


def test_an_unknown_kernel_is_refused():
    launcher = HostLauncher("cpu")
    assert launcher.can_run(Task.of_kernel(kernel()), AUTO) and not launcher.can_run(UNKNOWN, AUTO)
    with pytest.raises(CannotRunError, match="mystery"), launcher.start(UNKNOWN):
        pass


def test_what_does_not_fit_is_refused_remembered_and_leaves_nothing_behind(monkeypatch):
    made = []
    normal = prepared_call.Buffers.normal

    def watched(self, *shape, dtype=None):
        tensor = normal(self, *shape, dtype=dtype)
        made.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(prepared_call.Buffers, "normal", watched)
    launcher = HostLauncher("cpu")
    task = Task("both", ((kernel(), 1), (kernel("gelu_again", 2**46), 1)))
    assert launcher.can_run(task, AUTO)
    with pytest.raises(CannotRunError, match=r"gelu_again.*GB.*smaller batch") as caught, launcher.start(task):
        pass
    gc.collect()
    assert caught.value is not None and len(made) == 1 and made[0]() is None
    assert not launcher.can_run(task, AUTO)


def test_memory_that_runs_out_while_running_is_said_with_sizes(monkeypatch):
    def fail(self):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")

    monkeypatch.setattr(HostLauncher, "_begin_on_gpu", lambda self, task: fail(self))
    with pytest.raises(CannotRunError, match=r"gelu: its data, about 0\.000262 GB .* free on cpu"):
        HostLauncher("cpu").start(Task.of_kernel(kernel())).__enter__()
    monkeypatch.setattr(HostLauncher, "_begin_on_gpu", lambda self, task: torch.mm(torch.ones(2, 3), torch.ones(2, 3)))
    with pytest.raises(DeviceError, match="gelu: failed on cpu: mat1 and mat2"):
        HostLauncher("cpu").start(Task.of_kernel(kernel())).__enter__()


# ---- which device ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["xyz", "mps", "cuda:x", "meta"])
def test_a_device_that_pytorch_does_not_run_kernels_on(name):
    with pytest.raises(BadInputError, match=re.escape(f"device '{name}': kernels run on")):
        TorchLauncher(name)


def test_pytorch_without_cuda_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(MissingExtraError, match=r"cuda:0.*was built without CUDA") as caught:
        TorchLauncher("cuda:0")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(DeviceError, match="finds no GPU: check the driver"):
        TorchLauncher("cuda:0")
    with pytest.raises(DeviceError, match="finds no GPU"):
        torch_devices.torch_device("GPU-1234")


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BadInputError, match="cuda:2': PyTorch sees 2 GPUs, cuda:0 to cuda:1"):
        TorchLauncher("cuda:2")
    assert str(TorchLauncher("cuda").device) == "cuda:0"


def test_gpus_are_found_by_uuid(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    uuids = ["aaaa-01", "BBBB-02"]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace(uuid=uuids[index]))
    assert torch_devices.torch_device("GPU-bbbb-02") == "cuda:1"
    with pytest.raises(DeviceError, match="GPU-cccc: PyTorch does not see"):
        torch_devices.torch_device("GPU-cccc")


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    found = builtins.__import__

    def missing(name, *rest):
        if name == "torch":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtraError, match=r"needs PyTorch.*pip install"):
        TorchLauncher("cuda:0")


# ---- buffers and order ------------------------------------------------------------------------------------------


def test_buffers_outgrow_the_cache_within_memory():
    small = kernel(elements=1 << 20)  # 4 MiB moved
    l2 = 50 << 20
    copies = copies_of(small, l2, 0)
    assert copies * small.bytes_moved >= 3 * l2 > (copies - 1) * small.bytes_moved
    assert copies_of(kernel(elements=8), l2, 0) == 64
    assert copies_of(kernel(elements=1 << 30), l2, 0) == 1
    assert copies_of(small, l2, 40 << 20) == 6  # 60 % of the memory
    assert copies_of(small, l2, 1 << 20) == 1
    assert copies_of(small, l2, 0, 24) == 24 and copies_of(small, 3 << 20, 0, 24) == 1
    assert copies_of(UNKNOWN.steps[0][0], l2, 0) == 1
    large = replace(
        small, call=Call("aten.nll_loss_forward.default", '{"storages": [2097152000, 131072]}')
    )  # touches little
    assert copies_of(large, l2, 80 << 30) == 24 and copies_of(large, l2, 0) == copies


def test_calls_go_through_the_buffers_in_turn(monkeypatch):
    ran = []

    def fake(which):
        return lambda: ran.append(which) or torch.ones(1)

    monkeypatch.setattr("wastenot.devices.torch.launcher.prepare", lambda k, d, copies: [fake(i) for i in range(copies)])
    program = Program(Task.of_kernel(kernel(elements=1 << 20)), "cpu", l2_bytes=4 << 20)
    assert program.buffers == 3 and program.kernels_per_call == 1
    for _ in range(7):
        program.run()
    assert ran == [0, 1, 2, 0, 1, 2, 0]
    program.drop_outputs()
    program.run()
    assert ran[-1] == 0


def test_kernels_of_a_layer_run_in_turn_and_others_one_by_one():
    layer = [kernel(name, block="layer", count=3) for name in ("gelu_a", "gelu_b")]
    steps = ((kernel("gelu_first"), 2), (layer[0], 3), (layer[1], 3), (kernel("gelu_last"), 1))
    assert Task("iteration", steps).order == (0, 0, 1, 2, 1, 2, 1, 2, 3)
    assert Task.of_kernel(layer[0]).order == (0,)


def test_notes_tell_what_is_not_one_operation():
    both = Task("pass", ((kernel(), 1), (kernel("silu_product"), 1)))
    program = Program(both, "cpu")
    assert program.notes == ("eager, about 2 operations: silu_product",)
    assert Program(Task.of_kernel(kernel()), "cpu").notes == ()


# ---- the GPU's queue --------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    return fake_queue(monkeypatch)


def test_the_queue_is_kept_filled_without_waiting(gpu):
    run = GpuRun(Launch(gpu.launch, 8, 0.1, "cuda graph of 8 calls over 4 buffers", None), gpu, ("compiled",))
    assert run.how == "cuda graph of 8 calls over 4 buffers; compiled" and run.call_s == pytest.approx(0.0125)
    run.feed()
    assert gpu.ends == pytest.approx(0.2)  # two launches, 0.2 s of work
    run.mark()
    assert run.completed == 0
    for _ in range(100):
        gpu.now += 0.05
        run.feed()
        assert gpu.ends - gpu.now >= 0.0999 and gpu.ends - gpu.now <= 0.2001
        run.mark()
    assert run.completed == pytest.approx(8 * 50, abs=8) and gpu.waited == 0 and run.laps == ()
    completed = run.completed
    run.close()
    assert gpu.waited == 1 and len(run.laps) == pytest.approx(50, abs=1)
    assert all(lap.calls == 8 and lap.seconds == pytest.approx(0.1) for lap in run.laps)
    assert sum(lap.calls for lap in run.laps) == completed < run.completed  # what was queued ran to its end


def test_events_are_used_again(gpu):
    run = GpuRun(Launch(gpu.launch, 1, 0.1, "x", None), gpu, ())
    for _ in range(1000):
        gpu.now += 0.05
        run.feed()
    assert FakeEvent.made <= 6
    run.mark()
    gpu.now += 1.0
    for _ in range(20):
        gpu.now += 0.05
        run.feed()
    run.mark()
    run.close()
    (lap,) = run.laps
    assert lap.seconds == pytest.approx(lap.calls * 0.1, abs=1.0)  # idle while it was not fed


def test_a_gpu_that_fails_is_a_device_error(gpu):
    def fail():
        raise RuntimeError("CUDA error: an illegal memory access\nlong text")

    run = GpuRun(Launch(fail, 1, 0.1, "x", None), gpu, ())
    with pytest.raises(DeviceError, match=r"the GPU failed while it ran: CUDA error: an illegal memory access$"):
        run.feed()
    gpu.synchronize = fail
    with pytest.raises(DeviceError, match="the GPU failed"):
        run.close()
    assert run.laps == ()
