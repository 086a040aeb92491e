"""What Prometheus reads of the daemon."""

import signal
from pathlib import Path

import pytest

from testbed.daemon_in_process import UUIDS, running
from testbed.daemon_process import ROOT, until
from wastenot.devices.clockd import server as server_module
from wastenot.devices.clockd.main import main as wastenotd
from wastenot.devices.clockd.metrics import METRICS
from wastenot.devices.clockd.policy import Bounds, Policy, Rule

parser = pytest.importorskip("prometheus_client.parser")
FIRST, SECOND = UUIDS
POLICY = Policy(
    (Rule(frozenset({1000}), frozenset(), frozenset({0}), Bounds((600.0, 1200.0))),), requests_per_s=1000.0,
    connections_per_user=1,
)  # fmt: skip


def parsed(text):
    """By name and labels, the values of Prometheus' text, which its own parser reads."""
    families = [*parser.text_string_to_metric_families(text)]
    assert all(family.documentation and family.type != "unknown" for family in families)
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


def test_requests_refusals_connections_queues_and_undo_failures_are_counted():
    with running(POLICY) as daemon:
        client = daemon.connect()
        client.ask("hello"), client.ask("acquire", gpu=FIRST)
        for core in (900, 1200, 1500):
            client.ask("set", gpu=FIRST, core_mhz=core)
        client.ask("acquire", gpu=SECOND), client.ask("what")
        client = daemon.connect()
        client.ask("hello"), client.ask("acquire", gpu=FIRST), client.ask("set", gpu=FIRST, core_mhz=900)
        daemon.nvml.failing = True
        client.ask("release", gpu=FIRST)
        daemon.pass_time(1.1)
        daemon.connect().ask("hello")
        found = parsed(client.ask("metrics")["ok"]["text"])

    def count(ask, result):
        return found["wastenotd_requests_total", ("ask", ask), ("result", result)]

    asked = (("set", "ok"), ("set", "policy"), ("acquire", "policy"), ("other", "message"))
    assert [count(*each) for each in asked] == [3, 1, 1, 1]
    assert found["wastenotd_set_seconds_count",] == found["wastenotd_set_seconds_bucket", ("le", "+Inf")] == 3
    assert found["wastenotd_connections",] == found["wastenotd_connections_refused_total",] == 1
    assert found["wastenotd_gpu_undo_failures_total", ("gpu", FIRST)] == 2
    assert found["wastenotd_gpu_queue_length", ("gpu", FIRST)] == found["wastenotd_gpu_hung", ("gpu", SECOND)] == 0


def test_a_gpu_that_hangs_is_shown_with_its_queue():
    with running(POLICY) as daemon:
        client = daemon.hang_in_a_set()
        client.reply()
        found = parsed(client.ask("metrics")["ok"]["text"])
        assert found["wastenotd_gpu_hung", ("gpu", FIRST)] == 1 and found["wastenotd_gpu_queue_length", ("gpu", FIRST)] > 0


def test_the_daemon_prints_all_of_its_metrics(stand_in, daemon, capsys):
    assert wastenotd(["--metrics"]) == 1 and capsys.readouterr().out.startswith("# no wastenotd listens")
    daemon.start(ROOT)
    daemon.signal(signal.SIGHUP)
    assert until(lambda: "policy read again" in daemon.said())
    daemon.policy.write_text("?")
    daemon.signal(signal.SIGHUP)
    assert until(lambda: daemon.said().count("policy read again") == 2)
    assert until(lambda: wastenotd(["--metrics"]) == 0 and "policy_reload_seconds 0" in capsys.readouterr().out)
    assert wastenotd(["--metrics"]) == 0
    text = capsys.readouterr().out
    found = parsed(text)
    assert {name for name in METRICS if f"# TYPE wastenotd_{name} " in text} == {*METRICS}
    assert [found["wastenotd_policy_reloads_total", ("result", each)] for each in ("ok", "failed")] == [1, 1]
    assert found["wastenotd_log_lines_dropped_total",] == found["wastenotd_audit_records_dropped_total",] == 0


def test_the_page_has_all_of_them():
    page = (Path(__file__).parents[3] / "docs" / "daemon.md").read_text()
    assert {name for name in METRICS if f"`{name}`" in page} == {*METRICS}


def test_labels_are_not_what_clients_say():
    assert {"hello", "status", "metrics", "beat", "acquire", "set", "release", "frontier"} == server_module._ASKS
