"""The stand-in tells, through NVML's functions and in NVML's units, what its simulated GPUs truly do."""

import itertools
import threading
import time

import pytest

from testbed.stand_in import fields
from testbed.stand_in.boards import AMPERE, HOPPER, VOLTA
from testbed.stand_in.codes import Code
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.held_time import HeldTime, SharedTime
from testbed.stand_in.refusals import refused
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.simulated.preset import find_preset

PRESETS = ["h200", "rtx-3080-ti", "rtx-a4000", "v100", "testbed/toy.toml"]


def test_its_numbers_are_those_of_the_header(nvml):
    for code in Code:
        assert getattr(nvml, "NVML_SUCCESS" if code == 0 else f"NVML_ERROR_{code.name}") == code
    assert (nvml.NVML_DEVICE_ARCH_VOLTA, nvml.NVML_DEVICE_ARCH_AMPERE) == (VOLTA, AMPERE)
    assert nvml.NVML_DEVICE_ARCH_HOPPER == HOPPER
    assert nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP == fields.SW_POWER_CAP_NS
    assert nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN == fields.SW_THERMAL_NS
    assert nvml.NVML_FI_DEV_POWER_INSTANT == fields.POWER_INSTANT_MW
    assert nvml.NVML_FI_DEV_POWER_AVERAGE == fields.POWER_AVERAGE_MW
    assert nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION == fields.TOTAL_ENERGY_MJ
    assert nvml.NVML_FI_DEV_ENERGY == fields.ENERGY_MJ


def test_a_gpu_is_found_by_index_uuid_and_bus(nvml, stand_in):
    assert nvml.nvmlDeviceGetCount() == 2
    found = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    uuids = [nvml.nvmlDeviceGetUUID(handle) for handle in found]
    assert uuids == [stand_in.control.state(index).uuid for index in range(2)] and len(set(uuids)) == 2
    for index, handle in enumerate(found):
        bus = nvml.nvmlDeviceGetPciInfo(handle).busId
        again = [nvml.nvmlDeviceGetHandleByUUID(uuids[index]), nvml.nvmlDeviceGetHandleByPciBusId(bus)]
        assert [nvml.nvmlDeviceGetIndex(one) for one in again] == [index, index]
    refused(nvml, "INVALID_ARGUMENT", "nvmlDeviceGetHandleByIndex", 2)
    refused(nvml, "NOT_FOUND", "nvmlDeviceGetHandleByUUID", "GPU-0")
    refused(nvml, "NOT_FOUND", "nvmlDeviceGetHandleByPciBusId", "00000000:7F:00.0")
    refused(nvml, "INVALID_ARGUMENT", "nvmlDeviceGetName", nvml.c_nvmlDevice_t())


def test_what_an_h200_says_of_itself(nvml, handle):
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA H200"
    assert nvml.nvmlDeviceGetArchitecture(handle) == nvml.NVML_DEVICE_ARCH_HOPPER
    assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    assert nvml.nvmlDeviceGetMigMode(handle) == [0, 0]
    assert nvml.nvmlDeviceGetPersistenceMode(handle) == nvml.NVML_FEATURE_ENABLED
    assert nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle) == [200_000, 700_000]
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) == nvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 700_000
    assert nvml.nvmlDeviceGetSupportedMemoryClocks(handle) == [3201, 2201]
    assert nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 2201) == list(range(1980, 344, -15))
    assert nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) == 1980
    assert nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_MEM) == 3201
    refused(nvml, "NOT_FOUND", "nvmlDeviceGetSupportedGraphicsClocks", handle, 1000)
    assert nvml.nvmlSystemGetDriverVersion().startswith("580.") and nvml.nvmlSystemGetNVMLVersion().startswith("13.")
    assert nvml.nvmlSystemGetCudaDriverVersion() == nvml.nvmlSystemGetCudaDriverVersion_v2() == 13000


