"""AMD GPUs, on a stand-in for ``libamd_smi.so`` under the real ``amdsmi``."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.stand_in import amd_functions
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.errors import BadInputError, ClocksRefusedError, MissingExtraError
from wastenot.core.setting import Setting
from wastenot.devices.amd import driver, smi
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import DriverError, GpuLostError, NoSuchGpuError, setter_of
from wastenot.devices.common.journal import Restore
from wastenot.devices.common.recovery import put_right
from wastenot.devices.open import open_gpu

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def servers():
    """Two MI300X; two dies of an MI250; an MI210, of which several memory clocks can be chosen."""
    with contextlib.ExitStack() as held:
        yield {
            name: held.enter_context(start_stand_in(name, gpus=2, seed=3, memory_lock=True))
            for name in ("mi300x", "mi250", "mi210")
        }


@pytest.fixture
def use(servers, monkeypatch, tmp_path):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    for name in ("WASTENOT_READ_ONLY", "WASTENOTD_SOCKET", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    def use(name):
        server = servers[name]
        server.control.reset()
        server.use(monkeypatch)
        return server

    return use


def opened(server, name="amd:1", place=0, **options):
    """HIP's order is the other way round: its second GPU is the stand-in's first."""
    return open_gpu(
        name, allow_clock_control=True, time_source=server.time(place), launcher=lambda _: server.launcher(place), **options
    )


def test_gpus_are_counted_as_hip_does_and_known_by_the_ids_of_pytorch(use):
    server = use("mi300x")
    assert driver.count() == 2 and driver.version() == "6.16.6"
    ids = [driver.unique_id(index) for index in range(2)]
    assert [server.control.request_place(one) for one in ids] == [1, 0]
    assert open_gpu(f"amd:{ids[0]}").identity.unique_id == ids[0]
    bare = ids[1].removeprefix("AMD-")
    seen = driver.examine(1, {bare: 5})
    assert (seen.torch_index, seen.architecture, seen.model) == (5, "CDNA 3", "AMD Instinct MI300X")
    for wrong in ("amd:2", "amd:AMD-0"):
        with pytest.raises(BadInputError, match="this machine has amd:0, amd:1"):
            open_gpu(wrong)
    with pytest.raises(NoSuchGpuError):
        setter_of("AMD-0")


def test_undoing_one_clock_keeps_the_other(use):
    server = use("mi210")
    clocks = opened(server).clocks
    clocks.request(Setting(1500.0, 5001.0, 200.0))
    state = server.control.state(0)
    assert (state.locked_core_mhz, state.locked_memory_mhz, state.power_limit_w) == ((0, 1500), (0, 5001), 200.0)
    clocks.request(Setting(1500.0, None, 200.0))
    state = server.control.state(0)
    assert (state.locked_core_mhz, state.locked_memory_mhz, state.power_limit_w) == ((0, 1500), None, 200.0)
    clocks.release()
    assert server.control.state(0).untouched and journal.journals() == ()


def test_a_limit_of_ones_own_is_set_again(use):
    server = use("mi210")
    clocks = opened(server, restore=Restore(core_mhz=(300.0, 1800.0))).clocks
    clocks.request(Setting(1200.0, 810.0))
    clocks.release()
    state = server.control.state(0)
    assert (state.locked_core_mhz, state.locked_memory_mhz) == ((300, 1800), None)


def test_the_second_die_is_not_measured_for_the_first_reports_both(use):
    server = use("mi250")
    assert opened(server, "amd:1").sensors.power_w() > 0.0
    with pytest.raises(BadInputError, match="the first reports those of both"):
        open_gpu("amd:0")
    assert setter_of(driver.unique_id(0)).power_limit_w() > 0.0  # its clocks can be set, and given back


@pytest.mark.parametrize("jump_j", [-50.0, 1e6])
def test_a_counter_that_cannot_be_right_is_told_once_and_not_used_again(use, monkeypatch, jump_j):
    device = opened(use("mi300x"))
    before_j = device.sensors.energy_j()
    real = smi.Smi.call

    def call(self, function, *arguments):
        found = real(self, function, *arguments)
        if function == "amdsmi_get_energy_count":
            found["energy_accumulator"] += round(jump_j / (1e-6 * amd_functions.TICK_UJ))
        return found

    monkeypatch.setattr(smi.Smi, "call", call)
    with pytest.raises(DriverError, match="which cannot be"):
        device.sensors.energy_j()
    assert before_j > 0.0 and device.sensors.energy_j() is None and device.sensors.power_w() > 0.0


def test_limits_that_hold_the_clock_down_are_counted(use):
    from wastenot.meters.tasks import find_tasks

    server = use("mi300x")
    device = opened(server)
    hot = max(find_tasks("gpt3-xl", "sim:mi300x").tasks, key=lambda task: task.steps[0][0].intensity)
    device.clocks.request(Setting(None, None, 300.0))
    device.sensors.throttled_s()
    with device.launcher.start(hot):
        device.time.sleep(5.0)
        held_s = device.sensors.throttled_s()
    device.clocks.release()
    assert held_s == pytest.approx(server.control.state(0).throttled_s, abs=0.05) and held_s > 1.0


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("NO_PERMISSION", ClocksRefusedError, "root"),
        ("NOT_SUPPORTED", ClocksRefusedError, "MI300X"),
        ("GPU_IS_LOST", GpuLostError, "no longer answers"),
    ],
)
def test_a_refused_power_limit_changes_nothing_and_says_why(use, error, kind, said):
    server = use("mi300x")
    device = opened(server)
    server.control.fault("amdsmi_set_power_cap", error, times=1)
    with pytest.raises(kind, match=said):
        device.clocks.request(Setting(1500.0, None, 400.0))
    device.clocks.release()
    server.control.clear_faults()
    put_right()
    assert server.control.state(0).untouched and journal.journals() == ()


@pytest.mark.parametrize("function", ["amdsmi_set_gpu_perf_level", "amdsmi_set_power_cap"])
def test_what_fails_to_be_undone_is_undone_by_the_next_command(use, function):
    server = use("mi210")
    device = opened(server)
    device.clocks.request(Setting(1500.0, 5001.0, 200.0))
    server.control.fault(function, "UNKNOWN")
    with pytest.raises(DriverError):
        device.clocks.release()
    assert not server.control.state(0).untouched and len(journal.journals()) == 1
    server.control.clear_faults()
    device.clocks.release()
    assert server.control.state(0).untouched and journal.journals() == ()


def test_nothing_is_changed_where_that_is_forbidden(use, monkeypatch):
    server = use("mi300x")
    device = opened(server)
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    with pytest.raises(ClocksRefusedError, match="WASTENOT_READ_ONLY"):
        device.clocks.request(Setting(1500.0))
    assert server.control.state(0).setters == ()


@pytest.mark.parametrize("part", ["timelines", "tracer"])
def test_what_counts_cycles_is_refused_with_the_reason_and_what_to_do_instead(use, part):
    with pytest.raises(BadInputError, match=r"amd:1: .*counting cycles with NVIDIA's instructions.*; sweep with clocks set"):
        getattr(opened(use("mi300x")), part)()


def test_without_the_library_one_line_says_so_and_nothing_is_printed(tmp_path):
    program = "from wastenot.devices.amd.smi import Smi\nSmi()"
    environment = {key: value for key, value in os.environ.items() if key not in ("ROCM_HOME", "ROCM_PATH")}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment | {"PYTHONPATH": str(ROOT / "src")}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout == "" and found.stderr.splitlines()[-1].startswith(MissingExtraError.__module__)
    assert "libamd_smi.so" in found.stderr.splitlines()[-1] and "sim: device" in found.stderr.splitlines()[-1]


@pytest.mark.slow
def test_sweep_plan_validate_and_apply(servers, tmp_path):
    server = servers["mi210"]
    server.control.reset()
    environment = server.environment(WASTENOT_STATE=str(tmp_path / "state"), WASTENOT_READ_ONLY="0")
    environment.pop("WASTENOTD_SOCKET", None)

    def run(*arguments, command=()):
        command = [sys.executable, "-m", "testbed.stand_in.program", *command, *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    def wastenot(*arguments):
        found = run(*arguments)
        assert found.returncode == 0, found.stderr
        return found

    text = wastenot("doctor", "--seconds", "0.01s").stdout
    assert text.startswith("2 × AMD Instinct MI210: its clocks can be set") and "--device amd:0 " in text
    sweep = ("--device", "amd:1", "--allow-clock-control", "--study", "my.db")
    text = wastenot("kernel", "sweep", "gpt3-small", "--core-step", "400", "--memory", "5001,9501", *sweep).stderr
    assert "to keep one set by amd-smi set" in text
    plan = json.loads(
        wastenot("kernel", "plan", "--study", "my.db", "--max-slowdown", "5%", "--out", "p.json", "--json").stdout
    )
    assert plan["headline"]["energy_change"] < -0.02
    text = wastenot(
        "kernel", "validate", "--study", "my.db", "--plan", "p.json", "--allow-clock-control", "--repeats", "3"
    ).stdout
    assert "is kept" in text
    for refused in (("kernel", "natural", "gpt3-small", *sweep[:2]), ("device", "latency", *sweep[:3])):
        found = run("--study", "other.db", command=refused)
        assert found.returncode == 2 and "counting cycles with NVIDIA's instructions" in found.stderr, found.stderr
    text = wastenot("apply", "p.json", "--device", "amd:1", "--dry-run").stdout
    assert "amd-smi" in text or "power limit" in text or "auto" in text
    assert server.control.state(0).untouched and server.control.state(1).untouched and server.control.state(0).setters


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root", "client", "both"])
def test_a_killed_process_leaves_nothing_changed(kind):
    from testbed.stand_in.kill_runs import main

    assert main(kind, 12, 5, "mi210")["left"] == 0


def test_the_processes_of_each_card_are_told(use):
    server = use("mi300x")
    server.control.foreign_process(4711, 2**30, 1)
    server.control.foreign_process(4712, 2**30, 1)
    assert sorted(driver.process_ids(0)) == [4711, 4712] and driver.process_ids(1) == ()  # by HIP's index, which differs
