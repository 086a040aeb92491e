"""From metrics to clocks for 100 servers on one controller: how long it takes until a clock is set.

    python -m benchmarks serve-control
    python -m benchmarks.bench_serve_control [SERVERS] [SECONDS]

Each server's page is as long as vLLM's, and its batch changes so that its clock is set anew every four seconds. The GPUs
are those of the stand-in for NVML, one for each server, with lease and journal. Times are from the moment a server is asked
for its metrics until its GPU's clock is set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from benchmarks.kept import DATA
from benchmarks.verdict import Verdict
from testbed.stand_in.fixtures import start_stand_in
from wastenot.serving.control.control import control, held
from wastenot.serving.control.instance import Instance, Rules
from wastenot.serving.control.sources import DirectSource, Heard, followed

SERVERS, SECONDS = 100, 20.0
_ENGINE = DATA / "serving" / "llama-8b-sim-h200.json"
_OTHER_LINES = 900  # of a page of vLLM that are of no interest here


def main(verdict: Verdict) -> None:
    found = measured()
    verdict.at_most(f"{SERVERS} servers: seconds from metrics to clock, median", found["median_s"], 0.3)
    verdict.at_most(f"{SERVERS} servers: seconds from metrics to clock, longest", found["longest_s"], 1.0)
    verdict.at_least(f"{SERVERS} servers: clocks set in a second", found["sets_per_s"], 10.0)


def measured(servers: int = SERVERS, seconds: float = SECONDS, readings: int = 0, sets: int = 0) -> dict[str, float]:
    """The same in a process whose NVML is the stand-in, until there have been so many readings and clocks set at least."""
    with start_stand_in("h200", gpus=servers, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as state:
        environment = stand_in.environment(WASTENOT_STATE=state, WASTENOT_READ_ONLY="0")
        environment.pop("WASTENOTD_SOCKET", None)
        ran = f"run({servers}, {seconds}, {readings}, {sets})"
        code = f"from benchmarks.bench_serve_control import *; print(json.dumps({ran}))"
        pages = subprocess.Popen(
            [sys.executable, "-c", "from benchmarks.bench_serve_control import *; serve()"],
            stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        try:
            assert pages.stdout is not None
            environment["PAGES"] = pages.stdout.readline().strip()
            done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        finally:
            pages.kill()
            pages.wait()
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


class _Timed(Instance):
    """An instance that keeps how long each of its readings took."""

    def hear(self, heard: Heard, now_s: float) -> None:
        super().hear(heard, now_s)
        TOOK_S.append(time.monotonic() - heard.at_s)


TOOK_S: list[float] = []


def run(servers: int, seconds: float, readings: int = 0, sets: int = 0) -> dict[str, float]:
    """Control so many servers for so long, and until there have been so many readings and clocks set."""
    from wastenot.devices.open import open_device
    from wastenot.serving.cluster.seen_load import SeenLoad, rule_of
    from wastenot.serving.model.deadlines import LITERATURE
    from wastenot.serving.model.profile_file import read_engine

    engine = read_engine(_ENGINE).engine()
    urls = [f"http://127.0.0.1:{os.environ['PAGES']}/{number}/metrics" for number in range(servers)]
    devices = [open_device(f"nvidia:{number}", allow_clock_control=True) for number in range(servers)]
    rules = Rules(dry_run=False)
    instances = [_Timed(url, (device,), engine, rules, _silent) for url, device in zip(urls, devices, strict=True)]
    rule_of(SeenLoad(1.0, 256.0, 256.0, 64.0, 256.0), engine, LITERATURE)  # compiled, as the command does
    begun_s = time.monotonic()
    with held(instances), followed(DirectSource(urls, 1.0)) as heard:

        def enough() -> bool:
            over = time.monotonic() - begun_s > seconds and len(TOOK_S) >= readings
            return over and sum(each.sets for each in instances) >= sets

        control(instances, heard, stop=enough)
        done = sum(each.sets for each in instances)
    late = np.array(TOOK_S)
    return {
        "readings": len(late), "median_s": float(np.median(late)), "p99_s": float(np.quantile(late, 0.99)),
        "longest_s": float(late.max()), "sets": done, "sets_per_s": done / (time.monotonic() - begun_s),
        "processor_share": time.process_time() / (time.monotonic() - begun_s),
    }  # fmt: skip


def _silent(event: object) -> None:
    pass


class _Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    other = "".join(
        f'vllm:other_metric_bucket{{engine="0",le="{at}",model_name="m"}} {at}.0\n' for at in range(_OTHER_LINES)
    )

    def do_GET(self) -> None:
        now_s = time.time() + 0.37 * int(self.path.split("/")[1])
        come = int(8.0 * now_s % 1e9)
        own = "\n".join(
            [
                f"vllm:num_requests_running {200 if now_s % 8.0 < 4.0 else 9}",
                "vllm:num_requests_waiting 0",
                "vllm:kv_cache_usage_perc 0.02",
                f"vllm:prompt_tokens_total {500 * come}",
                f"vllm:generation_tokens_total {120 * come}",
                *(f'vllm:time_to_first_token_seconds_bucket{{le="{edge}"}} {come}' for edge in (0.1, 0.25, 0.5, 1, "+Inf")),
                *(f'vllm:inter_token_latency_seconds_bucket{{le="{edge}"}} {120 * come}' for edge in (0.05, 0.1, "+Inf")),
            ]
        )
        content = (self.other + own).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def serve() -> None:
    """Serve the pages until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    asked = sys.argv[1:]
    print(measured(int(asked[0]) if asked else SERVERS, float(asked[1]) if len(asked) > 1 else SECONDS))