@pytest.mark.parametrize("preset", PRESETS)
def test_sensors_tell_the_truth_in_their_units(preset, monkeypatch, cool_task):
    with start_stand_in(preset) as stand_in:
        nvml = stand_in.use(monkeypatch)
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        stand_in.control.advance(2.0)
        assert nvml.nvmlDeviceGetPowerUsage(handle) / 1000 == pytest.approx(find_preset(preset).idle_w, abs=10)
        assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) == min(
            nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, nvml.nvmlDeviceGetSupportedMemoryClocks(handle)[0])
        )
        assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0
        stand_in.control.run_task(cool_task)
        stand_in.control.advance(2.0)
        begin, before_mj = stand_in.control.state(), nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        stand_in.control.advance(20.0)
        end, after_mj = stand_in.control.state(), nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        sensors = find_preset(preset).sensors
        true_j = end.energy_j - begin.energy_j
        true_w = true_j / (end.now_s - begin.now_s)
        assert (after_mj - before_mj) / 1000 == pytest.approx(sensors.energy.gain * true_j, rel=0.01)
        assert nvml.nvmlDeviceGetPowerUsage(handle) / 1000 == pytest.approx(sensors.power.gain * true_w, rel=0.03)
        core_mhz, memory_mhz = end.in_effect_mhz
        assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_GRAPHICS) == round(core_mhz)
        assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) == round(memory_mhz)
        assert nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU) == round(end.temperature_c)
        assert nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU) == round(end.temperature_c)
        assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 100


def test_fields_have_their_own_codes_scopes_and_times(nvml, handle, stand_in, cool_task):
    stand_in.control.run_task(cool_task)
    stand_in.control.advance(3.0)
    asked = [
        nvml.NVML_FI_DEV_POWER_INSTANT,
        (nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_MEMORY),
        (nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_MODULE),
        (nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_MEMORY),
        nvml.NVML_FI_DEV_ENERGY,
        nvml.NVML_FI_DEV_POWER_MIN_LIMIT,
        nvml.NVML_FI_DEV_ECC_CURRENT,
    ]
    found = nvml.nvmlDeviceGetFieldValues(handle, asked)
    bad = nvml.NVML_ERROR_NOT_SUPPORTED
    assert [one.nvmlReturn for one in found] == [0, bad, bad, 0, 0, 0, bad]
    power_mw, memory_mw = found[0].value.uiVal, found[3].value.uiVal
    kernel = cool_task.steps[0][0]
    traffic = kernel.bytes_moved / stand_in.control.truth(cool_task).time_s
    assert memory_mw / 1000 == pytest.approx(82 + 26.6e-12 * traffic, rel=0.02)
    assert memory_mw < power_mw
    assert found[4].valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    assert found[4].value.ullVal == nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    assert found[5].value.uiVal == 200_000
    assert found[4].latencyUsec == 3100 and found[0].latencyUsec < 10
    stand_in.control.advance(1.0)
    assert nvml.nvmlDeviceGetFieldValues(handle, [83])[0].timestamp - found[4].timestamp == pytest.approx(1e6, abs=2e4)


def test_the_memory_has_no_power_of_its_own_on_older_gpus(monkeypatch):
    with start_stand_in("v100") as stand_in:
        nvml = stand_in.use(monkeypatch)
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        codes = [one.nvmlReturn for one in nvml.nvmlDeviceGetFieldValues(handle, [(185, 2), (185, 0), (186, 0)])]
        assert codes == [3, 3, 0]
        refused(nvml, "NOT_SUPPORTED", "nvmlDeviceGetMigMode", handle)
        refused(nvml, "NOT_SUPPORTED", "nvmlDeviceSetMemoryLockedClocks", handle, 877, 877)


