"""The instrument of NVIDIA GPUs: power polled from a stand-in for NVML, executions from a stand-in for CUDA."""

import contextlib
import json
import sys
import threading
import time

import numpy as np
import pytest

from testbed import raw_runs
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.errors import BadInputError, CannotRunError, DeviceError
from wastenot.devices.common import power_poller
from wastenot.devices.common.gpu_driver import GpuLostError
from wastenot.devices.common.power_poller import PowerPoller
from wastenot.devices.instrument import RoundTrip, burst_of
from wastenot.devices.nvidia.published import power_sensor
from wastenot.devices.open import open_gpu
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

GEMM = primitive("gemm:4096")[0]
OFFSET_S = 1000.0  # of the fake GPU's clock


class FakeBursts:
    """Executions of a millisecond, which take no time of the host's beyond that."""

    resolution_s = 0.5e-6

    def __init__(self, stand_in):
        self.stand_in, self.fails, self.calls, self.left = stand_in, 0, None, 0

    def gpu_s(self):
        return time.perf_counter() + OFFSET_S

    def round_trips(self, times):
        found = []
        for _ in range(times):
            before = time.perf_counter()
            found.append(RoundTrip(before, self.gpu_s(), time.perf_counter()))
        return tuple(found)

    @contextlib.contextmanager
    def prepare(self, burst, calls):
        self.calls, self.burst = calls, burst
        if any(kernel.name == "mystery" and kernel.name not in calls for kernel in burst.kernels):
            raise CannotRunError("mystery: no operation is known for it")
        try:
            yield self
        finally:
            self.left += 1

    def run(self):
        if self.fails:
            self.fails -= 1
            return False
        self.bounds = self.gpu_s() + 1e-3 * np.arange(len(self.burst.order) + 1)
        time.sleep(1e-3 * len(self.burst.order))
        return True

    def stamps(self):
        return self.bounds[:-1], self.bounds[1:]

    def counted_mhz(self):
        return np.linspace(1900.0, 1500.0, len(self.burst.order))


@pytest.fixture(scope="module")
def server():
    with start_stand_in("h200", wall=True) as server:
        yield server


@pytest.fixture
def stand_in(server, monkeypatch, tmp_path):
    server.control.reset()
    server.control.clear_faults()
    server.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")  # nothing that profiles may need more
    return server


@pytest.fixture
def device(stand_in, monkeypatch):
    monkeypatch.setattr(power_poller, "_BLIND_S", 1.0)  # the stand-in is slow where the machine is busy
    bursts = FakeBursts(stand_in)
    found = open_gpu("nvidia:0", bursts=lambda _: bursts)
    found.fake = bursts
    return found


# ---- polling -------------------------------------------------------------------------------------------------


def poll(values, slow=()):
    between = np.full(2 * len(values), 1e-4)  # a look begins, ends, the next begins
    between[list(slow)] = 0.03
    now = iter(np.cumsum(between))
    left = iter(values)
    poller = PowerPoller(lambda: next(left), lambda: float(next(now)))
    for _ in values:
        poller.look()
    return poller.readings()


def test_a_reading_is_logged_when_it_changes():
    total, memory = poll([(80.0, 46.0), (80.0, 46.0), (300.0, 46.0), (300.0, 47.0), (300.0, 47.0), (290.0, 47.0)])
    assert total.power_w.tolist() == [300.0, 290.0] and memory.power_w.tolist() == [47.0]
    assert total.moment_s == pytest.approx([5.5e-4, 11.5e-4])  # the middle of the look that saw it


def test_what_cannot_be_read_is_left_out_and_the_first_value_has_no_moment():
    (total,) = poll([(None,), (80.0,), (None,), (80.0,), (81.0,), (None,), (82.0,)])
    assert total.power_w.tolist() == [81.0, 82.0]
    (total,) = poll([(80.0,)])
    assert total.moment_s.shape == total.power_w.shape == (0,)


@pytest.mark.parametrize("slow", [4, 5])  # before the third look, or while it lasts
def test_what_came_while_nobody_looked_is_left_out(slow):
    (total,) = poll([(80.0,), (80.0,), (300.0,), (310.0,), (310.0,), (320.0,)], slow=[slow])
    assert total.power_w.tolist() == ([310.0, 320.0] if slow == 4 else [320.0])


