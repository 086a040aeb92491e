"""Counters of memory traffic: GPM on the stand-in for NVML, AMD SMI's metrics on that of AMD, and their faults."""

import pytest

from testbed.stand_in.controlled import controlled
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.errors import DeviceError
from wastenot.devices.nvidia.nvml import Nvml
from wastenot.devices.open import open_gpu
from wastenot.devices.simulated.sensors import FULL_BYTES_PER_S


@pytest.fixture
def device(nvml, stand_in):
    device = controlled(stand_in)
    yield device
    stand_in.control.clear_faults()


def reads(device, count=20, each_s=0.2):
    """Traffic again and again."""
    found = []
    for _ in range(count):
        device.time.sleep(each_s)
        found.append(device.sensors.traffic_s(device.time.now_s()))
    return found


def test_a_gpu_at_rest_moves_nothing_and_one_at_work_what_its_task_moves(device, stand_in, cool_task):
    assert reads(device)[-1] == 0.0
    stand_in.control.run_task(cool_task)
    begin_s, *_, end_s = reads(device, 50)
    kernel = cool_task.steps[0][0]
    expected = kernel.bytes_moved / stand_in.control.truth(cool_task).time_s / FULL_BYTES_PER_S
    assert (end_s - begin_s) / (49 * 0.2) == pytest.approx(expected, rel=0.03)


def test_samples_closer_than_they_are_refreshed_are_not_taken(device, stand_in, cool_task):
    stand_in.control.run_task(cool_task)
    first, *others = reads(device, 12, 0.05)
    assert sorted(others) == others and len(set(others)) <= 5
    assert reads(device, 5)[-1] > others[-1] > first


@pytest.mark.parametrize("preset", ["rtx-3080-ti", "v100"])
def test_cards_before_hopper_have_no_counters(preset, monkeypatch):
    with start_stand_in(preset) as server:
        server.use(monkeypatch)
        assert open_gpu("nvidia:0", time_source=server.time()).sensors.traffic_s(0.0) is None


def test_one_failure_to_tell_is_overlooked_and_many_in_a_row_are_not(device, stand_in, cool_task, monkeypatch):
    stand_in.control.run_task(cool_task)
    before = reads(device, 5)[-1]
    library = Nvml().library
    whole, fails = library.nvmlGpmMetricsGet, [1]

    def metrics(wanted):
        found = whole(wanted)
        if fails[0]:
            fails[0] -= 1
            found.metrics[0].nvmlReturn = library.NVML_ERROR_UNKNOWN
        return found

    monkeypatch.setattr(library, "nvmlGpmMetricsGet", metrics)
    after = reads(device, 5)
    assert after[0] == before and after[-1] > before  # what passed meanwhile counts with the next sample
    fails[0] = 99
    assert reads(device, 6)[-1] is None


def test_a_driver_that_fails_is_told(device, stand_in):
    reads(device, 2)
    stand_in.control.fault("nvmlGpmSampleGet", "UNKNOWN", times=1)
    with pytest.raises(DeviceError, match="nvmlGpmSampleGet"):
        reads(device, 1)


def test_amds_counter_goes_on_where_it_wraps_and_may_be_absent(monkeypatch, tmp_path, tasks):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
    with start_stand_in("mi300x") as server:
        server.use(monkeypatch)
        device = open_gpu("amd:0", time_source=server.time(), launcher=lambda _: server.launcher())
        task = tasks[max(tasks, key=lambda name: tasks[name].steps[0][0].bytes_moved)]
        device.sensors.traffic_s(0.0)  # 1,000 steps of the counter before it wraps
        with device.launcher.start(task) as run:
            run.mark()
            found = reads(device, 30)
            run.mark()
        moved = task.steps[0][0].bytes_moved * run.laps[0].calls
        assert sorted(found) == found and found[-1] == pytest.approx(moved / FULL_BYTES_PER_S, rel=0.05)
        assert found[-1] > 0.01  # it has wrapped
        server.control.fault("amdsmi_get_gpu_metrics_info", "NOT_SUPPORTED")
        assert device.sensors.traffic_s(0.0) is None
