"""NVIDIA GPUs, on a stand-in for NVML: what is read, what is refused, and that clocks are always given back."""

import json
import signal
import subprocess
import sys

import pytest

from testbed.stand_in import kill_runs
from testbed.stand_in.controlled import PROGRAM, controlled, locks
from wastenot.cli.main import run as run_command
from wastenot.core.errors import BadInputError, CannotRunError, ClocksRefusedError, DeviceError
from wastenot.core.processes import boot_id
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import DriverError, GpuLostError, ReadOnlyError
from wastenot.devices.nvidia.nvml import Nvml
from wastenot.devices.open import open_device
from wastenot.meters.tasks import find_tasks
from wastenot.sweeping.grid import settable
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.terminal.options import ClockControlOptions


@pytest.fixture
def device(stand_in):
    device = controlled(stand_in)
    yield device
    stand_in.control.clear_faults()
    device.clocks.release()


CLEAN = (None, None, 700.0)
TASK = find_tasks("gpt3-xl", "sim:h200").tasks[2]


# ---- reading ----------------------------------------------------------------------------------------------------


def test_numbers_of_two_cards_have_two_labels(stand_in):
    first, second = (open_device(f"nvidia:{index}").identity for index in (0, 1))
    assert first.label != second.label and first.unique_id in first.label and first.model in first.label
    assert open_device(f"nvidia:{second.unique_id}").identity.label == second.label


def test_sensors_speak_si_units(stand_in, device):
    with device.launcher.start(TASK):
        device.time.sleep(3.0)
        truth, sensors = stand_in.control.state(0), device.sensors
        assert sensors.energy_j() == pytest.approx(truth.energy_j, rel=0.1)
        assert sensors.power_w() == pytest.approx(700.0, rel=0.1)
        assert sensors.memory_power_w() is None or 20.0 < sensors.memory_power_w() < 400.0
        assert sensors.clocks().core_mhz == pytest.approx(truth.in_effect_mhz[0], abs=20.0)
        assert sensors.temperature_c() == pytest.approx(truth.temperature_c, abs=1.0)
        assert sensors.throttled_s() == pytest.approx(truth.throttled_s, abs=0.2)


@pytest.mark.parametrize("name", ["energy_j", "power_w", "memory_power_w", "temperature_c", "throttled_s", "processes"])
def test_a_sensor_that_cannot_be_read_is_absent(stand_in, device, name):
    stand_in.control.fault("nvmlDeviceGet*", "NOT_SUPPORTED")
    assert getattr(device.sensors, name)() is None


def test_a_lost_gpu_is_not_an_absent_value(stand_in, device):
    stand_in.control.gpu_lost(0)
    with pytest.raises(GpuLostError, match="no longer answers"):
        device.sensors.power_w()


@pytest.mark.parametrize("name", ["nvidia:7", "nvidia:GPU-none", "nvidia:-1", "nvidia:x"])
def test_a_gpu_that_is_not_there_is_named_with_those_that_are(stand_in, name):
    with pytest.raises(BadInputError, match="nvidia:0, nvidia:1"):
        open_device(name)


def test_slices_are_refused(stand_in):
    stand_in.control.mig(True)
    try:
        with pytest.raises(BadInputError, match="MIG"):
            open_device("nvidia:0")
    finally:
        stand_in.control.mig(False)


def test_without_a_driver_one_line_says_so(stand_in):
    stand_in.control.fault("nvmlInit", "DRIVER_NOT_LOADED")
    with pytest.raises(DriverError, match="driver is not loaded"):
        open_device("nvidia:0")


@pytest.mark.parametrize(
    ("function", "error", "code"),
    [
        ("nvmlInit", "DRIVER_NOT_LOADED", 1),
        ("nvmlInit", "LIBRARY_NOT_FOUND", 2),  # software that is not installed
        ("nvmlInit", "LIB_RM_VERSION_MISMATCH", 1),
        ("nvmlDeviceGetHandleByIndex", "GPU_IS_LOST", 1),
        ("nvmlDeviceGetHandleByIndex", "UNKNOWN", 1),
        ("nvmlDeviceGetHandleByIndex", "INVALID_ARGUMENT", 2),  # no such GPU
        ("nvmlDeviceGetUUID", "TIMEOUT", 1),
        ("nvmlDeviceGetFieldValues", "UNKNOWN", 1),
        ("nvmlDeviceGetMigMode", "DRIVER_NOT_LOADED", 1),
    ],
)
def test_a_driver_that_fails_exits_with_1_and_bad_input_with_2(stand_in, tmp_path, capsys, function, error, code):
    stand_in.control.fault(function, error)
    arguments = ["gpt3-small", "--device", "nvidia:0", "--clocks", "auto", "--study", str(tmp_path / "s.db")]
    assert run_command(["kernel", "sweep", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "UNKNOWN", "TIMEOUT", "DRIVER_NOT_LOADED"])
