"""``wastenot-pods``: an agent of one Kubernetes node, beside wastenotd, until it is told to stop."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from wastenot.core.errors import WastenotError
from wastenot.core.version import own_version
from wastenot.devices.clockd.health import metrics_text
from wastenot.devices.clockd.log_lines import text_of
from wastenot.devices.common.daemon_clocks import DaemonClocks
from wastenot.devices.common.gpu_driver import driver_of, names_here
from wastenot.devices.pods.agent import Agent, Gpu
from wastenot.devices.pods.api import ACCOUNT, Api
from wastenot.devices.pods.owners import pod_of

PLANS = Path("/etc/wastenot/plans")
_PERIOD_S = 5.0  # a process is seen and its GPU set within it
_STALE = 6  # turns after which annotations are asked for again
_MISSED = 60  # turns without an end, after which it is not well: a driver that hangs, rather than turns for leases
_DAEMON_S = 5.0  # for wastenotd's metrics


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="wastenot-pods",
        description="Have wastenotd set the GPU clocks that annotated pods of this Kubernetes node ask for.",
        epilog="SIGTERM stops it; wastenotd then restores the clocks. It needs the host's process IDs, wastenotd's socket "
        "and a service account that may list pods: deploy/helm brings all of it.",
    )
    parser.add_argument("--node", default=os.environ.get("NODE_NAME"), help="the node's name (default: NODE_NAME)")
    parser.add_argument(
        "--account", type=Path, default=ACCOUNT, metavar="DIR", help="the service account's token and ca.crt"
    )
    parser.add_argument("--plans", type=Path, default=PLANS, metavar="DIR", help=f"plans, NAME.json each (default: {PLANS})")
    parser.add_argument("--port", type=int, default=9401, help="of /metrics and /healthz; 0: none (default: 9401)")
    parser.add_argument(
        "--period", type=float, default=_PERIOD_S, metavar="S", help="between looks at the GPUs (default: 5)"
    )
    parser.add_argument("--version", action="version", version=f"wastenot-pods {own_version()}")
    options = parser.parse_args(arguments)
    if not options.node:
        parser.error("--node, or NODE_NAME, must name the node (spec.nodeName in the pod's environment)")
    if not 0.1 <= options.period <= 600.0:
        parser.error("--period: from 0.1 to 600 s")
    try:
        _run(options)
    except WastenotError as error:
        _log("error", text=error)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    over, beaten_s = threading.Event(), [time.monotonic()]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    gpus = [
        Gpu(uuid, DaemonClocks(driver.clock_setter(uuid, allow_changes=False)), partial(driver.process_ids, index))
        for vendor, names in names_here().items()
        for driver in (driver_of(vendor),)
        for index in range(len(names))
        for uuid in (driver.unique_id(index),)
    ]
    agent = Agent(
        gpus, Api(options.node, options.account).pods, pod_of, options.plans, _STALE * options.period, time.monotonic, _log
    )
    if options.port:
        longest_s = _MISSED * max(options.period, _PERIOD_S)
        _serve(options.port, lambda: agent.metrics, lambda: time.monotonic() - beaten_s[0] < longest_s)
    _log("ready", node=options.node, gpus=len(gpus), version=own_version())
    try:
        while not over.wait(options.period):
            agent.turn()
            beaten_s[0] = time.monotonic()
    finally:
        agent.close()
    _log("stopped")


class _Http(ThreadingHTTPServer):
    """Listens to IPv4 and IPv6, as pods may have either."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        with suppress(AttributeError, OSError):
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _serve(port: int, metrics: Callable[[], str], well: Callable[[], bool]) -> None:
    """Serve Prometheus and the kubelet from a thread."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path == "/healthz":
                code, text = (200, "well\n") if well() else (500, "the last look at the GPUs has not ended\n")
            elif self.path == "/metrics":
                code, text = 200, metrics() + metrics_text(_DAEMON_S)[1] + "\n"
            else:
                code, text = 404, "there are /metrics and /healthz\n"
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing of requests."""

    threading.Thread(target=_Http(("", port), Handler).serve_forever, name="wastenot-pods-http", daemon=True).start()


def _log(event: str, **fields: object) -> None:
    print(text_of(event, fields), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
