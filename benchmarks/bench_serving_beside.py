"""``wastenot serve bench`` beside AIPerf, in turns on the same server: tokens/s, times to first token and between tokens.

    python -m benchmarks.bench_serving_beside URL AIPERF TOKENIZER [TURNS]

AIPERF is its program, in an environment of its own, and TOKENIZER the folder of the server's. Each turn measures every load
with both, in changing order, first on a stand-in whose tokens come every 50 ms however busy the machine is.

Both send requests of the same lengths in the same order, greedy, to the full length, with usage in every chunk, and in the
open loop at the same times. (Left to itself, AIPerf sends no temperature, so vLLM samples.) AIPerf takes the times of chunks
that hold text: a server whose tokens are parts of characters sends many that hold none, so that its first token seems late
and its last early. Here every token is a character or more, as ``benchmarks/h200/vllm_beside.py`` makes them.
What is found is kept in ``data/serving/client-beside.json``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from itertools import islice, takewhile
from pathlib import Path

import numpy as np

from benchmarks.kept import DATA, keep
from testbed.stand_in_server import Behaviour, stand_in_server
from wastenot.serving.bench.loads import Lengths, Prompts, load_of_lengths
from wastenot.serving.bench.point import find
from wastenot.serving.bench.server import Target

TOKENS, SPREAD, SECONDS = 128, 0.3, 20
WARM_S = 5.0  # that serve bench waits in an open loop
MOST = 4000  # requests of a closed loop, more than 20 s see
LOADS = (("stand-in", "--batch 4"), ("vLLM", "--batch 16"), ("vLLM", "--rate 8"))
WHAT = ("tokens_per_s", "ttft_median_s", "itl_mean_s", "end_to_end_median_s")
_OUT = DATA / "serving" / "client-beside.json"


def ours(url: str, load: str) -> dict[str, float]:
    """One point of ``wastenot serve bench``."""
    command = [sys.executable, "-m", "wastenot", "serve", "bench", url, *load.split(), "--device", "none", "--json"]
    lengths = ["--prompt-tokens", str(TOKENS), "--output-tokens", str(TOKENS), "--spread", str(SPREAD)]
    said = subprocess.run([*command, *lengths, "--steady", f"{SECONDS}s"], check=True, capture_output=True).stdout
    (point,) = json.loads(said)["points"]
    return {
        "tokens_per_s": point["tokens_per_s"], "ttft_median_s": point["ttft"]["p50_s"], "itl_mean_s": point["itl"]["mean_s"],
        "end_to_end_median_s": point["end_to_end"]["p50_s"], "running": point["mean_running"],
    }  # fmt: skip


def write_requests(url: str, load: str, into: Path) -> None:
    """Write what serve bench sends to a server under a load as AIPerf reads it, with other words."""
    found = find(Target(url))
    plan, lengths = load.split(), Lengths(TOKENS, SPREAD)
    made, prompts = load_of_lengths(lengths, lengths), Prompts(found.tokens_per_word, found.tokens_beside)
    if plan[0] == "--batch":
        asks = list(islice(made.closed(prompts), MOST))
    else:
        asks = list(takewhile(lambda ask: (ask.arrival_s or 0.0) < WARM_S + SECONDS, made.opened(prompts, float(plan[1]))))
    usage = {"include_usage": True, "continuous_usage_stats": True}
    more = {"ignore_eos": True, "temperature": 0.0, "stream_options": usage}
    lines = [{"text": ask.content, "output_length": ask.output_tokens, "extra": more} for ask in asks]
    if plan[0] == "--rate":
        lines = [line | {"timestamp": 1e3 * (ask.arrival_s or 0.0)} for line, ask in zip(lines, asks, strict=True)]
    into.write_text("".join(json.dumps(line) + "\n" for line in lines))


def theirs(url: str, load: str, program: str, tokenizer: str) -> dict[str, float]:
    """The same by AIPerf."""
    kind, value = load.split()
    closed = kind == "--batch"
    with urllib.request.urlopen(f"{url}/v1/models") as reply:
        model = json.load(reply)["data"][0]["id"]
    with tempfile.TemporaryDirectory() as folder:
        write_requests(url, load, Path(folder, "requests.jsonl"))
        asked = {
            "--model": model, "--url": url, "--endpoint-type": "completions", "--tokenizer": tokenizer, "--ui": "none",
            "--input-file": f"{folder}/requests.jsonl", "--custom-dataset-type": "single_turn",
            "--workers-max": 1, "--record-processors": 1,  # or its own processes take the cores from the server
            "--artifact-dir": folder,
        }  # fmt: skip
        if closed:
            asked |= {"--concurrency": value, "--benchmark-duration": SECONDS, "--benchmark-grace-period": 20}
        shape = [] if closed else ["--fixed-schedule"]
        command = [program, "profile", "--streaming", "--use-server-token-count", *shape]
        command += ["--no-gpu-telemetry", "--no-server-metrics"]
        given = [str(each) for pair in asked.items() for each in pair]
        ran = subprocess.run([*command, *given], check=False, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{program} failed: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        lines = Path(folder, "profile_export.jsonl").read_text().splitlines()
    records = [each for each in map(json.loads, lines) if not each.get("error")]

    def each_of(name: str) -> np.ndarray:
        return np.array([each["metrics"][name]["value"] for each in records])

    begin_s = 1e-9 * np.array([each["metadata"]["request_start_ns"] for each in records])
    first_s, end_s = (begin_s + 1e-3 * each_of(name) for name in ("time_to_first_token", "request_latency"))
    later = each_of("usage_completion_tokens") - 1
    # From the time on at which serve bench would look, to that of the last request.
    from_s = np.sort(first_s)[int(value) - 1] if closed else begin_s.min() + WARM_S
    seconds = begin_s.max() - from_s
    decoding = np.clip((np.minimum(end_s, begin_s.max()) - np.maximum(first_s, from_s)) / (end_s - first_s), 0.0, None)
    tokens = (decoding * later).sum() + ((first_s > from_s) & (first_s <= begin_s.max())).sum()
    inside = begin_s >= from_s
    return {
        "tokens_per_s": float(tokens / seconds),
        "ttft_median_s": float(np.median((first_s - begin_s)[inside])),
        "itl_mean_s": float((end_s - first_s).sum() / later.sum()),
        "end_to_end_median_s": float(np.median((end_s - begin_s)[inside])),
        "running": float(np.clip(np.minimum(end_s, begin_s.max()) - np.maximum(begin_s, from_s), 0.0, None).sum() / seconds),
    }


def main(
    url: str, program: str, tokenizer: str, turns: int = 3, loads: Sequence[tuple[str, str]] = LOADS, into: Path = _OUT
) -> None:
    """Measure in turns, print each, and keep them."""
    with stand_in_server(Behaviour(ttft_s=0.2, gap_s=0.05)) as stand_in:
        addresses = {"stand-in": stand_in.url, "vLLM": url}
        found: dict[str, list[dict[str, dict[str, float]]]] = {f"{name} {load}": [] for name, load in loads}
        for turn in range(turns):
            for name, load in loads:
                both = {}
                for whose in ("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"):
                    at = addresses[name]
                    both[whose] = ours(at, load) if whose == "ours" else theirs(at, load, program, tokenizer)
                found[f"{name} {load}"].append(both)
                ratios = {what: round(both["ours"][what] / both["theirs"][what], 3) for what in WHAT}
                print(name, load, ratios, f"load {os.getloadavg()[0]:.1f}", flush=True)
                keep(into, {"tokens": TOKENS, "seconds": SECONDS, "cores": os.cpu_count(), "found": found})
    for load, rows in found.items():
        for what in WHAT:
            ratios = sorted(row["ours"][what] / row["theirs"][what] for row in rows)
            print(f"  {load}  {what}: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
