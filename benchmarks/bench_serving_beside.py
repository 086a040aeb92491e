"""``wastenot serve bench`` beside AIPerf, in turns on the same server: tokens/s, times to first token and between tokens.

    python -m benchmarks.bench_serving_beside URL AIPERF TOKENIZER [TURNS]

AIPERF is its program, in an environment of its own, and TOKENIZER the folder of the server's. Each turn measures every load
with both, in changing order, first on a stand-in whose tokens come every 50 ms however busy the machine is; each load has
prompts and answers of 128 tokens. What is found is kept in ``data/serving/client-beside.json``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from benchmarks.kept import DATA, keep
from testbed.stand_in_server import Behaviour, stand_in_server

TOKENS, SECONDS = 128, 20
LOADS = (("stand-in", "--batch 4"), ("vLLM", "--batch 4"), ("vLLM", "--rate 2"))
WHAT = ("tokens_per_s", "ttft_median_s", "itl_mean_s", "end_to_end_median_s")
_OUT = DATA / "serving" / "client-beside.json"


def ours(url: str, load: str) -> dict[str, float]:
    """One point of ``wastenot serve bench``."""
    command = [sys.executable, "-m", "wastenot", "serve", "bench", url, *load.split(), "--device", "none", "--json"]
    lengths = ["--prompt-tokens", str(TOKENS), "--output-tokens", str(TOKENS), "--steady", f"{SECONDS}s"]
    (point,) = json.loads(subprocess.run([*command, *lengths], check=True, capture_output=True).stdout)["points"]
    return {
        "tokens_per_s": point["tokens_per_s"], "ttft_median_s": point["ttft"]["p50_s"], "itl_mean_s": point["itl"]["mean_s"],
        "end_to_end_median_s": point["end_to_end"]["p50_s"], "running": point["mean_running"],
    }  # fmt: skip


def theirs(url: str, load: str, program: str, tokenizer: str) -> dict[str, float]:
    """The same by AIPerf, which counts the server's tokens."""
    kind, value = load.split()
    shape = ["--concurrency", value] if kind == "--batch" else ["--request-rate", value, "--request-rate-mode", "poisson"]
    with urllib.request.urlopen(f"{url}/v1/models") as reply:
        model = json.load(reply)["data"][0]["id"]
    asked = {
        "--model": model,
        "--url": url, "--endpoint-type": "completions", "--tokenizer": tokenizer, "--ui": "none",
        "--benchmark-duration": SECONDS, "--benchmark-grace-period": 20, "--warmup-request-count": 4,
        "--synthetic-input-tokens-mean": TOKENS, "--synthetic-input-tokens-stddev": 0,
        "--workers-max": 1, "--record-processors": 1,  # or its own processes take the cores from the server
        "--output-tokens-mean": TOKENS, "--output-tokens-stddev": 0, "--random-seed": int.from_bytes(os.urandom(3)),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "profile", "--streaming", "--use-server-token-count", "--extra-inputs", "ignore_eos:true"]
        command += ["--no-gpu-telemetry", "--no-server-metrics"]
        given = [str(each) for pair in (asked | {"--artifact-dir": folder}).items() for each in pair]
        subprocess.run([*command, *given, *shape], check=True, capture_output=True)
        lines = Path(folder, "profile_export.jsonl").read_text().splitlines()
    records = [each for each in map(json.loads, lines) if each["metadata"]["benchmark_phase"] == "profiling"]
    records = [each for each in records if not each.get("error")]

    def each_of(name: str) -> list[float]:
        return [each["metrics"][name]["value"] for each in records]

    begin_s = 1e-9 * min(each["metadata"]["request_start_ns"] for each in records)
    end_s = 1e-9 * max(each["metadata"]["request_end_ns"] for each in records)
    after_first_ms = sum(each_of("request_latency")) - sum(each_of("time_to_first_token"))
    return {
        "tokens_per_s": sum(each_of("usage_completion_tokens")) / (end_s - begin_s),
        "ttft_median_s": 1e-3 * statistics.median(each_of("time_to_first_token")),
        "itl_mean_s": 1e-3 * after_first_ms / (sum(each_of("usage_completion_tokens")) - len(records)),
        "end_to_end_median_s": 1e-3 * statistics.median(each_of("request_latency")),
        "running": 1e-3 * sum(each_of("request_latency")) / (end_s - begin_s),
    }


def main(url: str, program: str, tokenizer: str, turns: int = 3) -> None:
    """Measure in turns, print each, and keep them."""
    with stand_in_server(Behaviour(ttft_s=0.2, gap_s=0.05)) as stand_in:
        addresses = {"stand-in": stand_in.url, "vLLM": url}
        found: dict[str, list[dict[str, dict[str, float]]]] = {f"{name} {load}": [] for name, load in LOADS}
        for turn in range(turns):
            for name, load in LOADS:
                both = {}
                for whose in ("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"):
                    at = addresses[name]
                    both[whose] = ours(at, load) if whose == "ours" else theirs(at, load, program, tokenizer)
                found[f"{name} {load}"].append(both)
                ratios = {what: round(both["ours"][what] / both["theirs"][what], 3) for what in WHAT}
                print(name, load, ratios, f"load {os.getloadavg()[0]:.1f}", flush=True)
                keep(_OUT, {"tokens": TOKENS, "seconds": SECONDS, "cores": os.cpu_count(), "found": found})
    for load, rows in found.items():
        for what in WHAT:
            ratios = sorted(row["ours"][what] / row["theirs"][what] for row in rows)
            print(f"  {load}  {what}: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
