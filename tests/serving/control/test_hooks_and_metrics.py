"""What a controller tells others: recommendations to an address, its own metrics to Prometheus."""

import json
import math
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from wastenot.control.metrics import serve_registry
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.serving.bench.server_metrics import LatencyCounts, ServerReading
from wastenot.serving.control.hook import Hook
from wastenot.serving.control.instance import Instance, Rules
from wastenot.serving.control.own_metrics import control_registry
from wastenot.serving.control.sources import Heard
from wastenot.serving.model.profile_file import read_engine

ENGINE = read_engine(Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json").engine()


@contextmanager
def taker(status=200):
    """An address that takes documents."""
    taken = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/take", taken
    finally:
        server.shutdown()
        server.server_close()


def news_of(hook):
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        if (news := hook.news()) is not None:
            return news
        time.sleep(0.01)
    raise AssertionError("no news")


def test_documents_arrive_and_the_last_one_does_before_the_end():
    with taker() as (url, taken):
        hook = Hook(url)
        with hook.running():
            for number in range(5):
                hook.send({"instances": number})
        assert taken[-1] == {"instances": 4} and hook.news() is None


def test_a_hook_that_fails_is_told_once_and_once_when_it_works_again():
    with taker(status=500) as (url, _):
        hook = Hook(url)
        with hook.running():
            hook.send({"instances": 1})
            assert "500" in news_of(hook)
            hook.send({"instances": 2})
            assert hook.news() is None
            with taker() as (good, taken):
                hook._url = good
                hook.send({"instances": 3})
                assert "works again" in news_of(hook) and taken == [{"instances": 3}]


def test_nobody_there_stops_nothing():
    hook = Hook("http://127.0.0.1:1/")
    with hook.running():
        hook.send({})
        assert "failed" in news_of(hook)


@pytest.mark.parametrize("url", ["localhost:8080", "file:///etc/passwd", "http://"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(BadInputError, match="not an address"):
        Hook(url)


def test_own_metrics():
    pytest.importorskip("prometheus_client")
    instance = Instance("http://a:8000", (), ENGINE, Rules(), lambda event: None)
    with serve_registry(0, control_registry([instance])) as port:

        def page():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
                return reply.read().decode()

        labels = '{dry_run="true",server="http://a:8000"}'
        assert f"wastenot_serve_controlled{labels} 0.0" in page()
        assert f"wastenot_serve_clock_target_hertz{labels}" not in page()
        instance.state, instance.setting, instance.sets = "controlled", Setting(1200.0), 3
        assert f"wastenot_serve_controlled{labels} 1.0" in page()
        assert f"wastenot_serve_clock_target_hertz{labels} 1.2e+09" in page()
        assert f"wastenot_serve_clock_changes_total{labels} 3.0" in page()


def test_joules_a_request_follow_from_two_counters():
    pytest.importorskip("prometheus_client")
    used_j = [1000.0, 500.0]
    gpus = [SimpleNamespace(sensors=SimpleNamespace(energy_j=lambda at=at: used_j[at])) for at in range(2)]
    instance = Instance("http://a:8000", (), ENGINE, Rules(), lambda event: None)
    instance.devices = gpus
    pages, labels = control_registry([instance]), {"dry_run": "true", "server": "http://a:8000"}

    def told():
        names = ("wastenot_serve_energy_joules_total", "wastenot_serve_requests_total")
        return tuple(pages.get_sample_value(name, labels) for name in names)

    def hear(at_s, come):
        counts = LatencyCounts((0.1, math.inf), (come, come))
        now_s = time.monotonic()
        reading = ServerReading(1.0, 0.0, ttft=counts, output_tokens=10.0 * come)
        instance.hear(Heard(0, now_s - 1.0 + at_s, reading), now_s)

    hear(0.0, 70.0)
    assert told() == (1500.0, 0.0)
    hear(0.1, 75.0)
    hear(0.2, 3.0)  # the server was restarted
    hear(0.3, 10.0)
    used_j[0] += 240.0
    assert told() == (1740.0, 12.0)  # 20 J each
    used_j[1] = None
    assert told() == (None, 12.0)