def test_locked_clocks_are_a_ceiling_that_arrives_late(nvml, handle, stand_in, cool_task):
    stand_in.control.run_task(cool_task)
    nvml.nvmlDeviceSetGpuLockedClocks(handle, 345, 1007)
    state = stand_in.control.state()
    assert state.locked_core_mhz == (345, 1007) and state.requested == Setting(1005.0) and not state.untouched
    assert state.in_effect_mhz[0] == 1980
    stand_in.control.advance(0.5)
    assert stand_in.control.state().in_effect_mhz[0] == 1005
    assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) == 1005
    nvml.nvmlDeviceResetGpuLockedClocks(handle)
    stand_in.control.advance(0.5)
    state = stand_in.control.state()
    assert state.untouched and state.requested == AUTO and state.in_effect_mhz[0] == 1980
    assert stand_in.control.state(1).setters == ()
    assert [(call.name, call.arguments, call.error) for call in state.setters] == [
        ("nvmlDeviceSetGpuLockedClocks", (345, 1007), None),
        ("nvmlDeviceResetGpuLockedClocks", (), None),
    ]


def test_a_power_limit_holds(nvml, handle, stand_in, hot_task):
    stand_in.control.run_task(hot_task)
    nvml.nvmlDeviceSetPowerManagementLimit(handle, 400_000)
    stand_in.control.advance(3.0)
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle) == nvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 400_000
    assert nvml.nvmlDeviceGetPowerUsage(handle) / 1000 == pytest.approx(400, rel=0.02)
    assert stand_in.control.state().requested == Setting(power_limit_w=400.0)
    nvml.nvmlDeviceSetPowerManagementLimit(handle, 700_000)
    assert stand_in.control.state().untouched and stand_in.control.state().requested == AUTO


def test_time_under_the_cap_is_counted_and_said(nvml, handle, stand_in, hot_task, cool_task):
    def counters():
        return [one.value.ullVal for one in nvml.nvmlDeviceGetFieldValues(handle, [74, 269, 270, 271])]

    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == nvml.nvmlClocksEventReasonGpuIdle
    stand_in.control.run_task(cool_task)
    stand_in.control.advance(2.0)
    assert counters() == [0, 0, 0, 0] and nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) == 0
    stand_in.control.stop_task()
    stand_in.control.run_task(hot_task)
    stand_in.control.advance(2.0)
    assert counters()[0] == pytest.approx(2e9, rel=0.01) and counters()[1:] == [0, 0, 0]
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == nvml.nvmlClocksEventReasonSwPowerCap
    assert counters()[0] == pytest.approx(1e9 * stand_in.control.state().throttled_s, abs=1e6)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("nvmlDeviceSetGpuLockedClocks", (1005, 900)),
        ("nvmlDeviceSetGpuLockedClocks", (345, 1995)),
        ("nvmlDeviceSetGpuLockedClocks", (1, 1005)),
        ("nvmlDeviceSetGpuLockedClocks", (345, 0xFFFFFF02)),
        ("nvmlDeviceSetPowerManagementLimit", (199_999,)),
        ("nvmlDeviceSetPowerManagementLimit", (700,)),
        ("nvmlDeviceSetPersistenceMode", (2,)),
    ],
)
def test_what_is_out_of_range_is_refused_and_changes_nothing(nvml, handle, stand_in, function, arguments):
    refused(nvml, "INVALID_ARGUMENT", function, handle, *arguments)
    state = stand_in.control.state()
    assert state.untouched and state.requested == AUTO
    assert [(call.name, call.error) for call in state.setters] == [(function, "INVALID_ARGUMENT")]


