"""The command itself, on servers under simulated load whose GPUs are those of the stand-in for NVML."""

import signal

from tests.support.live_control import clean, server_under_load, until


def test_clocks_follow_the_load_and_are_given_back(stand_in, controller):
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3")
        clock = control.wait_for_clock()
        assert clock["core_mhz"] < 1980.0 and not clock["dry_run"]
        assert stand_in.control.state(0).locked_core_mhz[1] == clock["core_mhz"]
        assert control.end() == 128 + signal.SIGTERM
    assert clean(stand_in)


def test_nothing_is_set_unless_allowed(stand_in, controller):
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3", allow=False)
        assert control.wait_for_clock()["dry_run"]
        assert clean(stand_in) and not stand_in.control.state(0).setters
        control.end(signal.SIGINT)


def test_a_controller_that_is_killed_leaves_no_clock_changed(stand_in, controller):
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3")
        control.wait_for_clock()
        assert not clean(stand_in)
        control.process.kill()
        control.process.wait()
        assert until(lambda: clean(stand_in))  # by the child that outlives it: no other command has run


def test_the_environment_may_forbid_it(stand_in, controller):
    control = controller("--instance", "http://127.0.0.1:1=nvidia:0", WASTENOT_READ_ONLY="1")
    assert control.process.wait(60.0) == 2
    assert "WASTENOT_READ_ONLY" in control.process.stderr.read()
    assert clean(stand_in)
