"""What every device must do. One suite; the simulated GPU is the reference."""

import numpy as np
import pytest

from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.errors import CannotRunError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device, open_gpu
from wastenot.devices.simulated.basis import preset_names
from wastenot.meters.tasks import find_tasks
from wastenot.study.sweep_file import import_sweep
from wastenot.sweeping.point import PointOptions, measure_point

TOY = "sim:testbed/toy.toml"
RECORDED_ROWS = """kernel,count,core_mhz,memory_mhz,time_s,energy_j
gemm,2,,,0.010,3.0
gemm,2,1500,9501,0.011,2.5
gemm,2,900,9501,0.015,2.2
copy,3,,,0.001,0.2
copy,3,1500,9501,0.001,0.15
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    (folder / "sweep.csv").write_text(RECORDED_ROWS)
    import_sweep(folder / "sweep.csv", folder / "study.db", device="a card")
    return f"recorded:{folder / 'study.db'}"


@pytest.fixture(scope="module")
def stand_in():
    with start_stand_in("h200", memory_lock=True, seed=3) as server:
        yield server


@pytest.fixture(scope="module")
def amd_stand_in():
    with start_stand_in("mi300x", seed=3) as server:
        yield server


@pytest.fixture(params=[TOY, "recorded", "nvidia:0", "amd:0", *(f"sim:{name}" for name in preset_names())])
def name(request, recording):
    return recording if request.param == "recorded" else request.param


@pytest.fixture
def device(name, request, monkeypatch, tmp_path):
    if not name.startswith(("nvidia:", "amd:")):
        yield open_device(name, seed=3)
        return
    server = request.getfixturevalue("stand_in" if name.startswith("nvidia:") else "amd_stand_in")
    server.control.reset()
    server.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
    monkeypatch.delenv("WASTENOT_READ_ONLY", raising=False)
    found = open_gpu(name, allow_clock_control=True, time_source=server.time(), launcher=lambda _: server.launcher())
    yield found
    found.clocks.release()


@pytest.fixture
def tasks(name):
    return find_tasks("sweep" if name.startswith("recorded") else "gpt3-small", name).tasks


def test_it_says_which_it_is(device, name):
    identity = device.identity
    assert identity.name == name and identity.model and identity.unique_id and identity.driver and identity.label
    assert identity.origin == ("simulated" if name.startswith("sim") else "measured")


def test_states_rise_and_can_be_asked_for(device):
    states = device.clocks.supported_clocks()
    assert list(states) == sorted(states) and all(list(cores) == sorted(set(cores)) and cores for cores in states.values())
    memory = next(reversed(states))
    device.clocks.request(Setting(states[memory][-1], memory))
    device.clocks.release()


@pytest.mark.parametrize(
    "setting", [Setting(1.0, None), Setting(None, 123.0), Setting(9e9, 9e9), Setting(power_limit_w=1.0)]
)
def test_what_it_does_not_have_is_refused_and_changes_nothing(device, tasks, setting):
    with pytest.raises(ClocksRefusedError):
        device.clocks.request(setting)
    before = measure_point(device, tasks[0], AUTO, PointOptions(0.5, 1.0))
    device.clocks.release()
    after = measure_point(device, tasks[0], AUTO, PointOptions(0.5, 1.0))
    assert after.time_s == pytest.approx(before.time_s, rel=0.02)


def test_time_passes_only_forward(device):
    moments = [device.time.now_s()]
    for pause in (0.0, 0.001, 0.5):
        device.time.sleep(pause)
        moments.append(device.time.now_s())
    assert moments == sorted(moments) and moments[-1] - moments[0] >= 0.501 - 1e-9


def test_energy_grows_with_the_work_done(device, tasks):
    with device.launcher.start(tasks[0]) as run:
        device.time.sleep(0.5)
        first = device.sensors.energy_j()
        for _ in range(20):
            device.time.sleep(0.05)
            run.feed()
        second = device.sensors.energy_j()
    if first is None:
        assert device.sensors.power_w() is not None
    else:
        assert second > first


def test_laps_are_whole_calls_and_known_at_the_end(device, tasks):
    with device.launcher.start(tasks[0]) as run:
        for _ in range(4):
            run.mark()
            device.time.sleep(0.4)
            run.feed()
        run.mark()
    assert 1 <= len(run.laps) <= 4
    each = [lap.seconds / lap.calls for lap in run.laps]
    assert all(lap.calls >= 1 for lap in run.laps)
    assert np.ptp(each) <= 0.05 * np.mean(each)
    assert sum(lap.seconds for lap in run.laps) <= 1.7


def test_laps_know_their_core_clock_where_the_device_counts_cycles(device, tasks, name):
    memory = max(device.clocks.supported_clocks())
    cores = device.clocks.supported_clocks()[memory]
    clocks = []
    for core in (cores[0], cores[-1]):
        device.clocks.request(Setting(core, memory))
        device.time.sleep(1.0)  # the clock arrives
        with device.launcher.start(tasks[0]) as run:
            for _ in range(3):
                run.mark()
                device.time.sleep(0.4)
                run.feed()
            run.mark()
        for lap in run.laps:
            assert lap.core_mhz is not None and lap.lowest_core_mhz is not None
            assert 0.0 < lap.lowest_core_mhz <= lap.core_mhz <= core + 1.0
        clocks.append(np.mean([lap.core_mhz for lap in run.laps]))
    assert clocks[0] == pytest.approx(cores[0], rel=1e-3) and clocks[1] > clocks[0]
    device.clocks.release()
    with device.launcher.start(tasks[0]) as run:
        run.mark()
        device.time.sleep(0.4)
        run.mark()
    unknown = name.startswith("recorded")  # it does not say which clocks auto was
    assert all((lap.core_mhz is None) is unknown for lap in run.laps)


def test_lower_clocks_are_slower_and_draw_less(device, tasks):
    memory = max(device.clocks.supported_clocks())
    cores = device.clocks.supported_clocks()[memory]
    slow, fast = (
        measure_point(device, tasks[0], Setting(core, memory), PointOptions(1.0, 2.0)) for core in (cores[0], cores[-1])
    )
    device.clocks.release()
    assert slow.time_s >= fast.time_s * 0.999
    assert slow.energy_j / slow.time_s < fast.energy_j / fast.time_s


def test_a_task_it_does_not_know_is_refused(device):
    from wastenot.meters.tasks import tasks_by_name
    from wastenot.study.sweep import Kernel

    unknown = tasks_by_name("x", [Kernel("no such kernel", 1)]).tasks[0]
    with pytest.raises(CannotRunError, match="no such kernel"), device.launcher.start(unknown):
        pass


def test_memory_traffic_is_that_of_the_calls_whatever_the_core_clock(device, tasks, name):
    """In proportion: what is full bandwidth, only the driver knows."""
    moved = max(tasks, key=lambda task: sum(calls * kernel.bytes_moved for kernel, calls in task.steps))
    if name.startswith("recorded"):
        assert device.sensors.traffic_s(0.0) is not None
        return
    each = []
    for core_mhz in (None, next(iter(device.clocks.supported_clocks().values()))[-1]):
        device.clocks.request(Setting(core_mhz, None))
        with device.launcher.start(moved) as run:
            device.time.sleep(2.0)
            run.mark()
            before_s = device.sensors.traffic_s(device.time.now_s())
            for _ in range(40):
                device.time.sleep(0.25)
                run.feed()
                after_s = device.sensors.traffic_s(device.time.now_s())
            run.mark()
        each.append((after_s - before_s) / run.laps[-1].calls)
    assert each[0] > 0.0 and each[1] == pytest.approx(each[0], rel=0.02)


def test_sensors_give_none_or_numbers_that_make_sense(device, tasks):
    with device.launcher.start(tasks[0]):
        device.time.sleep(2.0)
        readings = device.sensors
        assert readings.energy_j() is None or readings.energy_j() >= 0
        assert readings.power_w() is None or readings.power_w() > 0
        assert readings.temperature_c() is None or 0 < readings.temperature_c() < 120
        assert readings.throttled_s() is None or readings.throttled_s() >= 0
        clocks = readings.clocks()
        assert clocks.core_mhz is None or np.isnan(clocks.core_mhz) or clocks.core_mhz > 0