def test_an_error_of_a_sensor_is_raised_where_it_is_waited_for():
    looked = threading.Event()

    def read():
        looked.set()
        raise GpuLostError("the GPU is lost")

    with pytest.raises(GpuLostError), PowerPoller(read).following():
        looked.wait()


def test_a_busy_program_lets_the_poller_look_in_time():
    usual_s = sys.getswitchinterval()
    with PowerPoller(lambda: (80.0,)).following():
        assert sys.getswitchinterval() <= 1e-4 < usual_s
    assert sys.getswitchinterval() == usual_s


def test_what_was_logged_before_is_forgotten(monkeypatch):
    monkeypatch.setattr(power_poller, "_BLIND_S", 60.0)
    values = iter(range(10_000))
    poller = PowerPoller(lambda: (float(next(values)),), pause_s=1e-3)
    for _ in range(2):
        began = time.perf_counter()
        with poller.following():
            while poller.looks < 10:
                time.sleep(1e-3)
        (log,) = poller.readings()
        assert 0 < len(log.moment_s) < poller.looks and log.moment_s[0] > began
        assert np.all(np.diff(log.power_w) > 0.0)


# ---- what is published ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "model", "instant", "period_s", "window_s"),
    [
        ("Hopper", "NVIDIA H200", True, 0.1, 0.025),
        ("Hopper", "NVIDIA H200", False, 0.1, 1.0),
        ("Ampere", "NVIDIA A100-SXM4-80GB", True, 0.1, 0.025),
        ("Ampere", "NVIDIA A100-SXM4-80GB", False, 0.1, 0.025),
        ("Ampere", "NVIDIA RTX A4000", True, 0.1, 0.1),
        ("Ampere", "NVIDIA GeForce RTX 3080 Ti", False, 0.1, 1.0),
        ("Ada", "NVIDIA L40S", True, 0.1, 0.1),
        ("Volta", "Tesla V100-SXM2-32GB", False, 0.02, 0.01),
    ],
)
def test_windows_are_those_published(architecture, model, instant, period_s, window_s):
    found = power_sensor(architecture, model, instant=instant)
    assert (found.period_s, found.window_s) == (period_s, window_s) and "published" in found.source


def test_of_other_architectures_nothing_is_known():
    assert power_sensor("Blackwell", "NVIDIA B200") is None and power_sensor(None, "?") is None


# ---- the instrument ------------------------------------------------------------------------------------------


def test_its_channels_clocks_and_resolution(device):
    instrument = device.instrument()
    assert instrument is device.instrument() and instrument.identity is device.identity
    total, memory = instrument.channels
    assert (total.name, total.period_s, total.window_s, total.delay_s) == ("total", 0.1, 0.025, 0.012)
    assert (total.lag_s, total.delay_error_s, total.sample_s) == (0.0125, 0.006, 0.02)
    assert "published" in total.source and memory.source == "published"
    assert (memory.name, memory.period_s, memory.window_s) == ("memory", 0.1, 1.0) and total.noise_w is None
    assert (instrument.executions_by, instrument.readings_by, instrument.resolution_s) == ("gpu", "host", 0.5e-6)


def test_a_run_has_executions_readings_around_them_and_round_trips(stand_in, device):
    instrument = device.instrument()
    burst = burst_of(GEMM, 30, [(primitive("gemv:4096")[0], 10)])
    with instrument.prepare(burst) as bench:
        began = instrument.now_s()
        run = bench.run(0.25)
        ended = instrument.now_s()
    assert device.fake.left == 1 and run.kernel.tolist() == [0] * 10 + [1] * 30
    assert run.end_s - run.begin_s == pytest.approx(np.full(40, 1e-3)) and len(run.round_trips) == 10
    host = run.begin_s - OFFSET_S
    assert began + 0.25 < host[0] < began + 0.5 and all(trip.after_s >= trip.before_s for trip in run.round_trips)
    assert run.round_trips[4].after_s < began + 0.25 and run.round_trips[5].before_s > run.end_s[-1] - OFFSET_S + 0.11
    total = run.readings["total"]
    assert np.all(np.diff(total.moment_s) > 0.05) and began < total.moment_s[0] and total.moment_s[-1] < ended
    assert len(run.readings["memory"].moment_s) == 0  # the stand-in's memory at rest always draws the same
    assert total.moment_s[0] < host[0] and total.moment_s[-1] > run.end_s[-1] - OFFSET_S + 0.025
    assert np.all((total.power_w > 20.0) & (total.power_w < 300.0))


