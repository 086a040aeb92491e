"""Bursts with stand-ins for the GPU's stream and events: what is queued when, and how it is stamped."""

import contextlib
import types

import numpy as np
import pytest
import torch

from wastenot.core.errors import CannotRunError, DeviceError, MissingExtraError
from wastenot.devices.instrument import burst_of
from wastenot.devices.torch import bursts as torch_bursts, queued_burst
from wastenot.devices.torch.bursts import TorchBursts
from wastenot.devices.torch.event_clock import EventClock
from wastenot.devices.torch.host_stamps import HostStamp
from wastenot.devices.torch.queued_burst import MOST_QUEUED, TorchBurst
from wastenot.workloads.kernel import KernelSpec

RATE = 1e9  # cycles of a gate in a second


class FakeGpu:
    """A host and a stream: queueing takes the host's time, and what is queued the GPU's, after all before it."""

    def __init__(self, offset_s=0.0):
        self.now, self.ends, self.offset_s = 100.0, 0.0, offset_s
        self.waiting, self.most_waiting, self.idle_s = [], 0, 0.0
        self.graph = None

    def queue(self, gpu_s, host_s=0.0):
        self.now += host_s
        if self.graph is not None:
            self.graph.append(("run", gpu_s))
            return
        self.idle_s += max(0.0, self.now - self.ends) if self.ends else 0.0
        self.ends = max(self.ends, self.now) + gpu_s
        self.waiting = [end for end in self.waiting if end > self.now] + [self.ends]
        self.most_waiting = max(self.most_waiting, len(self.waiting))

    def call(self, gpu_s, host_s):
        return lambda: self.queue(gpu_s, host_s)

    def synchronize(self, *_):
        self.now = max(self.now, self.ends)

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def gate(self, cycles):
        self.queue(cycles / RATE)


class FakeEvent:
    gpu: FakeGpu

    def __init__(self, enable_timing=True, external=False):
        self.at, self.external = None, external

    def record(self, stream):
        gpu = self.gpu
        gpu.now += 1e-6
        if gpu.graph is not None:
            assert self.external
            gpu.graph.append(("event", self))
        else:
            self.at = max(gpu.now, gpu.ends)

    def query(self):
        return self.at is None or self.gpu.now >= self.at

    def synchronize(self):
        self.gpu.now = max(self.gpu.now, self.at)

    def elapsed_time(self, other):
        return float(np.float32((other.at - self.at) * 1e3))


class FakeGraph:
    gpu: FakeGpu
    made = 0

    def capture_begin(self, pool, capture_error_mode):
        FakeGraph.made += 1
        self.gpu.graph = self.parts = []

    def capture_end(self):
        self.gpu.graph = None

    def pool(self):
        return (0, 1)

    def replay(self):
        self.gpu.now += 1e-5
        for kind, what in self.parts:
            if kind == "run":
                self.gpu.queue(what)
            else:
                what.at = self.gpu.ends


