"""Faults on demand, and what outlives the process that did it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from testbed.stand_in.refusals import refused

LOCK_AND_WAIT = """
import time, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetGpuLockedClocks(handle, 345, 1005)
print("locked", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "error", ["NO_PERMISSION", "NOT_SUPPORTED", "UNKNOWN", "GPU_IS_LOST", "TIMEOUT", "DRIVER_NOT_LOADED", "IN_USE"]
)
def test_a_function_fails_as_asked(nvml, handle, stand_in, error):
    stand_in.control.fault("nvmlDeviceSetGpuLockedClocks", error)
    refused(nvml, error, "nvmlDeviceSetGpuLockedClocks", handle, 345, 1005)
    assert stand_in.control.state().untouched and stand_in.control.state().setters[0].error == error
    nvml.nvmlDeviceGetPowerUsage(handle)
    stand_in.control.clear_faults()
    nvml.nvmlDeviceSetGpuLockedClocks(handle, 345, 1005)
    assert stand_in.control.state().locked_core_mhz == (345, 1005)


def test_it_fails_so_often_and_then_no_more(nvml, handle, stand_in):
    stand_in.control.fault("nvmlDeviceGetPower*", "UNKNOWN", times=2, after=1)
    nvml.nvmlDeviceGetPowerUsage(handle)
    refused(nvml, "UNKNOWN", "nvmlDeviceGetPowerManagementLimit", handle)
    refused(nvml, "UNKNOWN", "nvmlDeviceGetPowerUsage", handle)
    nvml.nvmlDeviceGetPowerUsage(handle)


def test_it_fails_on_one_gpu_only(nvml, handle, stand_in):
    stand_in.control.fault("nvmlDevice*", "NO_PERMISSION", index=1)
    nvml.nvmlDeviceGetName(handle)
    refused(nvml, "NO_PERMISSION", "nvmlDeviceGetName", nvml.nvmlDeviceGetHandleByIndex(1))


def test_an_error_may_be_returned_by_what_took_effect(nvml, handle, stand_in):
    stand_in.control.fault("nvmlDeviceSetGpuLockedClocks", "UNKNOWN", takes_effect=True)
    refused(nvml, "UNKNOWN", "nvmlDeviceSetGpuLockedClocks", handle, 345, 1005)
    assert stand_in.control.state().locked_core_mhz == (345, 1005)


def test_a_lost_gpu_answers_nothing_and_the_others_go_on(nvml, handle, stand_in):
    stand_in.control.gpu_lost(0)
    for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceResetGpuLockedClocks", "nvmlDeviceGetUUID"):
        refused(nvml, "GPU_IS_LOST", function, handle)
    refused(nvml, "GPU_IS_LOST", "nvmlDeviceGetHandleByIndex", 0)
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(1)) > 0


def test_clocks_that_never_arrive(nvml, handle, stand_in, cool_task):
    stand_in.control.run_task(cool_task)
    stand_in.control.clock_never_arrives()
    nvml.nvmlDeviceSetGpuLockedClocks(handle, 345, 1005)
    stand_in.control.advance(100.0)
    assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) == 1980
    assert stand_in.control.state().locked_core_mhz == (345, 1005)
    stand_in.control.clock_never_arrives(False)
    stand_in.control.advance(2.0)
    assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) == 1005


def test_mig_is_seen(nvml, handle, stand_in):
    stand_in.control.mig()
    assert nvml.nvmlDeviceGetMigMode(handle) == [1, 1]


def test_slow_calls_take_their_time(wall, monkeypatch):
    nvml = wall.use(monkeypatch)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    wall.control.fault("nvmlDeviceGetPowerUsage", delay_s=0.3, times=1)

    def seconds():
        began = time.monotonic()
        nvml.nvmlDeviceGetPowerUsage(handle)
        return time.monotonic() - began

    assert seconds() >= 0.3 and min(seconds() for _ in range(50)) < 0.1


def test_nothing_works_before_it_is_initialised_or_after_it_was_shut_down(stand_in, monkeypatch):
    nvml = stand_in.use(monkeypatch)
    refused(nvml, "UNINITIALIZED", "nvmlDeviceGetCount")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 2
    nvml.nvmlShutdown()
    refused(nvml, "UNINITIALIZED", "nvmlDeviceGetCount")
    refused(nvml, "UNINITIALIZED", "nvmlDeviceGetPowerUsage", handle)