def test_a_reading_that_fails_is_not_taken_for_one_that_is_absent(stand_in, device, error):
    stand_in.control.fault("nvmlDeviceGetTemperature", error, times=1)
    with pytest.raises(DriverError):
        device.sensors.temperature_c()
    assert device.sensors.temperature_c() is not None
    stand_in.control.fault("nvmlDeviceGetTemperature", "NOT_SUPPORTED", times=1)
    assert device.sensors.temperature_c() is None


def test_another_process_on_the_gpu_is_said(stand_in, device):
    quick = PointOptions(0.5, 1.0)
    assert "another process used the GPU" not in measure_point(device, TASK, AUTO, quick).flags
    stand_in.control.foreign_process(1, 2**30)
    stand_in.control.foreign_process(2, 2**30)
    assert "another process used the GPU" in measure_point(device, TASK, AUTO, quick).flags


# ---- the guard --------------------------------------------------------------------------------------------------


def setters(library):
    return [name for name in vars(library) if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear"))]


@pytest.mark.parametrize("allowed", [False, True])
def test_nothing_that_changes_a_gpu_gets_through_when_it_is_forbidden(stand_in, monkeypatch, allowed):
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    nvml = Nvml(allow_changes=allowed)
    assert len(setters(nvml.library)) > 30
    for name in setters(nvml.library):
        with pytest.raises(ReadOnlyError):
            nvml.call(name, None)
    assert stand_in.control.state(0).setters == ()


def test_clocks_stay_as_they_are_unless_they_may_be_touched(stand_in, monkeypatch):
    device = open_device("nvidia:0")
    with pytest.raises(ClocksRefusedError, match="allow_clock_control"):
        device.clocks.request(Setting(1500.0, 3201.0))
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    with pytest.raises(ClocksRefusedError, match="WASTENOT_READ_ONLY=1"):
        controlled(stand_in).clocks.request(Setting(1500.0, 3201.0))
    device.clocks.request(AUTO)
    device.clocks.release()
    assert stand_in.control.state(0).setters == () and journal.journals() == ()


# ---- clocks -----------------------------------------------------------------------------------------------------


def test_a_setting_is_a_ceiling_and_all_of_it_comes_back(stand_in, device):
    device.clocks.request(Setting(1500.0, 2201.0, 500.0))
    assert locks(stand_in) == ((345, 1500), (2201, 2201), 500.0)
    assert len(journal.journals()) == 1
    device.clocks.request(Setting(1200.0))
    assert locks(stand_in) == ((345, 1200), None, 700.0)
    device.clocks.release()
    assert locks(stand_in) == CLEAN and journal.journals() == ()


def test_locked_clocks_that_were_named_come_back(stand_in):
    device = controlled(stand_in, restore=journal.Restore((345.0, 1605.0)))
    device.clocks.request(Setting(1500.0, 2201.0))
    device.clocks.release()
    assert locks(stand_in) == ((345, 1605), None, 700.0)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("NO_PERMISSION", "CAP_SYS_ADMIN|SYS_ADMIN"),
        ("NOT_SUPPORTED", "does not support"),
        ("UNKNOWN", "Unknown"),
        ("LIBRARY_NOT_FOUND", "no NVIDIA driver"),
    ],
)
@pytest.mark.parametrize("function", ["nvmlDeviceSetGpuLockedClocks", "nvmlDeviceSetMemoryLockedClocks"])
def test_a_refusal_leaves_nothing_behind(stand_in, device, function, error, text):
    stand_in.control.fault(function, error)
    with pytest.raises(DeviceError, match=text):
        device.clocks.request(Setting(1500.0, 2201.0))
    assert locks(stand_in) == CLEAN and journal.journals() == ()


