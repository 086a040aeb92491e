"""The command itself, on servers under simulated load whose GPUs are those of the stand-in for NVML."""

import signal

import pytest

from testbed.live_control import ENGINE, ask, clean, server_under_load, until
from testbed.stand_in.program import on_stand_in
from wastenot.cli.main import run as wastenot

LOW_MHZ = 1000.0
"""Above the clock that a few requests a second need, and below that of many."""


@pytest.mark.slow
def test_clocks_rise_with_the_load_and_stay_up_while_it_lasts(stand_in, controller):
    with server_under_load(stand_in, rate=4.0) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3s", "--assumed-clocks")

        def wait_for_clock(low):
            while True:
                event = control.wait_for("clock")
                if (event["core_mhz"] is not None and event["core_mhz"] < LOW_MHZ) == low:
                    return event

        def locked_low():
            locked = stand_in.control.state(0).locked_core_mhz
            return locked is not None and locked[1] < LOW_MHZ

        def come():
            name = "vllm:time_to_first_token_seconds_count"
            return next(float(line.split()[-1]) for line in ask(port, "metrics").splitlines() if line.startswith(name))

        wait_for_clock(low=True)
        assert until(locked_low)
        before = come()
        ask(port, "load?rate=50")
        wait_for_clock(low=False)
        assert until(lambda: come() > before + 600, seconds=120.0)
        assert not locked_low()
        assert control.end() == 128 + signal.SIGTERM
    assert clean(stand_in)


@pytest.mark.slow  # test_instances.py looks at a dry run inside the process
def test_nothing_is_set_unless_allowed(stand_in, controller):
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3s", allow=False)
        assert control.wait_for_clock()["dry_run"]
        assert clean(stand_in) and not stand_in.control.state(0).setters
        control.end(signal.SIGINT)


def test_clocks_follow_the_load_and_a_controller_that_is_killed_leaves_none_changed(stand_in, controller):
    """One that ends in order gives them back too: test_live_failures.py ends it so."""
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3s")
        clock = control.wait_for_clock()
        assert clock["core_mhz"] < 1980.0 and not clock["dry_run"]
        assert stand_in.control.state(0).locked_core_mhz[1] == clock["core_mhz"]
        assert not clean(stand_in)
        control.process.kill()
        control.process.wait()
        assert until(lambda: clean(stand_in))  # by the child that outlives it: no other command has run


def test_the_environment_may_forbid_it(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    with on_stand_in():
        instance = ("--instance", "http://127.0.0.1:1=nvidia:0")
        assert wastenot(["serve", "control", str(ENGINE), *instance, "--allow-clock-control"]) == 2
    assert "WASTENOT_READ_ONLY" in capsys.readouterr().err
    assert clean(stand_in)