def test_it_never_falls_back_to_a_real_driver(stand_in, monkeypatch, tmp_path):
    nvml = stand_in.use(monkeypatch)
    monkeypatch.delenv("STAND_IN_NVML")
    refused(nvml, "LIBRARY_NOT_FOUND", "nvmlInit")
    monkeypatch.setenv("STAND_IN_NVML", str(tmp_path / "nobody"))
    refused(nvml, "DRIVER_NOT_LOADED", "nvmlInit")
    monkeypatch.setenv("STAND_IN_NVML", stand_in.socket)
    stand_in.control.fault("nvmlInit", "LIB_RM_VERSION_MISMATCH", times=1)
    refused(nvml, "LIB_RM_VERSION_MISMATCH", "nvmlInit")
    nvml.nvmlInit()
    refused(nvml, "FUNCTION_NOT_FOUND", "nvmlDeviceGetFanSpeed", nvml.nvmlDeviceGetHandleByIndex(0))


def test_what_a_killed_process_left_behind_stays(nvml, handle, stand_in):
    client = subprocess.Popen(
        [sys.executable, "-c", LOCK_AND_WAIT], env=stand_in.environment(), stdout=subprocess.PIPE
    )  # fmt: skip
    with client:
        assert client.stdout.readline() == b"locked\n"
        assert stand_in.control.state().locked_core_mhz == (345, 1005)
        client.send_signal(signal.SIGKILL)
    assert client.returncode == -signal.SIGKILL
    state = stand_in.control.state()
    assert state.locked_core_mhz == (345, 1005) and state.setters[0].process == client.pid
    nvml.nvmlDeviceResetGpuLockedClocks(handle)
    state = stand_in.control.state()
    assert state.untouched and [call.process for call in state.setters] == [client.pid, os.getpid()]


def test_what_a_killed_process_ran_ends_with_it(stand_in, cool_task, nvml, handle):
    child = os.fork()
    if not child:
        stand_in.launcher().start(cool_task).__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 60.0
    while stand_in.control.state().task is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stand_in.control.state().task is None
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_a_forked_child_has_a_line_of_its_own(nvml, handle, stand_in):
    child = os.fork()
    if not child:
        good = all(nvml.nvmlDeviceGetName(handle) == "NVIDIA H200" for _ in range(500))
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 345, 1005)
        os._exit(0 if good else 1)
    assert all(nvml.nvmlDeviceGetPowerUsage(handle) >= 0 for _ in range(500))
    assert os.waitpid(child, 0)[1] == 0
    call = stand_in.control.state().setters[0]
    assert call.process == child and stand_in.control.state().locked_core_mhz == (345, 1005)


def test_a_call_that_a_signal_interrupts_is_served_to_its_end_first(wall, monkeypatch):
    nvml = wall.use(monkeypatch)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    wall.control.fault("nvmlDeviceSetGpuLockedClocks", delay_s=1.0, times=1)
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 1005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert wall.control.state().locked_core_mhz == (210, 1005)
    nvml.nvmlDeviceResetGpuLockedClocks(handle)
    assert wall.control.state().untouched


def _interrupt(number, frame):
    raise KeyboardInterrupt


def test_a_slow_setter_of_a_killed_process_comes_before_the_next_setter(wall, monkeypatch):
    nvml = wall.use(monkeypatch)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    wall.control.fault("nvmlDeviceSetGpuLockedClocks", delay_s=1.0, times=1)
    calling, calls = os.pipe()
    child = os.fork()
    if not child:
        os.write(calls, b".")
        nvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 1005)
        os._exit(0)
    os.read(calling, 1)
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    nvml.nvmlDeviceResetGpuLockedClocks(handle)
    state = wall.control.state()
    assert [call.process for call in state.setters] == [child, os.getpid()] and state.untouched


def test_calls_are_quick(nvml, handle):
    def calls_per_s():
        began = time.process_time()  # what others do on the machine does not count
        for _ in range(2000):
            nvml.nvmlDeviceGetPowerUsage(handle)
        return 2000 / (time.process_time() - began)

    assert max(calls_per_s() for _ in range(3)) > 5000


def test_a_reset_makes_everything_new(nvml, handle, stand_in, cool_task):
    stand_in.control.run_task(cool_task)
    nvml.nvmlDeviceSetGpuLockedClocks(handle, 345, 1005)
    nvml.nvmlDeviceSetPersistenceMode(handle, 0)
    stand_in.control.advance(10.0)
    stand_in.control.fault("*", "UNKNOWN")
    stand_in.control.reset()
    state = stand_in.control.state()
    assert state.untouched and state.setters == () and state.task is None and state.now_s < 6.0
    assert nvml.nvmlDeviceGetPowerUsage(handle) > 0
