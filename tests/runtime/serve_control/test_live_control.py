"""The command itself, on servers under simulated load whose GPUs are those of the stand-in for NVML."""

import signal
import time

from tests.support.live_control import ask, clean, server_under_load, until


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


def test_servers_that_die_or_freeze_or_talk_nonsense_are_left_to_the_driver(stand_in, controller):
    with server_under_load(stand_in, 0) as (process, first), server_under_load(stand_in, 1) as (_, second):
        servers = {f"http://127.0.0.1:{port}": gpu for gpu, port in enumerate((first, second))}
        control = controller(
            *(part for url, gpu in servers.items() for part in ("--instance", f"{url}=nvidia:{gpu}")), "--period", "0.3"
        )
        for _ in servers:
            assert until(lambda: all(stand_in.control.state(gpu).locked_core_mhz for gpu in range(2)), 60.0)
        process.kill()
        ask(second, "say?freeze=1")
        failed_s = time.monotonic()
        events = {event["instance"]: event for event in (control.wait_for("default"), control.wait_for("default"))}
        assert events.keys() == servers.keys()
        assert until(lambda: not any(stand_in.control.state(gpu).locked_core_mhz for gpu in range(2)))
        assert 7.0 < time.monotonic() - failed_s < 20.0  # 8 s, and as much again as a busy machine may take
        urls = list(servers)
        assert "no metrics for" in events[urls[0]]["why"] and "have not moved" in events[urls[1]]["why"]

        ask(second, "say")  # as before
        assert control.wait_for("controlled")["instance"] == urls[1]
        assert until(lambda: stand_in.control.state(1).locked_core_mhz is not None)
        ask(second, "say?nan=1")
        assert "is nan" in control.wait_for("default")["why"]
        assert until(lambda: stand_in.control.state(1).locked_core_mhz is None)
        ask(second, "say")
        control.wait_for("controlled")
    with server_under_load(stand_in, 1, port=second):  # in the same place, within the time that readings may be old
        assert "began anew" in control.wait_for("default")["why"]
        assert control.wait_for("controlled")["instance"] == urls[1]
    assert control.end() == 128 + signal.SIGTERM
    assert clean(stand_in)
    kinds = [(event["event"], event["instance"]) for event in control.events]
    assert kinds.count(("default", urls[0])) == 1  # said once


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
