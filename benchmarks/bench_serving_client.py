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
from dataclasses import dataclass

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.core.wording import counted
from wastenot.serving.bench.http_streams import Pool
from wastenot.serving.bench.loads import Ask
from wastenot.serving.bench.server import Server
from wastenot.serving.bench.streams import Stream, answer

STREAMS = (1, 100, 1000, 4000)
TOKENS = 100


@dataclass(frozen=True)
class Added:
    """What a client added: seconds between a token's sending and its arrival, and relative errors of gaps."""

    streams: int
    step_s: float
    median_s: float
    p99_s: float
    cpu_s: float
    mean_gap: float
    p50_gap: float
    p99_gap: float


async def _measured(port: int, streams: int) -> tuple[list[Stream], float]:
    server = Server(f"http://127.0.0.1:{port}", "m", counts=(("stream_options", {"include_usage": True}),))
    pool = Pool(server.url)
    began = time.process_time()
    asks = [Ask(f"stream {index}", TOKENS) for index in range(streams)]
    done = await asyncio.gather(*(answer(pool, server, ask, began=lambda _: None) for ask in asks))
    cpu_s = time.process_time() - began
    await pool.close()
    return done, cpu_s


def measure(streams: int) -> Added:
    step_s = 0.05 if streams < 2000 else 0.1
    command = [sys.executable, "-m", "benchmarks.streaming_server", str(step_s), str(TOKENS)]
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
    arrived = np.asarray([stream.arrival_s for stream in done])
    sent = np.asarray([log[str(stream.ask.content)] for stream in done])
    delay = arrived - sent
    gaps, true = np.concatenate([stream.tokens().gaps_s for stream in done]), np.diff(sent, axis=1).ravel()
    return Added(
        streams, step_s, float(np.median(delay)), float(np.percentile(delay, 99)), cpu_s / delay.size,
        *(abs(of(gaps) / of(true) - 1.0) for of in (np.mean, np.median, lambda x: np.percentile(x, 99))),
    )  # fmt: skip


def main(verdict: Verdict) -> None:
    for streams in STREAMS:
        found = measure(streams)
        delay = f"{1e3 * found.median_s:.2f} ms from sending to arrival (99 %: {1e3 * found.p99_s:.2f} ms)"
        off = f"{found.mean_gap:.2%} in the mean, {found.p50_gap:.2%} in the median, {found.p99_gap:.2%} at 99 %"
        load = f"{counted(streams, 'stream')}, {streams / found.step_s:,.0f} tokens a second"
        print(f"  {load}: {delay}, {1e6 * found.cpu_s:.1f} µs of CPU each; gaps off by {off}", flush=True)
        if streams > 1:
            verdict.at_most(f"CPU of a token with {streams:,} streams, µs", 1e6 * found.cpu_s, 20.0)
        if streams <= 100:
            verdict.at_most(f"median gap of {counted(streams, 'stream')}, relative error", found.p50_gap, 0.01)
        verdict.at_most(f"mean gap of {counted(streams, 'stream')}, relative error", found.mean_gap, 0.02)
