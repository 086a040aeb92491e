"""``measure``: numbers on a simulated GPU in virtual time; threads, forks and names in real time; faults on fake GPUs."""

import asyncio
import contextlib
import os
import resource
import threading
import time

import numpy as np
import pytest

from testbed.metered_windows import FakeDevice, FakeSensors, Power, constant
from wastenot.core.errors import BadInputError, DeviceError
from wastenot.devices.open import open_device
from wastenot.meters import sampler as sampler_module
from wastenot.meters.counter import StepFollower
from wastenot.meters.devices import measurable_devices, visible_names
from wastenot.meters.result import (
    MEMORY_SHORT,
    NO_COUNTER,
    NO_STEPS,
    SHARED,
    THROTTLED,
    WindowResult,
    gpu_window,
)
from wastenot.meters.sampler import ProcessSampler, Sampler
from wastenot.meters.tasks import find_tasks
from wastenot.meters.window import FORKED, Meter, Window, measure
from wastenot.meters.window_energy import SHORT

TOY = "sim:testbed/toy.toml"


class Virtual:
    """A simulated GPU in virtual time and a meter on it, whose sensors are polled when they are due while it sleeps."""

    def __init__(self, name="sim:h200", seed=0, followed_s=1.0):
        self.device = open_device(name, seed=seed)
        self.sampler = Sampler(self.device.time.now_s, background=False)
        self.meter = Meter((self.device,), gpu=False, name=None, sampler=self.sampler)
        self.sleep(followed_s)

    def sleep(self, seconds):
        self.sleep_until(self.device.time.now_s() + seconds)

    def sleep_until(self, moment_s):
        due_s = self.sampler.poll_due()
        while self.device.time.now_s() < moment_s:
            self.device.time.sleep(max(min(due_s, moment_s) - self.device.time.now_s(), 1e-6))
            due_s = self.sampler.poll_due()

    def busy(self):
        task = find_tasks("gpt3-small", "sim:h200").tasks[2]  # a matrix product, which the limit holds
        return self.device.launcher.start(task)

    def used_j(self, begin_s, end_s):
        at = self.device.engine.energy_at
        return at(end_s) - at(begin_s)

    def truth_j(self, window):
        """Within 4 s of it. Then lets the counter pass its next steps."""
        truth_j = self.used_j(window.begin_s, window.end_s)
        self.sleep(0.5)
        return truth_j


@pytest.fixture
def gpu():
    return Virtual()


class Running:
    """A simulated GPU in real time; only the holder of its follower's lock touches it."""

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


def test_a_constant_load(gpu):
    with gpu.busy():
        gpu.sleep(0.3)
        with gpu.meter as window:
            gpu.sleep(1.5)
    truth_j = gpu.truth_j(window)
    held(window, truth_j)
    assert window.energy_j == pytest.approx(truth_j, rel=0.05)
    assert window.energy_se_j < 0.02 * window.energy_j
    assert window.time_s == pytest.approx(1.5, abs=0.01)
    assert window.mean_power_w == pytest.approx(window.energy_j / window.time_s)
    assert window.core_mhz > 500 and window.memory_mhz == 3201 and 30 < window.temperature_c < 90
    assert 0.9 < window.throttled_share <= 1.0 and window.flags == (THROTTLED,)
    assert window.origin == "simulated" and window.memory_energy_j is None


def test_a_load_that_comes_and_goes(gpu):
    with gpu.meter as window:
        for _ in range(3):
            with gpu.busy():
                gpu.sleep(0.23)
            gpu.sleep(0.31)
    held(window, gpu.truth_j(window))


def test_a_load_of_the_window_alone(gpu):
    with gpu.meter as window, gpu.busy():
        gpu.sleep(1.0)
    truth_j = gpu.truth_j(window)
    held(window, truth_j)
    assert window.energy_j == pytest.approx(truth_j, rel=0.02)


