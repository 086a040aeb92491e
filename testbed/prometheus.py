"""Debian's Prometheus on a folder of its own, scraping one target."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from shutil import which

import pytest

_CONFIGURATION = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: wastenot
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """Its API."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"
        self._base = f"{self.url}/api/v1"

    def get(self, what, **asked):
        with urllib.request.urlopen(f"{self._base}/{what}?{urllib.parse.urlencode(asked)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, query):
        """Values by labels, of an instant query."""
        return [(each["metric"], float(each["value"][1])) for each in self.get("query", query=query)["result"]]

    def wait_for(self, query, seconds=60.0):
        """The values of a query as soon as it has some."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.values(query)
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{query}: nothing in {seconds} s")


@contextmanager
def prometheus_scraping(port, folder):
    """Run Prometheus against a port of this machine; skips where it is not installed."""
    if which("prometheus") is None:
        pytest.skip("no Prometheus: apt-get install prometheus")
    with prometheus_of(_CONFIGURATION.format(port=port), folder) as prometheus:
        yield prometheus


@contextmanager
def prometheus_of(configuration, folder):
    """Run Prometheus with a configuration, on the data of a folder."""
    (folder / "prometheus.yml").write_text(configuration)
    own = _free_port()
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
               f"--web.listen-address=127.0.0.1:{own}"]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_ready(process, own, folder / "log")
        yield Prometheus(own)
    finally:
        process.terminate()
        process.wait(20)


def _free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _wait_until_ready(process, port, log):
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=30) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"Prometheus did not start: {log.read_text()[-2000:]}")
