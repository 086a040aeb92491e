"""Clocks set through wastenotd, by the same code that sets them directly."""

import os

import pytest

from testbed.daemon_process import until
from testbed.stand_in.library import SOCKET_VARIABLE
from testbed.stand_in.program import on_stand_in
from wastenot.cli.main import run as wastenot
from wastenot.core.errors import BadInputError, ClocksRefusedError, DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.common import journal
from wastenot.devices.common.daemon_clocks import DaemonClocks
from wastenot.devices.open import open_gpu
from wastenot.terminal.options import ClockControlOptions

CLEAN = (None, None, 700.0)


def locks(stand_in, index=0):
    state = stand_in.control.state(index)
    return state.locked_core_mhz, state.locked_memory_mhz, state.power_limit_w


def controlled(name="nvidia:0", **options):
    return open_gpu(name, allow_clock_control=True, **options)


def test_a_setting_is_set_and_given_back(stand_in, daemon):
    daemon.start()
    clocks = controlled().clocks
    assert isinstance(clocks, DaemonClocks) and clocks.refusal() is None
    assert max(clocks.supported_clocks()[3201.0]) == 1980.0 and clocks.power_limits_w() == (200.0, 700.0)
    clocks.request(Setting(1200.0, 2201.0, 500.0))
    assert locks(stand_in) == ((345, 1200), (2201, 2201), 500.0)
    (held,) = journal.journals()
    assert held.owner_alive and held.holder.through_daemon
    clocks.request(AUTO)
    assert locks(stand_in) == CLEAN and journal.journals() == ()


def test_a_claim_keeps_others_out_and_auto_is_the_drivers_own_choice(stand_in, daemon):
    daemon.start()
    clocks, other, said = controlled().clocks, controlled().clocks, []
    clocks.on_change, clocks.on_interrupt = lambda: said.append("changed"), lambda: said.append("reset")
    with pytest.raises(KeyboardInterrupt), clocks.claimed():
        with pytest.raises(DeviceError, match=r"process .* through wastenotd.* controls the clocks"):
            other.request(Setting(1200.0))
        assert "controls its clocks" in other.refusal() and clocks.refusal() is None
        assert said == [] and locks(stand_in) == CLEAN
        clocks.request(Setting(1200.0))
        clocks.request(Setting(1305.0))
        clocks.release()
        assert locks(stand_in) == CLEAN and journal.journals() and said == ["changed"]
        raise KeyboardInterrupt
    assert said == ["changed", "reset"] and journal.journals() == ()
    other.request(Setting(1200.0))
    other.release()
    assert locks(stand_in) == CLEAN


def test_what_the_gpu_does_not_have_is_refused(stand_in, daemon):
    daemon.start()
    clocks = controlled().clocks
    with pytest.raises(ClocksRefusedError, match="no core clock of 1201 MHz"):
        clocks.request(Setting(1201.0))
    assert until(lambda: locks(stand_in) == CLEAN and journal.journals() == ())
    clocks.request(Setting(1200.0))
    clocks.release()


def test_restoring_is_the_policys(daemon):
    daemon.start()
    with pytest.raises(BadInputError, match="restore_clocks"):
        controlled(restore=journal.Restore((345.0, 1500.0)))


BOUNDED = f"""
[[allow]]
users = [{os.getuid()}]
gpus = [0]
core_mhz = [900, 1500]
memory_mhz = false
power_limit_w = [100, 650]
[[restore]]
core_mhz = [0, 1500]
"""


def test_what_may_be_set_is_what_the_policy_and_the_gpu_allow(stand_in, daemon):
    daemon.start(BOUNDED)
    clocks = controlled().clocks
    [(memory, cores)] = clocks.supported_clocks().items()  # the one under load
    assert memory == 3201.0 and (min(cores), max(cores)) == (900.0, 1500.0)
    assert clocks.power_limits_w() == (200.0, 650.0) and clocks.outcome() == "locked to 0-1500 MHz by wastenotd"
    with pytest.raises(ClocksRefusedError, match="does not let you set its memory clock"):
        clocks.request(Setting(1200.0, 3201.0))
    assert locks(stand_in) == CLEAN
    clocks.request(Setting(1200.0, None, 650.0))
    assert locks(stand_in) == ((345, 1200), None, 650.0)
    clocks.release()
    assert locks(stand_in) == ((0, 1500), None, 700.0)
    other = controlled("nvidia:1").clocks
    assert other.power_limits_w() is None and other.supported_clocks() == {3201.0: ()} and "does not let" in other.refusal()


def test_verbs_say_what_becomes_of_the_clocks(stand_in, daemon, capsys):
    daemon.start(BOUNDED)
    opened = ClockControlOptions(allow_clock_control=True).open_device("nvidia:0", seed=0, workload=None)
    opened.clocks.request(Setting(1200.0))
    assert capsys.readouterr().err == "nvidia:0: afterwards the clocks are locked to 0-1500 MHz by wastenotd\n"
    opened.clocks.release()


def test_doctor_says_that_a_daemon_sets_them(stand_in, daemon, monkeypatch, capsys):
    daemon.start(BOUNDED)
    for name, value in {"STAND_IN_USER": "1", "COLUMNS": "80", SOCKET_VARIABLE: stand_in.socket}.items():
        monkeypatch.setenv(name, value)
    with on_stand_in():
        assert wastenot(["doctor", "--seconds", "0.05s"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"set clocks through wastenotd ({daemon.socket}), 1 GPU" in said.replace("- ", "-")
    assert "its clocks can be set, through wastenotd" in said and "no: the policy of wastenotd does not allow it" in said
    assert "as far as the policy of wastenotd allows" in said
