"""Kills ``wastenot serve control`` and the servers that it controls, at random moments, and checks what is left.

    python -m testbed.stand_in.serve_kills [KIND] [KILLS] [SEED]

The command and a server are processes of their own, on the stand-in for NVML; the server's batch changes all the time, so
that clocks do.

    serve-control           the command, with clocks set through wastenotd; checked while the daemon lives
    serve-control as root   the command, which sets clocks itself; checked once its keeper is done, with no other command
    server                  the server: the command, through the daemon or as root, leaves its GPU to the driver and runs on
    serve-control and server   both, in random order, through the daemon or as root
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.kill_runs import Runs, kill, wait_for
from wastenot.cli.main import run
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE as DAEMON_SOCKET
from wastenot.devices.common.journal import journals
from wastenot.serving.cluster.seen_load import SeenLoad, rule_of
from wastenot.serving.model.deadlines import LITERATURE
from wastenot.serving.model.profile_file import read_engine

KINDS = ("serve-control", "serve-control as root", "server", "serve-control and server")
STALE_S = 0.5
_ENGINE = Path(__file__).parents[2] / "data" / "serving" / "llama-8b-sim-h200.json"
_PERIOD_S = 0.05
_LONGEST_WAIT_S = 0.4  # before a kill, once metrics are read


def kill_and_check(kills: int, seed: int, kind: str) -> dict[str, float]:
    """Kill so often; the counts of :func:`testbed.stand_in.kill_runs.kill_and_check`."""
    controller = ("cli.serve_control", "control.verbs", "control.control", "control.placement")
    for name in (*controller, "model.profile_file", "bench.server_metrics"):
        importlib.import_module(f"wastenot.serving.{name}")  # once, instead of in every command
    importlib.import_module("aiohttp")
    engine = read_engine(_ENGINE).engine()
    rule_of(SeenLoad(100.0, 20.0, 20.0, 3.0, 21.0), engine, LITERATURE)  # compiled, likewise
    rng = random.Random(f"{kind} {seed}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), "client", seed)
        socket = os.environ[DAEMON_SOCKET]
        for _ in range(kills):
            through_daemon = kind == "serve-control" or (kind != "serve-control as root" and rng.random() < 0.5)
            os.environ.pop(DAEMON_SOCKET, None)
            if through_daemon:
                os.environ[DAEMON_SOCKET] = socket
            found.append(_kill_one(runs, rng, kind))
        os.environ[DAEMON_SOCKET] = socket
        runs.end()
    return {
        "kills": len(found),
        "journal_there": sum(one["journal"] for one in found),
        "clocks_changed": sum(one["changed"] for one in found),
        "left": sum(one["left"] for one in found),
        "median_s": statistics.median([one["restore_s"] for one in found]),
        "longest_s": max((one["restore_s"] for one in found), default=0.0),
    }


def _kill_one(runs: Runs, rng: random.Random, kind: str) -> dict[str, float]:
    listening = HTTPServer(("127.0.0.1", 0), _Metrics)
    port, (asked, asks) = listening.server_address[1], os.pipe()
    server = runs.fork(lambda: _serve(listening, asks))
    os.close(asks)
    listening.server_close()
    command = runs.fork(lambda: _control(port))
    if rng.random() < 0.9:  # else at any moment of its start
        os.read(asked, 1)
    time.sleep(rng.uniform(0.0, _LONGEST_WAIT_S))
    there = {"journal": bool(journals()), "changed": runs.changed()}
    began = time.monotonic()
    dead = {"server": [server], "serve-control and server": [server, command]}.get(kind, [command])
    rng.shuffle(dead)
    for process in dead:
        kill(process)
    if kind == "server":
        time.sleep(STALE_S)  # until then the last readings count
        wait_for(lambda: not runs.changed())
        there["restore_s"] = time.monotonic() - began
        time.sleep(rng.uniform(0.0, STALE_S))
        there["left"] = runs.changed()  # it stays so
        os.kill(command, signal.SIGTERM)
        os.waitpid(command, 0)
        wait_for(lambda: not journals())  # where the daemon has them
        there["left"] = there["left"] or runs.changed() or bool(journals())
    else:
        runs.control.wait_for(command)
        if DAEMON_SOCKET in os.environ:
            runs.let_the_daemon_read()
        wait_for(lambda: not runs.changed() and not journals())
        there["restore_s"] = time.monotonic() - began
        there["left"] = runs.changed() or bool(journals())
        if server not in dead:
            kill(server)
    os.close(asked)
    return there


def _control(port: int) -> None:
    os.dup2(2, 1)  # the output is that of the kills
    run(
        ["serve", "control", str(_ENGINE), "--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", f"{_PERIOD_S}s",
         "--stale-after", f"{STALE_S}s", "--allow-clock-control"]
    )  # fmt: skip


class _Metrics(BaseHTTPRequestHandler):
    """A server with a steady load, and now and then more in its batch than that explains: its clock goes up and down."""

    asks = -1

    def do_GET(self) -> None:
        now_s = time.time()
        come = int(120.0 * now_s % 1e9)
        text = "\n".join(
            [
                f"vllm:num_requests_running {200 if now_s % 0.3 < 0.1 else 3}",
                "vllm:num_requests_waiting 0",
                f"vllm:prompt_tokens_total {20 * come}",
                f"vllm:generation_tokens_total {3 * come}",
                f'vllm:time_to_first_token_seconds_bucket{{le="0.05"}} {come}',
                f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {come}',
            ]
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
        os.write(self.asks, b".")

    def log_message(self, *_: object) -> None:
        pass


def _serve(listening: HTTPServer, asks: int) -> None:
    _Metrics.asks = asks
    listening.serve_forever()


def main(kind: str = "serve-control", kills: int = 200, seed: int = 0) -> dict[str, float]:
    """The same in a separate process, on its own stand-in."""
    with (
        start_stand_in("h200", gpus=2, memory_lock=True) as stand_in,
        tempfile.TemporaryDirectory(prefix="kills-") as folder,
    ):
        environment = stand_in.environment(WASTENOT_STATE=folder, WASTENOT_READ_ONLY="0")
        environment.pop(DAEMON_SOCKET, None)
        text = f"from testbed.stand_in.serve_kills import *; print(json.dumps(kill_and_check({kills}, {seed}, {kind!r})))"
        done = subprocess.run([sys.executable, "-c", text], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    counts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return counts


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:2], *map(int, sys.argv[2:]))))