def test_clocks_that_take_effect_although_the_driver_says_no_come_back(stand_in, device):
    stand_in.control.fault("nvmlDeviceSetGpuLockedClocks", "UNKNOWN", takes_effect=True, times=1)
    with pytest.raises(DriverError):
        device.clocks.request(Setting(1500.0))
    assert locks(stand_in) == CLEAN and journal.journals() == ()


def test_memory_clocks_that_cannot_be_set_are_left_out_of_a_sweep(stand_in, device):
    stand_in.control.fault("nvmlDeviceSetMemoryLockedClocks", "NOT_SUPPORTED")
    wanted = [Setting(1500.0, 3201.0), Setting(1200.0, 3201.0), Setting(1500.0, 2201.0)]
    assert settable(device, wanted) == (Setting(1500.0), Setting(1200.0))
    assert locks(stand_in) == CLEAN


def test_a_power_limit_is_a_setting_that_holds_and_comes_back(stand_in, device):
    heavy = next(task for task in find_tasks("gpt3-xl", "sim:h200").tasks if "gemm" in task.name)
    found = measure_point(device, heavy, Setting(power_limit_w=400.0), PointOptions(1.0, 1.0))
    assert locks(stand_in) == (None, None, 400.0)
    assert found.energy_j / found.time_s == pytest.approx(400.0, rel=0.03)
    device.clocks.release()
    assert locks(stand_in) == CLEAN


def test_a_clock_that_never_arrives_is_flagged(stand_in, device):
    stand_in.control.clock_never_arrives()
    cool = find_tasks("gpt3-xl", "sim:h200").tasks[0]
    found = measure_point(device, cool, Setting(900.0, 3201.0), PointOptions(0.5, 1.0))
    assert found.effective_core_mhz > 1000.0 and "core clock above what was asked for" in found.flags


def test_a_second_lease_of_the_same_gpu_is_refused(stand_in, device):
    device.clocks.request(Setting(1500.0))
    with pytest.raises(DeviceError, match="controls the clocks of this GPU"):
        controlled(stand_in).clocks.request(Setting(1200.0))
    assert locks(stand_in)[0] == (345, 1500)


def test_a_lost_gpu_keeps_its_journal_until_it_can_be_put_right(stand_in, device):
    device.clocks.request(Setting(1500.0))
    stand_in.control.gpu_lost(0)
    with pytest.raises(GpuLostError):
        device.clocks.release()
    assert len(journal.journals()) == 1
    stand_in.control.clear_faults()
    device.clocks.release()
    assert locks(stand_in) == CLEAN and journal.journals() == ()


REFUSALS = ("INVALID_ARGUMENT", "FUNCTION_NOT_FOUND", "NOT_SUPPORTED", "UNKNOWN")


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize(
    ("setting", "undone_by"),
    [(Setting(1500.0), "ResetGpuLockedClocks"), (Setting(None, 2201.0), "ResetMemoryLockedClocks"),
     (Setting(power_limit_w=400.0), "SetPowerManagementLimit")],
)  # fmt: skip
def test_an_undo_that_is_refused_is_told_and_stays_in_the_journal(stand_in, device, setting, undone_by, error):
    device.clocks.request(setting)
    stand_in.control.fault(f"nvmlDevice{undone_by}", error=error)
    with pytest.raises(DeviceError, match=undone_by):
        device.clocks.release()
    (left,) = journal.journals()
    assert locks(stand_in) != CLEAN and undone_by in left.failed
    stand_in.control.clear_faults()
    device.clocks.release()
    assert locks(stand_in) == CLEAN and journal.journals() == ()


@pytest.mark.parametrize("error", REFUSALS)
def test_what_a_dead_process_changed_is_not_forgotten_where_the_driver_refuses_to_undo_it(stand_in, tmp_path, error):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end="time.sleep(60)")], env=stand_in.environment(), stdout=subprocess.PIPE
    )
    assert program.stdout.readline() == b"changed\n"
    program.kill()
    program.wait()
    stand_in.control.fault("nvmlDeviceResetGpuLockedClocks", error=error)
    with pytest.raises(DeviceError, match="ResetGpuLockedClocks"):
        open_device("nvidia:0")
    (left,) = journal.journals()
    assert locks(stand_in) == ((345, 1500), None, 700.0) and "ResetGpuLockedClocks" in left.failed
    stand_in.control.clear_faults()
    open_device("nvidia:0")
    assert locks(stand_in) == CLEAN and journal.journals() == ()


