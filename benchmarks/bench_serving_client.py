"""What the client of ``wastenot serve bench`` adds to the latencies that it measures, with up to thousands of streams.

    nice python -m benchmarks serving-client        about a minute

A server in a process of its own sends a token of every stream at each step, in one burst, as an engine does, and notes
when. Both read the same clock of the machine, so that a token's way through the client is known by itself. Tokens come every
50 ms, or every 100 ms with 2,000 streams and more. Where server and client share few cores, delays are mostly
of waiting for a core.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.core.wording import counted
from wastenot.serving.bench.http_streams import Pool
from wastenot.serving.bench.loads import Ask
from wastenot.serving.bench.server import Server
from wastenot.serving.bench.streams import Stream, answer

STREAMS = (1, 100, 1000, 4000)
TOKENS = 100


class _Connection(asyncio.Protocol):
    """A connection; HTTP is read no further than the client under test needs."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.running.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, blank, body = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in lower else 0
        if len(body) < length:
            return
        self.data = body[length:]
        if head.startswith(b"GET"):
            log = json.dumps(self.engine.log).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(log), log))
            return
        self.key = json.loads(body)["prompt"]
        self.engine.log[self.key] = []
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.engine.running[self] = 0


class _Engine:
    """Every so often, one token for each stream that runs."""

    def __init__(self, step_s: float, tokens: int) -> None:
        self.step_s, self.tokens = step_s, tokens
        self.running: dict[_Connection, int] = {}
        self.log: dict[str, list[float]] = {}

    async def run(self) -> None:
        """Serve until killed."""
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        due = time.perf_counter()
        while True:
            due = max(due + self.step_s, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())
            for stream, made in list(self.running.items()):
                last = made + 1 == self.tokens
                usage = f'"usage":{{"prompt_tokens":8,"completion_tokens":{made + 1},"total_tokens":{made + 9}}}'
                end = '"length"' if last else "null"
                choice = f'{{"index":0,"text":" word","logprobs":null,"finish_reason":{end}}}'
                first = '"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"m"'
                event = f'data: {{{first},"choices":[{choice}],{usage}}}\n\n'
                data = (event + ("data: [DONE]\n\n" if last else "")).encode()
                self.log[stream.key].append(time.perf_counter())
                stream.transport.write(b"%x\r\n%s\r\n%s" % (len(data), data, b"0\r\n\r\n" if last else b""))
                if last:
                    del self.running[stream]
                else:
                    self.running[stream] = made + 1


async def _measured(port: int, streams: int) -> tuple[list[Stream], float]:
    server = Server(f"http://127.0.0.1:{port}", "m", counts=(("stream_options", {"include_usage": True}),))
    pool = Pool(server.url)
    began = time.process_time()
    asks = [Ask(f"stream {index}", TOKENS) for index in range(streams)]
    done = await asyncio.gather(*(answer(pool, server, ask, began=lambda _: None) for ask in asks))
    cpu_s = time.process_time() - began
    await pool.close()
    return done, cpu_s


def measure(verdict: Verdict, streams: int) -> None:
    step_s = 0.05 if streams < 2000 else 0.1
    command = [sys.executable, "-m", "benchmarks.bench_serving_client", str(step_s), str(TOKENS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            done, cpu_s = asyncio.run(_measured(port, streams))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as reply:
                log = json.load(reply)
        finally:
            process.kill()
    assert all(stream.outcome == "done" and len(stream.arrival_s) == TOKENS for stream in done), done[0].reason
    sent = np.asarray([log[str(stream.ask.content)] for stream in done])
    delay = np.asarray([stream.arrival_s for stream in done]) - sent
    gaps, true = np.concatenate([stream.tokens().gaps_s for stream in done]), np.diff(sent, axis=1).ravel()
    median_gap, mean_gap = (abs(float(of(gaps) / of(true)) - 1.0) for of in (np.median, np.mean))
    name, cpu_us = counted(streams, "stream"), 1e6 * cpu_s / delay.size
    median_ms, p99_ms = 1e3 * np.percentile(delay, [50, 99])
    print(
        f"  {name}: {median_ms:.2f} ms from sending to arrival (99 %: {p99_ms:.2f} ms), {cpu_us:.1f} µs of CPU each",
        flush=True,
    )
    if streams > 1:
        verdict.at_most(f"CPU of a token with {name}, µs", cpu_us, 20.0)
    if streams <= 100:
        verdict.at_most(f"median gap of {name}, relative error", median_gap, 0.01)
    verdict.at_most(f"mean gap of {name}, relative error", mean_gap, 0.02)


def main(verdict: Verdict) -> None:
    for streams in STREAMS:
        measure(verdict, streams)


if __name__ == "__main__":  # the server
    asyncio.run(_Engine(float(sys.argv[1]), int(sys.argv[2])).run())
