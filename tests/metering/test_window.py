"""``measure`` on simulated GPUs in real time, and on fake ones where a fault is wanted."""

import asyncio
import contextlib
import os
import statistics
import threading
import time

import numpy as np
import pytest

from tests.metering.window_helpers import FakeDevice, FakeSensors, Power, constant
from wastenot.devices.open import open_device
from wastenot.errors import BadInputError, DeviceError
from wastenot.metering import sampler as sampler_module
from wastenot.metering.devices import visible_names, window_devices
from wastenot.metering.result import (
    MEMORY_SHORT,
    NO_COUNTER,
    NO_STEPS,
    SHARED,
    THROTTLED,
    WindowResult,
    gpu_window,
)
from wastenot.metering.sampler import Sampler
from wastenot.metering.step_follower import StepFollower
from wastenot.metering.window import FORKED, Meter, Window, measure
from wastenot.metering.window_energy import SHORT
from wastenot.tasks import find_tasks

TOY = "sim:tests/toy.toml"


class Running:
    """A simulated GPU in real time; nobody but the holder of its follower's lock touches it."""

    def __init__(self, name="sim:h200", seed=0):
        self.device = open_device(name, wall_time=True, seed=seed)
        self.task = find_tasks("gpt3-small", name).tasks[2]  # a matrix product, which the limit holds
        self.meter = measure(self.device)
        self.lock = self.meter.followers[0].lock
        with self.lock:
            self.ahead_s = time.perf_counter() - self.device.time.now_s()

    @contextlib.contextmanager
    def busy(self):
        launched = self.device.launcher.start(self.task)
        with self.lock:
            launched.__enter__()
        try:
            yield
        finally:
            with self.lock:
                launched.__exit__(None, None, None)

    def truth_j(self, window):
        with self.lock:
            at = self.device.engine.energy_at
            return at(window.end_s - self.ahead_s) - at(window.begin_s - self.ahead_s)


@pytest.fixture(scope="module")
def running():
    found = Running()
    time.sleep(0.5)
    return found


def held(window, truth_j, errors=4.0):
    assert abs(window.energy_j - truth_j) <= errors * window.energy_se_j, (window.result(), truth_j)


def test_a_constant_load(running):
    with running.busy():
        time.sleep(0.3)
        with running.meter as window:
            time.sleep(1.5)
    held(window, running.truth_j(window))
    assert window.energy_j == pytest.approx(running.truth_j(window), rel=0.05)
    assert window.energy_se_j < 0.02 * window.energy_j
    assert window.time_s == pytest.approx(1.5, abs=0.1)
    assert window.mean_power_w == pytest.approx(window.energy_j / window.time_s)
    assert window.core_mhz > 500 and window.memory_mhz == 3201 and 30 < window.temperature_c < 90
    assert 0.9 < window.throttled_share <= 1.0 and window.flags == (THROTTLED,)
    assert window.origin == "simulated" and window.memory_energy_j is None


def test_a_load_that_comes_and_goes(running):
    with running.meter as window:
        for _ in range(3):
            with running.busy():
                time.sleep(0.23)
            time.sleep(0.31)
    held(window, running.truth_j(window))


def test_a_load_of_the_window_alone(running):
    time.sleep(0.3)
    with running.meter as window, running.busy():
        time.sleep(1.0)
    held(window, running.truth_j(window))
    assert window.energy_j == pytest.approx(running.truth_j(window), rel=0.02)


def test_windows_in_windows_add_up(running):
    with running.busy(), running.meter as outer:
        with running.meter as first:
            time.sleep(0.4)
        with running.meter as second:
            time.sleep(0.5)
    assert outer.begin_s <= first.begin_s < first.end_s <= second.begin_s < second.end_s <= outer.end_s
    errors = (outer.energy_se_j, first.energy_se_j, second.energy_se_j)
    assert first.energy_j + second.energy_j == pytest.approx(outer.energy_j, abs=3.0 * sum(errors))


def test_windows_of_threads_side_by_side(running):
    found = {}

    def work(number):
        with running.meter as window:
            time.sleep(0.2 + 0.1 * number)
        found[number] = window.result()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    with running.busy():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [round(found[number].time_s, 1) for number in range(5)] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6], abs=0.11)
    assert all(found[number].energy_j < found[number + 1].energy_j for number in range(4))