def test_a_power_limit_that_cannot_be_read_is_not_changed(stand_in, device):
    stand_in.control.fault("nvmlDeviceGetPowerManagementLimit", error="NOT_SUPPORTED")
    with pytest.raises(ClocksRefusedError, match="power limit cannot be read"):
        device.clocks.request(Setting(1500.0, None, 400.0))
    assert stand_in.control.state(0).setters == () and journal.journals() == ()
    device.clocks.request(Setting(1500.0))
    device.clocks.release()
    assert locks(stand_in) == CLEAN


# ---- however it ends --------------------------------------------------------------------------------------------

ENDS = {
    "the end of the program": ("", None, 0),
    "an exception": ("raise ValueError('x')", None, 1),
    "sys.exit": ("sys.exit(3)", None, 3),
    "Ctrl-C": ("time.sleep(60)", signal.SIGINT, None),
    "SIGTERM": ("time.sleep(60)", signal.SIGTERM, 128 + signal.SIGTERM),
    "SIGHUP": ("time.sleep(60)", signal.SIGHUP, 128 + signal.SIGHUP),
    "a fork that ends": ("if os.fork() == 0: sys.exit(0)\nos.wait(); time.sleep(0.1)", None, 0),
}


@pytest.mark.parametrize("how", ENDS)
def test_clocks_are_given_back_at(stand_in, tmp_path, how):
    end, number, code = ENDS[how]
    environment = stand_in.environment(WASTENOT_STATE=str(tmp_path))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end=end)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert program.stdout.readline() == b"changed\n"
    if number is not None:
        assert locks(stand_in) == ((345, 1500), (2201, 2201), 500.0)
        program.send_signal(number)
    left = program.wait(timeout=300)
    assert code is None or left == code
    assert locks(stand_in) == CLEAN
    assert list(tmp_path.glob("*.json*")) == []


def test_after_sigkill_the_next_command_puts_it_right(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end="time.sleep(60)")], env=stand_in.environment(), stdout=subprocess.PIPE
    )
    assert program.stdout.readline() == b"changed\n"
    program.kill()
    program.wait()
    assert locks(stand_in) != CLEAN
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")  # forbidden: it is said, not done
    open_device("nvidia:0")
    assert locks(stand_in) != CLEAN and len(journal.stale()) == 1
    monkeypatch.delenv("WASTENOT_READ_ONLY")
    open_device("nvidia:0")
    assert locks(stand_in) == CLEAN and journal.journals() == ()


def test_what_an_earlier_version_left_changed_is_put_right(stand_in, tmp_path):
    nvml, uuid = Nvml(allow_changes=True), stand_in.control.state().uuid
    nvml.call("nvmlDeviceSetGpuLockedClocks", nvml.call("nvmlDeviceGetHandleByIndex", 0), 345, 1200)
    folder = tmp_path / "state"
    folder.mkdir()
    # As it was written when NVIDIA's package had the journal to itself.
    left = (
        f'{{"schema": "wastenot.clocks/2", "uuid": "{uuid}", "restore": {{"core_mhz": [345.0, 1500.0], "memory_mhz": null, '
        '"power_limit_w": 650.0}, "process": 30763, "user": 0, "started": "5199632", '
        f'"boot": "{boot_id()}", "space": "2593f150-aea7-4b16-964f-4c9e6ab70580 pid:[4026531836]"}}'
    )
    (folder / f"{uuid}.json").write_text(left)
    assert len(journal.stale()) == 1
    open_device("nvidia:0")
    assert locks(stand_in) == ((345, 1500), None, 650.0) and journal.journals() == ()


