"""Clocks set through wastenotd, by the same code that sets them directly."""

import pytest

from tests.daemon.conftest import until
from wastenot.devices.nvidia import journal
from wastenot.devices.nvidia.daemon_clocks import DaemonClocks
from wastenot.devices.nvidia.device import open_nvidia
from wastenot.errors import BadInputError, ClocksRefusedError, DeviceError
from wastenot.setting import AUTO, Setting

CLEAN = (None, None, 700.0)


def locks(stand_in, index=0):
    state = stand_in.control.state(index)
    return state.locked_core_mhz, state.locked_memory_mhz, state.power_limit_w


def controlled(name="nvidia:0", **options):
    return open_nvidia(name, allow_clock_control=True, **options)


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
