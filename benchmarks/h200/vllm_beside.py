"""``wastenot serve bench`` beside AIPerf on a real vLLM on one GPU, whose clocks nobody sets.

    export WASTENOT_READ_ONLY=1
    python -m benchmarks.h200.vllm_beside FOLDER AIPERF [TURNS]     # six minutes with vLLM 0.26 on an H100 or H200

Llama 3 8B with random weights, and a tokenizer whose every token is a printable character of ASCII, so that each chunk of an
answer holds text. AIPERF is its program. ``VLLM`` may hold the command of another vLLM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.bench_serving_beside import LOADS, main
from benchmarks.h200.vllm_on_gpu import CONFIG
from benchmarks.kept import DATA

CHARACTERS = [*map(chr, range(ord("!"), ord("~") + 1)), "Ġ", "Ċ"]
"""Printable ones, a space and the end of a line, as a tokenizer of bytes spells them."""
OPTIONS = "--load-format dummy --dtype bfloat16 --max-model-len 2048 --max-num-seqs 64"
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24, 32]}
PORT, PATIENCE_S = 8140, 180.0


def write_model(folder: Path, config: dict[str, object]) -> None:
    """The model's folder: a configuration and a tokenizer."""
    tokenizer = Tokenizer(models.BPE(vocab={each: at for at, each in enumerate(CHARACTERS)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(CHARACTERS)}))


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the server, and wait until it answers."""
    command = os.environ.get("VLLM", f"{sys.executable} -m vllm.entrypoints.cli.main").split()
    graphs = f"--compilation-config {json.dumps(GRAPHS, separators=(',', ':'))}"
    options = f"{OPTIONS} {os.environ.get('VLLM_OPTIONS', graphs)}".split()
    with log.open("w") as out:
        server = subprocess.Popen([*command, "serve", str(folder), "--port", str(PORT), *options], stdout=out, stderr=out)
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5.0):
            return server
        time.sleep(0.5)
    server.kill()
    raise SystemExit(f"vLLM did not start: {log.read_text()[-6000:]}")


if __name__ == "__main__":
    work, program, *turns = sys.argv[1:]
    model = Path(work, "model")
    model.mkdir(parents=True, exist_ok=True)
    tokens = {"bos_token_id": None, "eos_token_id": None}
    write_model(model, CONFIG | tokens)
    process = start(model, Path(work, "vllm.log"))
    try:
        into = DATA / "serving" / "client-beside-h200.json"
        main(f"http://127.0.0.1:{PORT}", program, str(model), *map(int, turns), loads=LOADS[1:], into=into)
    finally:
        process.terminate()
        process.wait()