@pytest.mark.parametrize("kills", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_kills_leave_nothing_behind(kills):
    counts = kill_runs.main("root", kills)
    assert counts["kills"] == kills and counts["left"] == 0
    assert counts["clocks_changed"] >= kills / 5  # or nothing was tried


# ---- verbs ------------------------------------------------------------------------------------------------------


def test_doctor_says_what_can_be_done(wastenot):
    found = json.loads(wastenot("doctor", "--json", "--seconds", "0.2s").stdout)
    assert [gpu["name"] for gpu in found["gpus"]] == ["nvidia:0", "nvidia:1"] and found["problem"] is None
    assert found["gpus"][0]["clocks"]["3201.0"] == [345.0, 1980.0, 110]
    text = wastenot("doctor", "--seconds", "0.1s").stdout
    assert "energy counter" in text and "inferred" in text


def test_reset_restores_clocks_and_doctor_reports_them_before(stand_in, wastenot):
    kill = PROGRAM.format(end="os.kill(os.getpid(), 9)")
    subprocess.run(
        [sys.executable, "-c", kill],
        check=False,
        env=stand_in.environment(),
        stdout=subprocess.DEVNULL,
    )
    assert "were left changed by process" in " ".join(wastenot("doctor", "--seconds", "0.1s").stdout.split())
    assert locks(stand_in) != CLEAN
    done = wastenot("device", "reset")
    assert done.returncode == 0 and "its clocks are reset" in done.stderr and locks(stand_in) == CLEAN
    assert "nothing to reset" in wastenot("device", "reset").stderr


def test_a_claim_keeps_others_out_at_the_default_clocks_too(stand_in, device):
    said = []
    device.clocks.on_change, device.clocks.on_interrupt = lambda: said.append("changed"), lambda: said.append("reset")
    with pytest.raises(KeyboardInterrupt), device.clocks.claimed():
        other = controlled(stand_in)
        with pytest.raises(DeviceError, match="controls the clocks"):
            other.clocks.request(Setting(1200.0))
        assert said == [] and locks(stand_in) == CLEAN
        for clock in (1200.0, 1305.0):
            device.clocks.request(Setting(clock))
        device.clocks.release()
        assert locks(stand_in) == CLEAN and journal.journals() and said == ["changed"]
        raise KeyboardInterrupt
    assert said == ["changed", "reset"] and not journal.journals()


def test_auto_within_a_claim_is_the_drivers_own_choice_whatever_was_locked_before(stand_in):
    controlled(stand_in)
    nvml = Nvml(allow_changes=True)
    nvml.call("nvmlDeviceSetGpuLockedClocks", nvml.call("nvmlDeviceGetHandleByIndex", 0), 345, 1500)
    device = controlled(stand_in, restore=journal.Restore((345.0, 1500.0)))
    with device.clocks.claimed():
        assert locks(stand_in)[0] == (345, 1500)
        device.clocks.request(AUTO)
        assert locks(stand_in) == CLEAN
        device.clocks.request(Setting(1200.0))
        device.clocks.request(AUTO)
        assert locks(stand_in) == CLEAN
        device.clocks.request(Setting(None, 2201.0))
        assert locks(stand_in)[0] is None
    assert locks(stand_in) == ((345, 1500), None, 700.0) and not journal.journals()


def test_who_may_not_reset_clocks_can_still_measure_at_auto(stand_in, device):
    for name in ("Gpu", "Memory"):
        stand_in.control.fault(f"nvmlDeviceReset{name}LockedClocks", error="NO_PERMISSION")
    with device.clocks.claimed():
        device.clocks.request(AUTO)
    assert locks(stand_in) == CLEAN and not journal.journals()


@pytest.mark.parametrize("named", [None, "0-1500"])
def test_what_becomes_of_the_clocks_is_said_once_they_are_changed(stand_in, named, capsys):
    opened = ClockControlOptions(allow_clock_control=True, restore_clocks=named).open_device(
        "nvidia:0", seed=0, workload=None
    )
    assert capsys.readouterr().err == ""
    opened.clocks.request(Setting(1200.0))
    said = capsys.readouterr().err
    opened.clocks.release()
    if named is None:
        assert "reset to the driver's defaults" in said and "--restore-clocks 0-1500" in said and locks(stand_in) == CLEAN
    else:
        assert "are locked to 0-1500 MHz\n" in said and "power" not in said
        assert locks(stand_in)[0] == (0, 1500)


def test_a_sweep_of_settings_is_refused_at_once_without_permission(wastenot, tmp_path):
    done = wastenot("kernel", "sweep", "gpt3-xl", "--device", "nvidia:0", "--study", "s.db")
    assert done.returncode == 2 and "--allow-clock-control" in done.stderr and "--clocks auto" in done.stderr
    assert not (tmp_path / "s.db").exists()


def test_a_task_without_a_gpu_for_it_is_one_clear_line(wastenot):
    done = wastenot("kernel", "sweep", "gpt3-xl", "--device", "nvidia:0", "--clocks", "auto", "--study", "s.db")
    assert done.returncode in (1, 2) and done.stderr.startswith("error:") and "torch" in done.stderr.lower()
    assert issubclass(CannotRunError, DeviceError)
