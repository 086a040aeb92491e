"""Stamps that the host reads by itself, and the clocks of launches, with a stand-in for the kernel that stamps."""

import types

import pytest
import torch

from testbed.fake_queue import fake_queue
from testbed.fake_stamps import FakeCounters, install
from wastenot.core.errors import MissingExtraError
from wastenot.devices.torch import cycle_clock
from wastenot.devices.torch.host_stamps import HostStamps
from wastenot.devices.torch.launch_clocks import LaunchClocks
from wastenot.devices.torch.task_run import COUNTED, GpuRun, Launch

STREAM = types.SimpleNamespace(cuda_stream=7)


@pytest.fixture
def gpu(monkeypatch):
    return fake_queue(monkeypatch)


@pytest.fixture
def counters(monkeypatch):
    return install(monkeypatch, FakeCounters())


def clock_between(stamps, counters, seconds, mhz, **how):
    first = stamps.record(7)
    counters.reach()
    counters.run(seconds, mhz)
    second = stamps.record(7)
    counters.reach(**how)
    before, after = stamps.take(first), stamps.take(second)
    return after.clock_since(before)


def test_the_clock_between_two_stamps_is_cycles_over_time(counters):
    stamps = HostStamps(torch.device("cuda:0"))
    clock_mhz, seconds = clock_between(stamps, counters, 0.02, 1487.5)
    assert clock_mhz == pytest.approx(1487.5, rel=1e-5) and seconds == pytest.approx(0.02, rel=1e-5)
    assert clock_between(stamps, counters, 0.02, 1980.0, missing=(0, 3))[0] == pytest.approx(1980.0, rel=1e-5)


def test_a_stamp_is_not_there_before_the_gpu_gets_to_it(counters):
    stamps = HostStamps(torch.device("cuda:0"), places=2)
    first, second = stamps.record(7), stamps.record(7)
    assert stamps.take(first) is None and stamps.record(7) is None  # no place is free
    counters.reach()
    assert stamps.take(first) is not None
    third = stamps.record(7)
    assert third == first and stamps.take(third) is None  # not what was there before
    stamps.drop(third)
    assert stamps.take(second) is not None and stamps.record(7) == second and stamps.record(7) is None
    counters.reach()  # the dropped one too, whose place is free only now
    assert stamps.record(7) == third


@pytest.mark.parametrize("tick_ns, seconds, known", [(32, 2.5e-4, True), (1 << 20, 0.02, False), (1 << 20, 1.0, True)])
def test_a_timer_too_coarse_for_the_time_between_says_nothing(monkeypatch, tick_ns, seconds, known):
    counters = install(monkeypatch, FakeCounters(tick_ns=tick_ns))
    found = clock_between(HostStamps(torch.device("cuda:0")), counters, seconds, 1500.0)
    assert (found is not None) is known
    assert not known or found[0] == pytest.approx(1500.0, rel=6e-3)


def test_counters_that_were_reset_say_nothing(counters):
    stamps = HostStamps(torch.device("cuda:0"))
    counters.cycles = 5e9
    assert clock_between(stamps, counters, 1.0, -2000.0) is None
    assert clock_between(stamps, counters, 0.02, 2e6) is None


def test_a_refusal_by_cuda_loses_no_place(counters):
    stamps = HostStamps(torch.device("cuda:0"), places=1)
    counters.code = 201
    with pytest.raises(RuntimeError, match="CUDA error 201 from cuLaunchKernel"):
        stamps.record(7)
    counters.code = 0
    assert stamps.record(7) == 0


@pytest.mark.parametrize("name", ["_compile_kernel", "NVRTC"])
def test_a_pytorch_that_cannot_compile_says_so_in_one_line(counters, monkeypatch, name):
    def fail(source, kernel):
        raise OSError("libnvrtc.so.13: cannot open shared object file\nlong text")

    if name == "_compile_kernel":
        monkeypatch.delattr(torch.cuda, name)
    else:
        monkeypatch.setattr(torch.cuda, "_compile_kernel", fail)
    cycle_clock._compiled.cache_clear()
    with pytest.raises(MissingExtraError, match=rf"counting cycles needs .*{'2.8' if name[0] == '_' else 'nvrtc'}") as error:
        HostStamps(torch.device("cuda:0"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("driver", [None, "broken"])
def test_a_pytorch_without_the_driver_says_so_in_one_line(counters, monkeypatch, driver):
    def broken():
        raise OSError("libcuda.so.1: cannot open shared object file\nlong text")

    for name in ("_get_gpu_runtime_library", "_get_cuda_library"):
        monkeypatch.setattr(torch.cuda._utils, name, driver and broken, raising=False)
    cycle_clock._compiled.cache_clear()
    with pytest.raises(MissingExtraError, match=r"^counting cycles") as error:
        HostStamps(torch.device("cuda:0"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("skipped", [0.0, 0.2])
def test_a_run_knows_the_clock_of_its_laps_and_the_lowest_of_a_launch(gpu, counters, skipped):
    """Launches of 0.1 s, the fifth of which is throttled, of a kernel under which the chip may skip cycles."""
    stamps = HostStamps(torch.device("cuda:0"))
    run = GpuRun(Launch(gpu.launch, 8, 0.1, "x", None), gpu, (), LaunchClocks(stamps, STREAM))
    counters.reach()
    run.feed()
    for launch in range(9):
        if launch in (2, 6):
            run.mark()
        counters.run(0.1, (1200.0 if launch == 4 else 1800.0) * (1.0 - skipped))
        counters.store(counters.queued.pop(0))
        counters.run(8e-6, 1200.0 if launch == 4 else 1800.0)
        counters.store(counters.queued.pop(0))
        gpu.now += 0.1
        run.feed()
    run.mark()
    counters.reach()
    run.close()
    first, second = run.laps
    assert first.calls == 32 and first.core_mhz == pytest.approx(1650.0, rel=2e-3)
    assert first.lowest_core_mhz == pytest.approx(1200.0, rel=2e-3)
    assert second.core_mhz == pytest.approx(1800.0, rel=2e-3) == second.lowest_core_mhz
    assert run.how == f"x; core clock {COUNTED}"
    assert len(stamps._free) + len(stamps._dropped) == 1024


def test_a_run_that_lacks_a_stamp_says_that_its_clock_is_the_drivers(gpu, counters):
    stamps = HostStamps(torch.device("cuda:0"), places=2)
    run = GpuRun(Launch(gpu.launch, 8, 0.1, "x", None), gpu, (), LaunchClocks(stamps, STREAM))
    run.mark()
    for _ in range(5):
        run.feed()
        gpu.now += 0.1
    run.mark()
    run.close()
    assert [lap.core_mhz for lap in run.laps] == [None]
    assert "core clock by the driver" in run.how