def test_memory_clocks_are_locked_only_where_the_board_can(nvml, handle, monkeypatch, cool_task):
    refused(nvml, "NOT_SUPPORTED", "nvmlDeviceSetMemoryLockedClocks", handle, 3201, 3201)
    refused(nvml, "NOT_SUPPORTED", "nvmlDeviceResetMemoryLockedClocks", handle)
    with start_stand_in("testbed/toy.toml") as stand_in:
        nvml = stand_in.use(monkeypatch)
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        stand_in.control.run_task(cool_task)
        nvml.nvmlDeviceSetMemoryLockedClocks(handle, 5001, 6000)
        stand_in.control.advance(2.0)
        assert stand_in.control.state().requested == Setting(memory_mhz=5001.0)
        assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) == 5001
        refused(nvml, "INVALID_ARGUMENT", "nvmlDeviceSetMemoryLockedClocks", handle, 100, 200)
        nvml.nvmlDeviceResetMemoryLockedClocks(handle)
        assert stand_in.control.state().untouched
    with start_stand_in("testbed/toy.toml", memory_lock=False) as stand_in:
        nvml = stand_in.use(monkeypatch)
        nvml.nvmlInit()
        refused(nvml, "NOT_SUPPORTED", "nvmlDeviceSetMemoryLockedClocks", nvml.nvmlDeviceGetHandleByIndex(0), 5001, 5001)


def test_others_on_the_gpu_are_shown(nvml, handle, stand_in):
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    free = nvml.nvmlDeviceGetMemoryInfo(handle).free
    stand_in.control.foreign_process(4321, 8 << 30)
    assert [(one.pid, one.usedGpuMemory) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [(4321, 8 << 30)]
    assert free - nvml.nvmlDeviceGetMemoryInfo(handle).free == 8 << 30
    stand_in.control.foreign_process(4321, 0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_virtual_time_passes_only_when_it_is_let(stand_in, cool_task):
    time = stand_in.time()
    began = time.now_s()
    assert time.now_s() == began
    time.sleep(1000.0)
    assert time.now_s() - began == pytest.approx(1000.0)
    launcher = stand_in.launcher()
    assert launcher.can_run(cool_task, Setting(1005.0)) and not launcher.can_run(cool_task, Setting(1.0))
    with launcher.start(cool_task) as run:
        for _ in range(4):
            run.mark()
            time.sleep(0.5)
            run.feed()
        assert run.completed > 0
        run.mark()
    true_s = stand_in.control.truth(cool_task).time_s
    assert len(run.laps) == 4
    assert all(lap.seconds / lap.calls == pytest.approx(true_s, rel=0.02) for lap in run.laps)
    assert sum(lap.seconds for lap in run.laps) == pytest.approx(2.0, rel=0.01)


def test_wall_time_passes_by_itself(wall, monkeypatch, cool_task):
    nvml = wall.use(monkeypatch)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with wall.launcher().start(cool_task):
        begin = wall.control.state()
        wall.time().sleep(1.0)
        end = wall.control.state()
        assert end.now_s - begin.now_s == pytest.approx(1.0, abs=0.1)
        assert end.energy_j > begin.energy_j + 50
        seen = [nvml.nvmlDeviceGetTotalEnergyConsumption(handle)]
        while len(seen) < 4:
            now_mj = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            if now_mj != seen[-1]:
                seen.append(now_mj)
                moment = wall.time().now_s()
        steps = [after - before for before, after in itertools.pairwise(seen)]
        assert min(steps[1:]) > 0.05 * 50_000 and moment - end.now_s < 1.0


def test_held_time_passes_only_as_all_who_hold_it_let_it(wall):
    first, second, seen = HeldTime(wall.socket), HeldTime(wall.socket), SharedTime(wall.socket)
    began_s = first.monotonic()
    assert seen.monotonic() == second.monotonic() == began_s
    ahead = threading.Thread(target=lambda: first.let_pass(0.1))
    ahead.start()
    second.let_pass(0.01)
    assert second.monotonic() == pytest.approx(began_s + 0.01)
    assert seen.monotonic() <= began_s + 0.01 + 1e-9
    second.close()  # who has gone holds nobody up
    ahead.join(60.0)
    assert first.monotonic() == pytest.approx(began_s + 0.1) and seen.monotonic() == first.monotonic()
    first.close()
    end_s = time.monotonic() + 60.0
    while seen.monotonic() <= first.monotonic():  # it is that of the wall again
        assert time.monotonic() < end_s
        time.sleep(0.01)
