"""Core clocks of windows by counting cycles, with stand-ins for PyTorch's GPU and its counters."""

import ctypes
import gc
import sys
import threading
import time
import types

import pytest
import torch

from testbed.fake_stamps import FakeCounters, install
from testbed.metered_windows import FakeDevice, FakeSensors, constant
from wastenot.devices.torch import cycle_clock
from wastenot.meters.cycle_marks import CycleMarks, counted_clocks
from wastenot.meters.sampler import Sampler
from wastenot.meters.window import Meter

UUID = "nvidia:7"  # as PyTorch writes it, without GPU-


class Process:
    """What PyTorch says of CUDA in this process."""

    def __init__(self, monkeypatch):
        self.initialised, self.context, self.capturing, self.gpu, self.set = True, True, False, 0, []
        self.counters = install(monkeypatch, FakeCounters())
        properties = types.SimpleNamespace(multi_processor_count=self.counters.multiprocessors, uuid=UUID)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: self.initialised)
        monkeypatch.setattr(torch.cuda, "set_device", self.set_device)
        for name, answer in (
            ("_cuda_getDevice", lambda: self.gpu),
            ("_cuda_hasPrimaryContext", lambda gpu: self.context),
            ("_cuda_isCurrentStreamCapturing", lambda: self.capturing),
            ("_cuda_getCurrentRawStream", lambda gpu: 7),
        ):
            monkeypatch.setattr(torch._C, name, answer, raising=False)

    def set_device(self, gpu):
        self.set.append(gpu)
        self.counters.code = 0


@pytest.fixture
def process(monkeypatch):
    yield Process(monkeypatch)
    cycle_clock._compiled.cache_clear()


def sampled(seconds=3.0):
    """A meter of a device with fake sensors, on a clock of its own, and how to let it be sampled for a while."""
    sensors = FakeSensors(constant(None, 99.0))
    sampler = Sampler(lambda: sensors.now_s, background=False)
    device = FakeDevice(sensors)

    def passes(for_s):
        end_s = sensors.now_s + for_s
        while sensors.now_s < end_s:
            sensors.now_s = max(sensors.now_s, min(sampler.poll_due(), end_s))

    return device, sampler, passes


def test_a_window_has_the_clock_of_what_its_stream_ran(process):
    device, sampler, passes = sampled()
    meter = Meter((device,), gpu=False, name=None, sampler=sampler)
    passes(1.0)
    with meter as window:
        process.counters.reach()
        process.counters.run(0.02, 1487.0)
        passes(1.0)
    process.counters.reach()
    passes(1.0)
    assert window.counted_mhz == pytest.approx(1487.0, rel=1e-4) and window.core_mhz == 1500.0
    (gpu,) = window.gpus
    assert gpu.counted_mhz == window.counted_mhz


def test_what_the_gpu_has_not_got_to_is_not_known(process):
    device, sampler, passes = sampled()
    meter = Meter((device,), gpu=False, name=None, sampler=sampler)
    passes(1.0)
    with meter as window:
        process.counters.reach()
        passes(1.0)
    passes(1.0)
    assert window.core_mhz == 1500.0 and window.counted_mhz is None


def test_it_can_be_left_off(process):
    device, sampler, passes = sampled()
    with Meter((device,), gpu=False, name=None, sampler=sampler, cycles=False) as window:
        passes(1.0)
    passes(1.0)
    assert not process.counters.queued and window.counted_mhz is None


@pytest.mark.parametrize("how", ["not imported", "not initialised", "no context", "capturing"])
def test_nothing_is_done_where_the_program_does_not_use_the_gpu(process, monkeypatch, how):
    marks = CycleMarks()
    if how == "not imported":
        monkeypatch.delitem(sys.modules, "torch")
    process.initialised, process.context = how != "not initialised", how != "no context"
    process.capturing = how == "capturing"
    made = []
    compiled = torch.cuda._compile_kernel
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda *of: made.append(of) or compiled(*of))
    assert marks.mark() is None and not process.counters.queued and not made and not marks.problem
    if how != "not imported":  # and as soon as it does, there are marks
        process.initialised = process.context = True
        process.capturing = False
        assert marks.mark() is not None and made


def test_a_stamp_is_never_captured_into_a_graph(process):
    marks = CycleMarks()
    assert marks.mark() is not None
    process.capturing = True
    assert marks.mark() is None and len(process.counters.queued) == 1


def test_a_pytorch_that_cannot_count_is_asked_once(process, monkeypatch):
    asked = []

    def fail(source, name):
        asked.append(name)
        raise OSError("libnvrtc.so: cannot open shared object file")

    monkeypatch.setattr(torch.cuda, "_compile_kernel", fail)
    marks = CycleMarks()
    assert [marks.mark() for _ in range(3)] == [None] * 3 and len(asked) == 1
    assert marks.problem.startswith("counting cycles needs NVRTC")


def test_a_gpu_that_refuses_is_not_asked_again(process, monkeypatch):
    marks = CycleMarks()
    process.counters.code = 700
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: None)
    assert marks.mark() is None and "CUDA error 700" in marks.problem
    process.counters.code = 0
    assert marks.mark() is None


def test_a_thread_that_has_not_used_cuda_is_given_the_context_in_use(process):
    marks = CycleMarks()
    process.counters.code = 201
    assert marks.mark() is not None and process.set == [0] and not marks.problem


def test_edges_on_two_gpus_have_no_clock(process):
    marks = CycleMarks()
    begin = marks.mark()
    process.gpu = 1
    end = marks.mark()
    process.counters.run(1.0, 1500.0)
    process.counters.reach()
    assert counted_clocks(begin, end) == {} == counted_clocks(begin, None)


def test_windows_that_nobody_reads_give_their_places_back(process):
    marks = CycleMarks()
    for _ in range(3):
        for _ in range(2000):
            marks.mark()
        process.counters.reach()
        gc.collect()
    assert marks.mark() is not None and not marks.problem


def test_threads_get_places_of_their_own(process):
    marks, places = CycleMarks(), []

    def mark():
        places.extend(marks.mark() for _ in range(200))

    threads = [threading.Thread(target=mark) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({place._place for place in places}) == 800 == len(process.counters.queued)
    assert len({place for _, place, _ in process.counters.queued}) == 800


def test_a_mark_costs_microseconds_of_the_processor(process, monkeypatch):
    """Without what the driver takes: a C function that does nothing is called as the driver would be."""
    nothing = ctypes.CDLL(None).isdigit  # 77, the stand-in for a function of the GPU, is none
    library = types.SimpleNamespace(cuLaunchKernel=nothing)
    for name in ("_get_gpu_runtime_library", "_get_cuda_library"):
        monkeypatch.setattr(torch.cuda._utils, name, lambda: library, raising=False)
    marks = CycleMarks()
    costs_s = []
    for _ in range(10):
        began_s = time.thread_time()
        kept = [marks.mark() for _ in range(300)]
        costs_s.append((time.thread_time() - began_s) / 300)
        assert None not in kept
    assert min(costs_s) < 7e-6
