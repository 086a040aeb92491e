"""Servers that fail in one way or another while their clocks are controlled."""

import signal
import time

import pytest

from testbed.live_control import ask, clean, server_under_load, until


def freeze_at_work(port):
    """Freeze what a server tells at a moment at which it has requests: one that has none may stand still."""
    while True:
        ask(port, "say?freeze=1")
        told = dict(
            line.rsplit(" ", 1) for line in ask(port, "metrics").splitlines() if line.startswith("vllm:num_requests_running")
        )
        if any(float(running) for running in told.values()):
            return
        ask(port, "say")


@pytest.mark.slow  # it waits for readings to grow old
def test_servers_that_die_or_freeze_or_talk_nonsense_are_left_to_the_driver(stand_in, controller):
    with server_under_load(stand_in, 0) as (process, first), server_under_load(stand_in, 1) as (_, second):
        servers = {f"http://127.0.0.1:{port}": gpu for gpu, port in enumerate((first, second))}
        control = controller(
            *(part for url, gpu in servers.items() for part in ("--instance", f"{url}=nvidia:{gpu}")), "--period", "0.3s"
        )
        for _ in servers:
            assert until(lambda: all(stand_in.control.state(gpu).locked_core_mhz for gpu in range(2)), 60.0)
        failed_s = time.monotonic()
        process.kill()
        freeze_at_work(second)
        events = {event["instance"]: event for event in (control.wait_for("default"), control.wait_for("default"))}
        assert events.keys() == servers.keys()
        assert until(lambda: not any(stand_in.control.state(gpu).locked_core_mhz for gpu in range(2)))
        assert time.monotonic() - failed_s > 7.0  # 8 s after the last reading
        urls = list(servers)
        assert "no metrics for" in events[urls[0]]["why"] and "have not changed" in events[urls[1]]["why"]

        ask(second, "say")  # as before
        assert control.wait_for("controlled")["instance"] == urls[1]
        assert until(lambda: stand_in.control.state(1).locked_core_mhz is not None)
        ask(second, "say?nan=1")
        assert "is nan" in control.wait_for("default")["why"]
        assert until(lambda: stand_in.control.state(1).locked_core_mhz is None)
        ask(second, "say")
        control.wait_for("controlled")
    with server_under_load(stand_in, 1, port=second):  # in the same place, within the time that readings may be old
        assert "counters restarted" in control.wait_for("default")["why"]
        assert control.wait_for("controlled")["instance"] == urls[1]
    assert control.end() == 128 + signal.SIGTERM
    assert clean(stand_in)
    kinds = [(event["event"], event["instance"]) for event in control.events]
    assert kinds.count(("default", urls[0])) == 1  # said once