def test_an_exception_leaves_a_result_and_goes_on(running):
    with pytest.raises(KeyError, match="mine"), running.meter as window:
        time.sleep(0.15)
        raise KeyError("mine")
    assert window.energy_j > 0.0 and window.time_s >= 0.15


def test_a_short_window_is_never_nothing(running):
    with running.meter as window:
        pass
    assert window.energy_j > 0.0 and SHORT in window.flags
    assert window.energy_se_j > window.energy_j


def test_the_first_window_of_a_device():
    device = open_device(TOY, wall_time=True, seed=5)
    with measure(device) as window:
        time.sleep(0.35)
    assert abs(window.energy_j - 25.0 * 0.97 * window.time_s) <= 4.0 * window.energy_se_j
    assert window.energy_se_j < 0.3 * window.energy_j


def test_as_a_decorator(running):
    meter = measure(running.device)

    @meter
    def step(seconds, fail=False):
        """Does it."""
        time.sleep(seconds)
        if fail:
            raise ValueError("no")
        return seconds

    assert step(0.15) == 0.15 and step(0.25) == 0.25
    with pytest.raises(ValueError, match="no"):
        step(0.01, fail=True)
    assert step.__name__ == "step" and step.__doc__ == "Does it."
    assert len(step.results) == 3
    assert step.results[0].name.endswith("step")
    assert step.results[0].energy_j < step.results[1].energy_j
    assert step.results[1].result().gpus[0].device == "sim:h200"