@pytest.fixture
def gpu(monkeypatch):
    found = FakeGpu()
    FakeEvent.gpu = FakeGraph.gpu = found
    FakeGraph.made = 0
    for module in (torch_bursts, queued_burst):
        monkeypatch.setattr(module, "time", found)
        monkeypatch.setattr(module, "new_event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "_sleep", found.gate)
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    found.device = torch.device("cpu")
    return found


def clock(gpu):
    return EventClock(FakeEvent, gpu, gpu.perf_counter)


def ran(burst):
    assert burst.run()
    return burst.stamps()


def ready(gpu, calls, order, **more):
    return TorchBurst([gpu.call(*call) for call in calls], order, gpu, clock(gpu), "gemm", **more)


# ---- the clock ----------------------------------------------------------------------------------------------


def test_moments_stay_exact_over_hours(gpu):
    told, rng = clock(gpu), np.random.default_rng(0)
    began, worst = gpu.now, 0.0
    for _ in range(3600):
        gpu.now += rng.uniform(0.5, 1.5)
        trip = told.round_trip()
        worst = max(worst, abs(began + trip.gpu_s - told._reference.at))
    assert worst < 5e-6  # single precision alone is off by 0.1 ms here


def test_moments_of_a_long_train_are_counted_in_pieces(gpu):
    told = clock(gpu)
    began = told._reference.at
    events = []
    for _ in range(2_000):
        gpu.queue(1.0001e-2)
        events.append(FakeEvent())
        events[-1].record(gpu)
    truth = np.array([event.at - began for event in events])
    moments = told.moments(events)
    assert np.abs(moments - truth).max() < 1e-6
    assert np.abs(np.diff(moments) - 1.0001e-2).max() < 2e-8


# ---- executions ---------------------------------------------------------------------------------------------


def test_executions_are_back_to_back_and_each_stamped(gpu):
    burst = ready(gpu, [(1e-3, 1e-5), (2e-3, 1e-5)], (0, 0, 1, 0))
    gpu.now += 0.5
    before = gpu.now
    begin_s, end_s = ran(burst)
    assert end_s - begin_s == pytest.approx([1e-3, 1e-3, 2e-3, 1e-3], abs=1e-7)
    assert np.array_equal(begin_s[1:], end_s[:-1])
    assert gpu.now - before < 0.015 and burst.how == "one by one"  # a gate of a millisecond, and looks


def test_a_gate_covers_the_queueing_of_what_fits(gpu):
    burst = ready(gpu, [(1e-6, 1e-4)], (0,) * 300)  # 30 ms to queue, 0.3 ms to run
    gpu.idle_s = 0.0
    gpu.now = gpu.ends
    begin_s, end_s = ran(burst)
    assert gpu.idle_s < 1e-3 and (end_s - begin_s).max() < 2e-6


def test_a_long_train_is_fed_and_never_more_than_the_driver_holds(gpu):
    burst = ready(gpu, [(1e-4, 1e-5)], (0,) * 5000)
    gpu.most_waiting, gpu.idle_s = 0, 0.0
    begin_s, end_s = ran(burst)
    assert len(end_s) == 5000 and end_s - begin_s == pytest.approx(np.full(5000, 1e-4), abs=1e-7)
    assert gpu.most_waiting <= MOST_QUEUED + 1 and FakeGraph.made == 0


def test_executions_too_short_for_the_host_go_in_graphs(gpu):
    burst = ready(gpu, [(8e-6, 1e-5)], (0,) * 1230)
    assert burst.how == "cuda graphs of 100 executions" and FakeGraph.made == 13
    for _ in range(2):  # events in graphs keep what they said last time until they are run
        begin_s, end_s = ran(burst)
        assert len(end_s) == 1230 and end_s - begin_s == pytest.approx(np.full(1230, 8e-6), abs=1e-7)


def test_no_more_is_queued_than_the_driver_takes(gpu):
    places = 250  # that the driver's queue has: who queues more waits until the GPU has come so far

    def call():
        gpu.queue(1e-4, 1e-5)
        if len(gpu.waiting) > places:
            gpu.now = max(gpu.now, gpu.waiting[-places])

    burst = TorchBurst([call], (0,) * 1000, gpu, clock(gpu), "gemm")
    assert burst._ahead == 200
    begin_s, end_s = ran(burst)
    assert end_s - begin_s == pytest.approx(np.full(1000, 1e-4), abs=1e-7) and len(gpu.waiting) <= places


def test_without_graphs_a_host_too_slow_is_told_of(gpu, monkeypatch):
    def refuse(self, pool, capture_error_mode):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(FakeGraph, "capture_begin", refuse)
    monkeypatch.setattr(FakeGraph, "capture_end", lambda self: None)
    burst = ready(gpu, [(8e-6, 1e-5)], (0,) * 5000)
    assert burst.how == "one by one"
    with pytest.raises(DeviceError, match=r"gemm: the GPU waited for the host before \d+ of 4600 executions"):
        burst.run()


def test_a_gate_that_opens_too_early_is_not_taken_and_the_next_is_longer(gpu):
    burst = ready(gpu, [(1e-3, 1e-5)], (0,) * 10)
    gate_s = burst._gate_s
    queue, slow = gpu.queue, [5e-3, 0.0]  # first the gate, then the first call
    gpu.queue = lambda gpu_s, host_s=0.0: queue(gpu_s, host_s + (slow.pop() if slow else 0.0))
    assert not burst.run() and burst._gate_s == 2 * gate_s
    gpu.queue = queue
    assert burst.run()


def test_what_waits_for_the_gpu_cannot_be_queued_ahead(gpu):
    def waits():
        gpu.queue(1e-3, 1e-5)
        gpu.synchronize()

    with pytest.raises(CannotRunError, match=r"fn: cannot be queued ahead of the GPU; does it wait"):
        TorchBurst([waits], (0,) * 3, gpu, clock(gpu), "fn")


def test_gradients_are_on_only_where_they_may_be_needed(gpu):
    seen = []
    for gradients in (False, True):
        TorchBurst([lambda: seen.append(torch.is_grad_enabled())], (0,), gpu, clock(gpu), "fn", gradients=gradients)
        assert set(seen) == {gradients}
        seen.clear()


def test_a_gpu_that_fails_is_a_device_error(gpu):
    burst = ready(gpu, [(1e-3, 1e-5)], (0,) * 3)

    def fail(*_):
        raise RuntimeError("CUDA error: an illegal memory access\nlong text")

    gpu.queue = fail
    with pytest.raises(DeviceError, match=r"the GPU failed while it ran: CUDA error: an illegal memory access$"):
        burst.run()


# ---- the clock by counting cycles -----------------------------------------------------------------------------

STAMP_S = 5e-6


class FakeCounters:
    """Counters of a GPU whose clock falls from 2 to 1 GHz some time after the first stamp; one takes time in the stream."""

    def __init__(self, gpu, places=10_000):
        self.gpu, self.after_s, self.free, self.queued = gpu, np.inf, places, {}

    def record(self, stream):
        assert stream == 7
        if not self.free:
            return None
        self.free -= 1
        self.gpu.queue(STAMP_S, 4e-6)
        if not self.queued:
            self.falls_s = self.gpu.ends + self.after_s
        self.queued[len(self.queued)] = self.gpu.ends
        return len(self.queued) - 1

    def take(self, place):
        at_s = self.queued[place]
        assert at_s <= self.gpu.now  # the GPU has got there
        self.free += 1
        cycles = 2e9 * min(at_s, self.falls_s) + 1e9 * max(at_s - self.falls_s, 0.0)
        return HostStamp(np.full(4, round(cycles)), np.full(4, round(1e9 * at_s)))


@pytest.mark.parametrize("call, graphs", [((1e-3, 1e-5), False), ((8e-6, 1e-5), True), ((2e-2, 1e-5), False)])
def test_executions_know_the_clock_around_them_and_stamps_are_not_in_their_times(gpu, call, graphs):
    gpu.cuda_stream = 7
    counters = FakeCounters(gpu)
    burst = ready(gpu, [call], (0,) * 1500, counters=counters)
    assert ("graphs" in burst.how) is graphs
    gpu.now += 0.5
    counters.after_s, places = 800 * call[0], counters.free
    counters.queued.clear()
    begin_s, end_s = ran(burst)
    # A graph's first execution begins where the one before it ended or after a stamp, and so do others.
    assert end_s - begin_s == pytest.approx(np.full(1500, call[0]), abs=2e-7)
    gaps_s = begin_s[1:] - end_s[:-1]
    every = max(round(5e-3 / call[0]), 1)
    assert np.count_nonzero(gaps_s > 1e-7) == pytest.approx(1500 / every, rel=0.2)
    assert gaps_s.sum() <= 2.2e-3 * (end_s[-1] - begin_s[0])
    clocks_mhz = burst.counted_mhz()
    assert clocks_mhz[:700] == pytest.approx(np.full(700, 2000.0), rel=1e-3)
    assert clocks_mhz[1400:] == pytest.approx(np.full(100, 1000.0), rel=1e-3)
    assert np.diff(clocks_mhz).max() < 1.0 and counters.free == places
    assert graphs or gpu.most_waiting <= MOST_QUEUED + 2  # the gate and the stamp after it


def test_a_burst_without_a_place_for_a_stamp_does_not_know_its_clock(gpu):
    gpu.cuda_stream = 7
    counters = FakeCounters(gpu)
    burst = ready(gpu, [(1e-3, 1e-5)], (0,) * 12, counters=counters)
    counters.free = 2
    ran(burst)
    assert burst.counted_mhz()[:5] == pytest.approx(np.full(5, 2000.0), rel=1e-3) and np.isnan(burst.counted_mhz()[5:]).all()


# ---- kernels ------------------------------------------------------------------------------------------------


def cannot_count(device, places):
    raise MissingExtraError("counting cycles needs NVRTC")


@pytest.fixture
def bursts(gpu, monkeypatch):
    monkeypatch.setattr(torch_bursts, "find_torch_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch_bursts, "HostStamps", cannot_count)
    return TorchBursts("cpu", now_s=gpu.perf_counter)


def kernel(name="fn", op="other", shape=(), label="fn"):
    return KernelSpec(name, label, op, shape, 0.0, 0.0, 0.0, "", None, 1, element_bytes=2)


def test_kernels_are_made_once_and_functions_take_their_place(bursts, gpu, monkeypatch):
    made = []

    def prepare(spec, device, copies):
        made.append((spec.name, copies))
        return [gpu.call(1e-3, 1e-5)]

    monkeypatch.setattr(torch_bursts, "prepare", prepare)
    burst = burst_of(kernel("mine"), 4, [(kernel("gemm"), 2), (kernel("gemv"), 1), (kernel("gemm"), 1)])
    with bursts.prepare(burst, {"mine": gpu.call(2e-3, 1e-5)}) as prepared:
        begin_s, end_s = ran(prepared)
        assert prepared.counted_mhz() is None
    assert made == [("gemm", 1), ("gemv", 1)]
    assert end_s - begin_s == pytest.approx([1e-3] * 4 + [2e-3] * 4, abs=1e-7)


def test_round_trips_and_runs_tell_one_time(bursts, gpu):
    trip = bursts.round_trips(3)[-1]
    with bursts.prepare(burst_of(kernel(), 2), {"fn": gpu.call(1e-3, 1e-5)}) as prepared:
        before = gpu.now
        begin_s, end_s = ran(prepared)
        offset = trip.after_s - trip.gpu_s
        assert before < begin_s[0] + offset < end_s[-1] + offset <= gpu.now


def test_errors_name_the_kernel(bursts, monkeypatch):
    with pytest.raises(CannotRunError, match="mystery"), bursts.prepare(burst_of(kernel("mystery"), 2), {}):
        pass

    def wrong():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied\nmore")

    with pytest.raises(DeviceError, match=r"fn: failed on cpu: mat1 .* multiplied$"):
        bursts.prepare(burst_of(kernel(), 2), {"fn": wrong}).__enter__()

    def large():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(CannotRunError, match="fn: the data do not fit"):
        bursts.prepare(burst_of(kernel(), 2), {"fn": large}).__enter__()


# ---- collectives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "said"), [(0, "none is visible"), (1, "1 is visible")])
def test_a_collective_needs_gpus(monkeypatch, gpus, said):
    from wastenot.workloads.operations import collectives
    from wastenot.workloads.primitives import primitive

    make = types.SimpleNamespace(on_gpu=True, dtype=torch.bfloat16, seed=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(CannotRunError, match=f"^all-reduce-1MB: a collective needs two or more GPUs; {said}$"):
        collectives.collective(primitive("all-reduce:1MB")[0], make)


@pytest.mark.parametrize(("name", "sizes"), [("all-reduce:8KB", (4096, 4096)), ("all-gather:8KB", (2048, 4096))])
def test_a_collective_leaves_its_bytes_on_each_gpu(monkeypatch, name, sizes):
    from wastenot.workloads.operations import collectives
    from wastenot.workloads.operations.prepared_call import Buffers
    from wastenot.workloads.primitives import primitive

    ran = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_nccl_all_reduce", lambda *given: None, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(collectives, "Buffers", lambda device, dtype, seed: Buffers("cpu", dtype, seed))
    for function in ("all_reduce", "all_gather"):
        monkeypatch.setattr(collectives.nccl, function, lambda *given, function=function: ran.append((function, given)))
    make = types.SimpleNamespace(on_gpu=True, dtype=torch.bfloat16, seed=0)
    call = collectives.collective(primitive(name)[0], make)
    call()
    ((function, (inputs, outputs)),) = ran
    assert function == name.partition(":")[0].replace("-", "_") and len(inputs) == len(outputs) == 2
    assert {tensor.numel() for tensor in inputs} == {sizes[0]} and {tensor.numel() for tensor in outputs} == {sizes[1]}
    assert not torch.equal(inputs[0], inputs[1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="not captured"):
        call()
