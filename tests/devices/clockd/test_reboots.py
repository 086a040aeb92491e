"""The machine is started again: what was left before sets nothing, and what an administrator has set at boot stays."""

import shutil
import subprocess
import sys

import pytest

from benchmarks.safety import reboots
from testbed.daemon_process import Daemon
from testbed.stand_in.controlled import locks
from wastenot.core.setting import Setting
from wastenot.devices.common import journal
from wastenot.devices.common.daemon_connection import LeaseLostError
from wastenot.devices.nvidia.nvml import Nvml
from wastenot.devices.open import open_gpu

IN_ANOTHER_BOOT = """
import sys
from wastenot.devices.common import journal
journal.boot_id = lambda: "2593f150-aea7-4b16-964f-4c9e6ab70580"
from wastenot.devices.clockd.main import main
sys.exit(main())
"""
RESTORE = '[[allow]]\nusers = ["root"]\n[[restore]]\ncore_mhz = [0, 1500]\n'


@pytest.fixture
def rebooted(stand_in, daemon, tmp_path):
    """Kills a daemon that has changed clocks, with all its clients, and starts the next boot's."""
    later = Daemon(stand_in, tmp_path, (sys.executable, "-c", IN_ANOTHER_BOOT))

    def reboot(*, run_is_kept=True):
        daemon.start()
        client, gpu = daemon.connect(), stand_in.control.state().uuid
        for ask, fields in (("acquire", {}), ("set", {"core_mhz": 1200.0, "memory_mhz": 2201.0, "power_limit_w": 500.0})):
            assert "ok" in client.ask(ask, gpu=gpu, **fields)
        daemon.kill()
        assert client.reply() is None and len(journal.stale()) == 1
        stand_in.control.reset()
        nvml = Nvml(allow_changes=True)  # the administrator's script
        handle = nvml.call("nvmlDeviceGetHandleByIndex", 0)
        nvml.call("nvmlDeviceSetGpuLockedClocks", handle, 0, 1500)
        nvml.call("nvmlDeviceSetPowerManagementLimit", handle, 400_000)
        if not run_is_kept:
            shutil.rmtree(daemon.state)
            daemon.socket.unlink()
        return later.start(RESTORE)

    yield reboot
    later.stop()


@pytest.mark.parametrize("run_is_kept", [True, False])
def test_after_a_reboot_nothing_is_set_and_nobody_has_a_lease(stand_in, rebooted, run_is_kept):
    daemon, gpu = rebooted(run_is_kept=run_is_kept), stand_in.control.state().uuid
    assert len(stand_in.control.state().setters) == 2 and locks(stand_in) == ((0, 1500), None, 400.0)  # by the script
    assert journal.journals() == () and ("forgotten gpu=" in daemon.said()) is run_is_kept
    client = daemon.connect()
    assert client.ask("status")["ok"] == {"leases": {}}
    assert client.ask("set", gpu=gpu, core_mhz=1200.0)["error"] == "lost"


def test_after_a_reboot_a_client_gives_back_what_the_administrator_has_set(stand_in, rebooted):
    rebooted()
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    clocks.request(Setting(1200.0, 2201.0, 500.0))
    assert locks(stand_in)[0][1] == 1200 and locks(stand_in)[1:] == ((2201, 2201), 500.0)
    clocks.release()
    assert locks(stand_in) == ((0, 1500), None, 400.0)


def test_a_client_that_lived_through_it_is_told_that_its_lease_is_gone(stand_in, daemon, rebooted):
    daemon.start()
    clocks = open_gpu("nvidia:1", allow_clock_control=True).clocks
    clocks.request(Setting(1200.0))
    daemon.stop()
    rebooted()
    with pytest.raises(LeaseLostError):
        clocks.request(Setting(1305.0))
    assert locks(stand_in, 1) == (None, None, 700.0)


@pytest.mark.slow
def test_reboots_at_random_moments_leave_nothing_behind():
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")
    found = reboots.main(25)
    assert found.failed == [] and found.numbers["journals_found"] > 0 and found.numbers["changed_when_killed"] > 10