def test_as_a_decorator_of_a_coroutine(running):
    @measure(running.device, name="later")
    async def later(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def both():
        return await asyncio.gather(later(0.3), later(0.1))

    assert asyncio.run(both()) == [0.3, 0.1]
    assert [round(window.time_s, 1) for window in later.results] == [0.3, 0.1]
    assert later.results[0].name == "later"


def test_one_meter_in_coroutines_side_by_side(running):
    async def work(seconds):
        with running.meter as window:
            await asyncio.sleep(seconds)
        return window

    async def both():
        return await asyncio.gather(work(0.3), work(0.1))

    long, short = asyncio.run(both())
    assert long.end_s - long.begin_s >= 0.3 and 0.1 <= short.end_s - short.begin_s < 0.25


def test_results_before_the_end_are_refused_but_so_far_is_told(running):
    with running.meter as window:
        with pytest.raises(DeviceError, match="has not ended"):
            _ = window.energy_j
        time.sleep(0.5)
        so_far = window.so_far()
    assert 0.2 < so_far.time_s < 0.6 and 0.0 < so_far.energy_j < window.energy_j
    with pytest.raises(AttributeError, match="energy_j"):
        _ = window.energy


def test_begin_and_end_cost_microseconds(running):
    def cost_s():
        before = time.perf_counter()
        with running.meter:
            pass
        return time.perf_counter() - before

    with running.busy():
        best = min((sorted(cost_s() for _ in range(3000)) for _ in range(3)), key=lambda times: times[2970])
    assert statistics.median(best) < 20e-6
    assert best[2970] < 100e-6  # 20 µs on a machine that has nothing else to do


def test_several_devices_are_told_apart_and_added_up():
    devices = [open_device(name, wall_time=True, seed=9) for name in ("sim:h200", TOY)]
    with measure(devices) as window:
        time.sleep(0.6)
    large, small = window.gpus
    assert (large.device, small.device) == ("sim:h200", TOY)
    assert large.energy_j > small.energy_j
    assert window.energy_j == large.energy_j + small.energy_j
    assert window.energy_se_j == pytest.approx((large.energy_se_j**2 + small.energy_se_j**2) ** 0.5)


def test_the_same_device_twice_is_counted_once(running):
    assert len(measure([running.device, running.device]).followers) == 1
    assert measure(running.device).followers[0] is running.meter.followers[0]


def test_a_name_lives_in_real_time_and_is_opened_once():
    assert window_devices(TOY)[0] is window_devices([TOY])[0]


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(BadInputError, match="real time"):
        measure(open_device(TOY))
    with pytest.raises(BadInputError, match="recording"):
        measure("recorded:study.db")
    with pytest.raises(BadInputError, match="no device"):
        measure([])
    with pytest.raises(BadInputError, match="there is no kind"):
        measure("tpu:0")
    with pytest.raises(BadInputError, match="not measured together"):
        measure([open_device(TOY, wall_time=True), FakeDevice(FakeSensors(constant(None, 99.0)))])


@pytest.mark.parametrize(
    ("said", "visible"),
    [
        (None, ("nvidia:0", "nvidia:1", "nvidia:2")),
        ("2,0", ("nvidia:2", "nvidia:0")),
        ("GPU-abc, 1", ("nvidia:GPU-abc", "nvidia:1")),
        ("1,7,0", ("nvidia:1",)),
        ("", None),
        ("-1", None),
    ],
)
def test_all_devices_are_those_that_cuda_leaves_visible(said, visible, monkeypatch):
    monkeypatch.setattr("wastenot.devices.nvidia.nvml.Nvml", lambda: None)
    monkeypatch.setattr("wastenot.devices.nvidia.device.nvidia_names", lambda _: ("nvidia:0", "nvidia:1", "nvidia:2"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if said is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    if visible is None:
        with pytest.raises(DeviceError, match="leaves no GPU"):
            visible_names()
    else:
        assert visible_names() == visible


def test_a_fork_measures_nothing_of_its_parents_windows_and_does_not_hang(running):
    window = running.meter.begin()
    time.sleep(0.25)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            window.end()
            with running.meter as other:
                pass
            fresh = measure(TOY)
            with fresh as own:
                time.sleep(0.3)
            facts = (window.energy_j is None, FORKED in window.flags, other.energy_j is None, own.energy_j > 0.0)
            os.write(writer, repr(facts).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    window.end()
    assert said == "(True, True, True, True)"
    assert window.energy_j > 0.0


def test_the_thread_sleeps_while_nothing_is_measured_and_wakes(monkeypatch):
    monkeypatch.setattr(sampler_module, "_LINGER_S", 0.1)
    monkeypatch.setattr(sampler_module, "_TIDY_S", 0.05)
    monkeypatch.setattr(sampler_module, "_SETTLED_S", 0.6)
    own = Sampler()
    meter = Meter((open_device(TOY, wall_time=True),), gpu=False, name=None, sampler=own)
    try:
        with meter as kept:
            time.sleep(0.3)
        for _ in range(40):
            time.sleep(0.1)
            if not own.awake:
                break
        assert not own.awake
        assert kept._result is not None  # settled by itself, so that the log can forget
        last = meter.followers[0].log.last_sample_s()
        time.sleep(0.3)
        assert meter.followers[0].log.last_sample_s() == last
        with meter as window:
            time.sleep(0.35)
        assert 0.0 < window.energy_j < 3.0 * 25.0 * 0.35
        assert own.awake
    finally:
        own.stop()
    assert not own._thread.is_alive()


def log_of(sensors, seconds=6.0):
    follower = StepFollower(FakeDevice(sensors), lambda: sensors.now_s)
    end = sensors.now_s + seconds
    while sensors.now_s < end:
        sensors.now_s = max(sensors.now_s, follower.due_s)
        follower.poll()
    return follower


def told(sensors, begin_s, end_s):
    follower = log_of(sensors)
    return gpu_window(follower.device.identity, follower.log, bool(follower.has_counter), begin_s, end_s)


def test_without_a_counter_the_gauge_tells_and_that_is_said():
    found = told(FakeSensors(Power([0.0, 12.0, 99.0], [100.0, 400.0]), counter=False), 11.0, 13.0)
    assert found.energy_j == pytest.approx(500.0, abs=4.0 * found.energy_se_j)
    assert found.energy_se_j < 25.0
    assert found.flags == (NO_COUNTER, THROTTLED)


def test_a_counter_that_never_steps_is_not_believed():
    sensors = FakeSensors(constant(None, 99.0))
    sensors.energy_j = lambda: 5.0
    found = told(sensors, 11.0, 13.0)
    assert found.energy_j == pytest.approx(600.0, rel=0.02) and NO_STEPS in found.flags


def test_what_cannot_be_read_is_absent():
    sensors = FakeSensors(constant(None, 99.0), counter=False, gauge=False)
    sensors.temperature_c = sensors.throttled_s = sensors.processes = lambda: None
    found = told(sensors, 11.0, 13.0)
    assert (found.energy_j, found.energy_se_j, found.mean_power_w, found.memory_energy_j) == (None,) * 4
    assert (found.temperature_c, found.throttled_share, found.memory_mhz) == (None, None, None)
    assert found.core_mhz == 1500.0
    total = WindowResult.of("x", 2.0, (found, told(FakeSensors(constant(None, 99.0)), 11.0, 13.0)))
    assert total.energy_j is None and total.gpus[1].energy_j is not None


def test_sensors_of_the_window_are_averaged():
    sensors = FakeSensors(constant(None, 99.0), memory_w=80.0)
    sensors.processes = lambda: 2
    found = told(sensors, 11.0, 13.0)
    assert found.memory_energy_j == pytest.approx(160.0)
    assert found.throttled_share == pytest.approx(0.25, abs=0.01)
    assert set(found.flags) == {THROTTLED, SHARED}
    short = told(FakeSensors(constant(None, 99.0), memory_w=80.0), 11.0, 11.5)
    assert short.memory_energy_j is None and MEMORY_SHORT in short.flags


def test_memory_energy_is_that_of_the_time_its_gauge_averages():
    """A gauge that averages a second is late by half of it."""
    power = Power([0.0, 11.0, 14.0, 99.0], [50.0, 150.0, 50.0])
    sensors = FakeSensors(constant(None, 99.0))
    sensors.memory_power_w = lambda: power.between_j(sensors.now_s - 1.0, sensors.now_s)
    found = told(sensors, 10.4, 15.0)
    assert found.memory_energy_j == pytest.approx(power.between_j(10.4, 15.0), rel=0.02)


def test_a_device_whose_sensors_fail_does_not_hold_up_the_others():
    class Lost(FakeSensors):
        def power_w(self):
            raise DeviceError("the GPU is lost")

    own = Sampler()
    lost = FakeDevice(Lost(constant(None, 1e9)))
    well = open_device(TOY, wall_time=True, seed=2)
    try:
        meter = Meter((lost, well), gpu=False, name=None, sampler=own)
        with meter as window:
            time.sleep(0.5)
        result = window.result(timeout_s=1.0)
    finally:
        own.stop()
    assert result.gpus[0].energy_j is None and result.gpus[1].energy_j > 0.0
    assert result.energy_j is None


def test_many_random_windows_hold_the_truth_as_often_as_they_say(running):
    """In real time, on the simulated H200 with its noise and slow edges, one load after another."""
    rng = np.random.default_rng(0)
    windows, stop = [], threading.Event()

    def measuring(seed):
        own = np.random.default_rng(seed)
        while not stop.is_set():
            with running.meter as window:
                time.sleep(own.uniform(0.3, 0.9))
            windows.append((window, running.truth_j(window)))

    threads = [threading.Thread(target=measuring, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        with running.busy():
            time.sleep(rng.uniform(0.3, 0.8))
        time.sleep(rng.uniform(0.2, 0.6))
    stop.set()
    for thread in threads:
        thread.join()
    held = [abs(window.energy_j - truth) <= 1.96 * window.energy_se_j for window, truth in windows]
    assert len(held) > 30
    assert np.mean(held) >= 0.85


def test_a_window_that_nobody_keeps_is_not_kept(running):
    before = len(running.meter.sampler.open)
    for _ in range(100):
        with running.meter:
            pass
    assert len(running.meter.sampler.open) <= before + 1
    assert isinstance(running.meter.begin(), Window)


def test_the_gpus_own_events_bracket_a_window(running, monkeypatch):
    """The GPU comes to the begin 0.1 s after the host, and to the end 0.3 s after it."""

    class Clock:
        def mark(self):
            return time.perf_counter()

        def moments(self, begin, end):
            return begin + 0.1, end + 0.3, 1e-5

    monkeypatch.setattr("wastenot.metering.window.torch_clocks", lambda ids: (Clock(),) * len(ids))
    meter = measure(running.device, gpu=True)
    with meter as window:
        time.sleep(0.4)
    with running.busy():
        time.sleep(0.3)
    assert window.time_s == pytest.approx(0.6, abs=0.05)
    with running.lock:
        at = running.device.engine.energy_at
        truth = at(window.end_s + 0.3 - running.ahead_s) - at(window.begin_s + 0.1 - running.ahead_s)
    held(window, truth)
    assert window.energy_j > 1.5 * running.truth_j(window)  # the load came after the host's window
