"""Hours of a server's metrics, made in a moment: what Prometheus kept of it, from a real one or one that only answers."""

import json
import math
import re
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from shutil import which
from urllib.parse import parse_qs

import pytest

from testbed.metrics_server import Load
from testbed.prometheus import prometheus_of
from wastenot.serving.bench.server_metrics import METRIC_NAMES, samples


def scrapes(engine, end_s, seconds, *, every_s=15.0, rate_per_s=4.0, restarts_at=(), idle=False, seed=0):
    """The page of each scrape of an engine at its default clocks, by the Unix time of it: a load that rises and falls."""
    load, found = Load(engine, lambda: None, 0.0, seed), []
    passed = before_s = 0.0
    while passed <= seconds:
        if any(before_s < at <= passed for at in restarts_at):
            load = Load(engine, lambda: None, 0.0, seed + 1)
            load.now_s = load.next_s = passed
        load.rate_per_s = 0.0 if idle else rate_per_s * (1.0 + 0.8 * math.sin(2.0 * math.pi * passed / 1800.0))
        while load.now_s < passed:
            load.now_s += load.step()
        found.append((round(end_s - seconds + passed, 3), load.page()))
        before_s, passed = passed, passed + every_s
    return found


def open_metrics(pages, instance, job="vllm"):
    """Scrapes as ``promtool`` reads them."""
    lines = []
    for at_s, page in pages:
        for line in page.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                labelled = name[:-1] + "," if name.endswith("}") else name + "{"
                lines.append(f'{labelled}instance="{instance}",job="{job}"}} {value} {at_s:.3f}')
    return "\n".join([*lines, "# EOF", ""])


@contextmanager
def real_prometheus(folder, histories):
    """Debian's Prometheus with a history of servers by instance; skips where it is not installed."""
    if which("promtool") is None:
        pytest.skip("no Prometheus: apt-get install prometheus")
    for number, (instance, pages) in enumerate(histories.items()):
        (folder / f"{number}.om").write_text(open_metrics(pages, instance))
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / f"{number}.om", folder / "data"],
            check=True, capture_output=True,
        )  # fmt: skip
    with prometheus_of("", folder) as prometheus:
        yield prometheus.url


@contextmanager
def answering_prometheus(histories, answer=None):
    """One that answers as Prometheus 2.42 does, from histories; ``answer`` makes (status, text) instead."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            query, at_s = asked["query"][0], float(asked["time"][0])
            status, text = (200, _answer(histories, query, at_s)) if answer is None else answer(query, at_s)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _answer(histories, query, at_s):
    over_s = float(re.search(r"\[(\d+)s\]", query)[1])
    inside = {name: [each for each in pages if at_s - over_s <= each[0] <= at_s] for name, pages in histories.items()}
    if query.startswith("count by"):
        result = [
            {"metric": {"instance": name, "job": "vllm"}, "value": [at_s, "1"]} for name, pages in inside.items() if pages
        ]
        return success("vector", result)
    wanted, series = json.loads(re.search(r'instance=("(?:[^"\\]|\\.)*")', query)[1]), {}
    for when_s, page in inside.get(wanted, ()):
        for each in samples(page, METRIC_NAMES):
            labels = {"__name__": each.name, **each.labels, "instance": wanted, "job": "vllm"}
            values = series.setdefault(json.dumps(labels), [])
            values.append([when_s, "NaN" if math.isnan(each.value) else f"{each.value:.12g}"])
    return success("matrix", [{"metric": json.loads(labels), "values": values} for labels, values in series.items()])


def success(kind, result):
    """An answer of Prometheus."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})
