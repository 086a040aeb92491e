"""A server under simulated load that speaks vLLM's metrics, in wall time, at the clock that its simulated GPU is locked to.

    python -m testbed.metrics_server ENGINE.json --socket STAND_IN --gpu 0 --rate 5

It takes steps as an engine does: prompts first, then a token for each request in the batch, and sleeps for the time that the
engine's tables say at the clock in effect. It prints its port and serves until its input ends. ``GET /load?rate=9`` changes
the load, ``/say?nan=1`` lets a gauge be NaN, ``/say?freeze=1`` freezes what it tells, ``/say?status=500`` breaks it.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from testbed.stand_in.control import Control
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.profile_file import read_engine

TTFT_EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
TBT_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LENGTH_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)


@dataclass
class Histogram:
    edges: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self):
        self.counts = [0] * (len(self.edges) + 1)

    def add(self, value, times=1):
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    def lines(self, name):
        passed = 0
        for edge, count in zip((*self.edges, math.inf), self.counts, strict=True):
            passed += count
            yield f'{name}_bucket{{engine="0",le="{"+Inf" if math.isinf(edge) else edge}",model_name="m"}} {passed}.0'
        yield f'{name}_count{{engine="0",model_name="m"}} {passed}.0'
        yield f'{name}_sum{{engine="0",model_name="m"}} {self.total}'


@dataclass
class Request:
    prompt: int
    left: int
    came_s: float
    made: int = 0


class Load:
    """Requests that come at random, and an engine that serves them step by step.

    Time is that of the engine's steps, and never faster than the wall's: no requests pile up while a busy machine keeps the
    process waiting.
    """

    def __init__(self, engine: Engine, clock_mhz, rate_per_s: float, seed: int = 0):
        self.engine, self.clock_mhz, self.rate_per_s = engine, clock_mhz, rate_per_s
        self.rng = random.Random(seed)
        self.waiting, self.running = [], []
        self.prompt_tokens = self.output_tokens = 0
        self.ttft, self.tbt, self.prompts = Histogram(TTFT_EDGES), Histogram(TBT_EDGES), Histogram(LENGTH_EDGES)
        self.lock = threading.Lock()
        self.now_s = self.next_s = 0.0
        self.settings = [each.core_mhz or math.inf for each in engine.tables.settings]

    def setting(self) -> int:
        locked = self.clock_mhz()
        return len(self.settings) - 1 if locked is None else max(bisect_left(self.settings, locked + 0.5) - 1, 0)

    def step(self) -> float:
        """One step of the engine; how long it takes."""
        now_s = self.now_s
        while self.next_s <= now_s and self.rate_per_s > 0:
            prompt, answer = round(self.rng.uniform(200, 800)), 1 + round(self.rng.expovariate(1 / 60))
            self.waiting.append(Request(prompt, answer, self.next_s))
            self.next_s += self.rng.expovariate(self.rate_per_s)
        if self.rate_per_s <= 0:
            self.next_s = now_s
        if not self.waiting and not self.running:
            return min(max(self.next_s - now_s, 0.0), 0.01) if self.rate_per_s > 0 else 0.01
        tables, at, batch = self.engine.tables, self.setting(), len(self.running)
        context = sum(each.prompt + each.made for each in self.running) / max(batch, 1)
        first = self.waiting[0] if self.waiting and batch < self.engine.most_running else None
        if first is not None and batch:
            taken_s = tables.mixed(at, first.prompt, 0.0, batch, context).time_s
        elif first is not None:
            taken_s = tables.prefill(at, first.prompt).time_s
        else:
            taken_s = tables.decode(at, batch, context).time_s
        with self.lock:
            if batch:
                self.tbt.add(taken_s, batch)
                self.output_tokens += batch
            for each in self.running:
                each.made += 1
                each.left -= 1
            self.running = [each for each in self.running if each.left > 0]
            if first is not None:
                self.waiting.pop(0)
                self.running.append(first)
                self.prompt_tokens += first.prompt
                self.output_tokens += 1
                self.prompts.add(first.prompt)
                self.ttft.add(now_s + taken_s - first.came_s)
        return taken_s

    def run(self):
        due_s = time.monotonic()
        while True:
            took_s = self.step()
            self.now_s += took_s
            due_s = max(due_s, time.monotonic() - 0.1) + took_s
            time.sleep(max(due_s - time.monotonic(), 0.0))

    def page(self, nan=False):
        with self.lock:
            cache = self.engine.cache_blocks * self.engine.block_tokens
            used = sum(each.prompt + each.made for each in self.running) / cache
            label = '{engine="0",model_name="m"}'
            return "\n".join(
                [
                    "# HELP vllm:num_requests_running Number of requests in model execution batches.",
                    "# TYPE vllm:num_requests_running gauge",
                    f"vllm:num_requests_running{label} {'NaN' if nan else float(len(self.running))}",
                    f"vllm:num_requests_waiting{label} {float(len(self.waiting))}",
                    f"vllm:kv_cache_usage_perc{label} {used}",
                    f"vllm:prompt_tokens_total{label} {self.prompt_tokens}.0",
                    f"vllm:generation_tokens_total{label} {self.output_tokens}.0",
                    f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{self.engine.cache_blocks}"}} 1.0',
                    *self.ttft.lines("vllm:time_to_first_token_seconds"),
                    *self.tbt.lines("vllm:inter_token_latency_seconds"),
                    *self.prompts.lines("vllm:request_prompt_tokens"),
                    "",
                ]
            )


def serve(load: Load, port: int = 0) -> ThreadingHTTPServer:
    """Serve the metrics of a load from a thread."""
    says: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = urlsplit(self.path)
            values = dict(parse_qsl(asked.query))
            status, text = 200, ""
            if asked.path == "/load":
                load.rate_per_s = float(values["rate"])
            elif asked.path == "/say":
                says.clear()
                says.update(values)
                says["frozen"] = load.page()
            elif asked.path == "/metrics":
                status = int(says.get("status", 200))
                text = says["frozen"] if "freeze" in says else load.page(nan="nan" in says)
            else:
                status = 404
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=load.run, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    control = Control(asked.socket)
    seen: list[float | None] = [None, -1.0]

    def clock_mhz():  # looked at 20 times a second, which is how soon a real one would take effect
        if time.monotonic() - seen[1] > 0.05:
            locked = control.state(asked.gpu).locked_core_mhz
            seen[:] = [None if locked is None else float(locked[1]), time.monotonic()]
        return seen[0]

    server = serve(Load(read_engine(asked.engine).engine(), clock_mhz, asked.rate), asked.port)
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