def test_windows_in_windows_add_up(gpu):
    with gpu.busy(), gpu.meter as outer:
        with gpu.meter as first:
            gpu.sleep(0.4)
        with gpu.meter as second:
            gpu.sleep(0.5)
    gpu.sleep(0.5)
    assert outer.begin_s <= first.begin_s < first.end_s <= second.begin_s < second.end_s <= outer.end_s
    errors = (outer.energy_se_j, first.energy_se_j, second.energy_se_j)
    assert first.energy_j + second.energy_j == pytest.approx(outer.energy_j, abs=3.0 * sum(errors))


def test_windows_of_threads_side_by_side(gpu):
    windows, begun, over = {}, threading.Barrier(6, timeout=60.0), [threading.Event() for _ in range(5)]

    def work(number):
        with gpu.meter as windows[number]:
            begun.wait()
            assert over[number].wait(60.0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    with gpu.busy():
        for thread in threads:
            thread.start()
        begun.wait()
        for number, thread in enumerate(threads):
            gpu.sleep(0.1 if number else 0.2)
            over[number].set()
            thread.join()
    truths_j = [gpu.used_j(windows[number].begin_s, windows[number].end_s) for number in range(5)]
    gpu.sleep(0.5)
    for number, truth_j in enumerate(truths_j):
        assert windows[number].time_s == pytest.approx(0.2 + 0.1 * number, abs=1e-3)
        held(windows[number], truth_j)


def test_an_exception_leaves_a_result_and_goes_on(gpu):
    with pytest.raises(KeyError, match="mine"), gpu.meter as window:
        gpu.sleep(0.15)
        raise KeyError("mine")
    held(window, gpu.truth_j(window))
    assert window.energy_j > 0.0 and window.time_s == pytest.approx(0.15, abs=1e-3)


def test_a_short_window_is_never_nothing(gpu):
    with gpu.meter as window:
        gpu.device.time.sleep(5e-6)
    gpu.sleep(0.5)
    assert window.energy_j > 0.0 and SHORT in window.flags
    assert window.energy_se_j > window.energy_j


def test_the_first_window_of_a_device():
    gpu = Virtual(TOY, seed=5, followed_s=0.0)
    with gpu.meter as window:
        gpu.sleep(0.35)
    gpu.sleep(0.5)
    assert abs(window.energy_j - 25.0 * 0.97 * window.time_s) <= 4.0 * window.energy_se_j
    assert window.energy_se_j < 0.3 * window.energy_j


def test_as_a_decorator(gpu):
    @gpu.meter
    def step(seconds, fail=False):
        """Does it."""
        gpu.sleep(seconds)
        if fail:
            raise ValueError("no")
        return seconds

    assert step(0.15) == 0.15 and step(0.25) == 0.25
    with pytest.raises(ValueError, match="no"):
        step(0.01, fail=True)
    gpu.sleep(0.5)
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
    long, short = later.results
    assert long.time_s >= 0.3 and 0.1 <= short.time_s < long.time_s
    assert later.results[0].name == "later"


def test_one_meter_in_coroutines_side_by_side(running):
    async def work(seconds):
        with running.meter as window:
            await asyncio.sleep(seconds)
        return window

    async def both():
        return await asyncio.gather(work(0.3), work(0.1))

    long, short = asyncio.run(both())
    assert long.time_s >= 0.3 and 0.1 <= short.time_s < long.time_s


def test_results_before_the_end_are_refused_but_so_far_is_told(gpu):
    with gpu.meter as window:
        with pytest.raises(DeviceError, match="has not ended"):
            _ = window.energy_j
        gpu.sleep(0.5)
        so_far = window.so_far()
    gpu.sleep(0.5)
    assert 0.2 < so_far.time_s < 0.6 and 0.0 < so_far.energy_j < window.energy_j
    with pytest.raises(AttributeError, match="energy_j"):
        _ = window.energy


def test_begin_and_end_cost_microseconds(running):
    """In time of the processor, and hardly ever waiting for anything: neither depends on what else the machine does."""

    def many():
        waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        began_s = time.thread_time()
        for _ in range(3000):
            with running.meter:
                pass
        spent_s = time.thread_time() - began_s
        return spent_s / 3000, resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - waits

    with running.busy():
        costs_s, waits = zip(*(many() for _ in range(5)), strict=True)
    assert min(costs_s) < 20e-6
    assert min(waits) < 30


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


def test_a_name_runs_in_real_time_and_is_opened_once():
    assert measure(TOY).followers[0] is measure([TOY]).followers[0]


def test_devices_are_measured_once_each():
    device = open_device(TOY, wall_time=True)
    assert measurable_devices([device, TOY, device], lambda name: device) == (device,)


def test_the_sampler_of_the_process_is_made_anew_after_a_reset():
    shared = ProcessSampler()
    first = shared.get()
    assert shared.get() is first
    first.follow([open_device(TOY, wall_time=True)])
    shared.reset()
    assert not first._thread.is_alive()
    assert shared.get() is not first
    shared.reset()


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(BadInputError, match="real time"):
        measure(open_device(TOY))
    with pytest.raises(BadInputError, match="recording"):
        measure("recorded:study.db")
    with pytest.raises(BadInputError, match="no device"):
        measure([])
    with pytest.raises(BadInputError, match="there is no kind"):
        measure("tpu:0")
    with pytest.raises(BadInputError, match="cannot be measured together"):
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
    monkeypatch.setattr("wastenot.devices.nvidia.driver.count", lambda: 3)
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
    monkeypatch.setattr(sampler_module, "_COMPLETE_S", 0.6)
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
        assert kept._result is not None  # evaluated by itself, so that the log can forget
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


def test_many_random_windows_hold_the_truth_as_often_as_they_say(gpu):
    """On the simulated H200 with its noise and slow edges: overlapping windows over one load after another."""
    rng = np.random.default_rng(0)
    switches_s = 3.0 + np.cumsum(rng.uniform(0.2, 0.8, 100))
    begins_s = rng.uniform(3.0, switches_s[-1], 300)
    ends_s = begins_s + rng.uniform(0.3, 0.9, len(begins_s))
    events = [(moment, "switch", -1) for moment in switches_s]
    events += [(moment, "begin", number) for number, moment in enumerate(begins_s)]
    events += [(moment, "end", number) for number, moment in enumerate(ends_s)]
    windows, truths, load = {}, {}, None
    for moment, what, number in sorted(events):
        gpu.sleep_until(moment)
        if what == "begin":
            windows[number] = gpu.meter.begin()
        elif what == "end":
            windows[number].end()
            truths[number] = gpu.used_j(windows[number].begin_s, windows[number].end_s)
        elif load is None:
            load = gpu.busy()
            load.__enter__()
        else:
            load.__exit__(None, None, None)
            load = None
    gpu.sleep(0.5)
    held = [abs(window.energy_j - truths[number]) <= 1.96 * window.energy_se_j for number, window in windows.items()]
    assert len(held) == 300
    assert np.mean(held) >= 0.85


def test_a_window_that_nobody_keeps_is_not_kept(running):
    before = len(running.meter.sampler.pending)
    for _ in range(100):
        with running.meter:
            pass
    assert len(running.meter.sampler.pending) <= before + 1
    assert isinstance(running.meter.begin(), Window)


def test_the_gpus_own_events_bracket_a_window(gpu, monkeypatch):
    """The GPU reaches the begin 0.1 s after the host, and the end 0.3 s after it."""

    class Clock:
        def mark(self):
            return gpu.device.time.now_s()

        def moments(self, begin, end):
            return begin + 0.1, end + 0.3, 1e-5

    monkeypatch.setattr("wastenot.meters.window.torch_clocks", lambda ids, clocks: (Clock(),) * len(ids))
    meter = Meter((gpu.device,), gpu=True, name=None, sampler=gpu.sampler)
    with meter as window:
        gpu.sleep(0.4)
    with gpu.busy():
        gpu.sleep(0.3)
    gpu.sleep(0.5)
    held(window, gpu.used_j(window.begin_s + 0.1, window.end_s + 0.3))
    assert window.time_s == pytest.approx(0.6, abs=0.01)
    assert window.energy_j > 1.5 * gpu.used_j(window.begin_s, window.end_s)  # the load came after the host's window