def test_a_run_that_was_not_back_to_back_is_made_again(device):
    instrument = device.instrument()
    with instrument.prepare(burst_of(GEMM, 3)) as bench:
        device.fake.fails = 2
        assert len(bench.run(0.0).begin_s) == 3
        device.fake.fails = 3
        with pytest.raises(DeviceError, match="the host was too slow to queue executions"):
            bench.run(0.0)


def test_functions_take_the_place_of_kernels(device):
    instrument = device.instrument()
    mine = KernelSpec("mystery", "my step", "other", (), 0.0, 0.0, 0.0, "", None, 1)
    with pytest.raises(CannotRunError, match="mystery"), instrument.prepare(burst_of(mine, 2)):
        pass
    function = dict  # any
    with instrument.with_callables({"mystery": function}).prepare(burst_of(mine, 2)) as bench:
        assert device.fake.calls == {"mystery": function} and len(bench.run(0.0).begin_s) == 2
    with instrument.prepare(burst_of(GEMM, 2)):
        assert device.fake.calls == {}


def test_a_gpu_without_a_power_reading_has_none(stand_in, device):
    stand_in.control.fault("nvmlDeviceGetPowerUsage", "NOT_SUPPORTED")
    stand_in.control.fault("nvmlDeviceGetFieldValues", "NOT_SUPPORTED")
    with pytest.raises(BadInputError, match="nvidia:0: it has no power sensor"):
        open_gpu("nvidia:0", bursts=lambda _: device.fake).instrument()
    stand_in.control.clear_faults()


def test_a_gpu_with_only_the_older_reading_is_polled_by_that(stand_in, device):
    stand_in.control.fault("nvmlDeviceGetFieldValues", "NOT_SUPPORTED")
    instrument = open_gpu("nvidia:0", bursts=lambda _: device.fake).instrument()
    (total,) = instrument.channels
    assert (total.period_s, total.window_s) == (0.1, 1.0)
    with instrument.prepare(burst_of(GEMM, 3)) as bench:
        assert set(bench.run(0.25).readings) == {"total"}
    stand_in.control.clear_faults()


def test_a_gpu_lost_while_it_rests_is_said(stand_in, device):
    instrument = device.instrument()
    with instrument.prepare(burst_of(GEMM, 3)) as bench:
        stand_in.control.gpu_lost(0)
        with pytest.raises(GpuLostError):
            bench.run(0.05)
    stand_in.control.clear_faults()


# ---- raw runs as a file --------------------------------------------------------------------------------------


def test_runs_are_kept_and_read_again(device, tmp_path):
    instrument = device.instrument()
    burst = burst_of(GEMM, 5)
    with instrument.prepare(burst) as bench:
        runs = [bench.run(0.15), bench.run(0.0)]
    raw_runs.write_runs(tmp_path / "runs.npz", instrument, burst, runs, rest_s=0.15)
    about, found = raw_runs.read_runs(tmp_path / "runs.npz")
    assert about["burst"] == [["gemm-4096", 5]] and about["rest_s"] == 0.15 and about["device"] == device.identity.label
    assert json.dumps(about) and [channel["name"] for channel in about["channels"]] == ["total", "memory"]
    for before, after in zip(runs, found, strict=True):
        assert np.array_equal(before.kernel, after.kernel) and before.round_trips == after.round_trips
        assert np.array_equal(before.begin_s, after.begin_s) and np.array_equal(before.end_s, after.end_s)
        for name, log in before.readings.items():
            assert np.array_equal(log.moment_s, after.readings[name].moment_s)
            assert np.array_equal(log.power_w, after.readings[name].power_w)
