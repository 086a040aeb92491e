"""Metrics that a real Prometheus has scraped."""

import signal

import pytest

from testbed.live_control import ask, clean, server_under_load
from testbed.prometheus import prometheus_scraping


@pytest.mark.system
def test_by_way_of_prometheus(stand_in, controller, tmp_path):
    with server_under_load(stand_in) as (_, port), prometheus_scraping(port, tmp_path) as prometheus:
        control = controller(
            "--instance", f"http://127.0.0.1:{port}=nvidia:0", "--prometheus", prometheus.url, "--period", "0.3s",
            "--metrics-port", "0",
        )  # fmt: skip
        assert control.wait_for_clock()["core_mhz"] == stand_in.control.state(0).locked_core_mhz[1]
        ask(port, "say?status=500")  # Prometheus then has no samples that are recent
        why = control.wait_for("default", seconds=60.0)["why"]
        assert "no metrics for" in why and "Prometheus has no metrics for it" in why
        assert control.end() == 128 + signal.SIGTERM
        said = control.process.stderr.read()
        assert "/metrics" in said
    assert clean(stand_in)
