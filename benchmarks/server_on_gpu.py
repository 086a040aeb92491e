"""A real server on a real GPU, measured by ``wastenot serve-bench``: Llama-3 8B with random weights.

    WASTENOT_READ_ONLY=1 PYTHONPATH=src:build/site python -m benchmarks.server_on_gpu OUT_DIR --batch 1,8,32,64
    python -m benchmarks.server_on_gpu OUT_DIR --smoke          # a tiny model on a CPU

The server is ``transformers serve`` with continuous batching. The model is made on the spot, with a vocabulary of words that
prompts are written in, so that nothing is downloaded: what weights say does not matter to time, and hardly to energy.
Answers have no last token, so that each is as long as was asked. No clock is set. What comes out is a study,
``OUT_DIR/server.db``, and the server's log.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PORT = 8017
SIZES = {
    "llama-3-8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 512,
    },
}  # fmt: skip


def make_model(folder: Path, size: str) -> None:
    """Write a Llama with random weights, and a tokenizer for which each word is a token."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{index}": index for index in range(3, 500)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        chat_template="{% for message in messages %}{{ message['content'] }} {% endfor %}",
    ).save_pretrained(folder)
    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=8192, **SIZES[size]))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 2
    model.save_pretrained(folder)


def start(folder: Path, log: Path, more: list[str]) -> subprocess.Popen[bytes]:
    """Start the server, and wait until it answers."""
    command = [
        sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", folder.name,
        "--continuous-batching", "--port", str(PORT), *more,
    ]  # fmt: skip
    cache = folder.parent / "cache"  # the server lists what is in there
    cache.mkdir()
    with log.open("wb") as to:
        environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
        server = subprocess.Popen(command, stdout=to, stderr=subprocess.STDOUT, env=environment, cwd=folder.parent)
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(f"http://localhost:{PORT}/health", timeout=2):
                return server
        except (urllib.error.URLError, OSError):
            if server.poll() is not None or time.monotonic() - began > 180:
                sys.exit(f"the server did not start: {log.read_text()[-3000:]}")
            time.sleep(0.5)


def main() -> None:
    """Make the model, start the server, measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", default="1,8,32,64")
    parser.add_argument("--prompt-tokens", default="512")
    parser.add_argument("--output-tokens", default="128")
    parser.add_argument("--steady", default="20s")
    parser.add_argument("--smoke", action="store_true", help="a tiny model on a CPU")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    size = "tiny" if asked.smoke else "llama-3-8b"
    name = f"{size}-random"
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "benchmarks.server_on_gpu", "--make", str(folder), size], check=True)
        print(f"model made in {time.monotonic() - began:.0f} s", flush=True)
        server = start(folder, asked.out / "server.log", ["--device", "cpu"] if asked.smoke else ["--device", "cuda:0"])
        print(f"server ready after {time.monotonic() - began:.0f} s", flush=True)
        command = [
            sys.executable, "-m", "wastenot", "serve-bench", f"http://localhost:{PORT}", "--model", folder.name,
            "--batch", asked.batch, "--prompt-tokens", asked.prompt_tokens, "--output-tokens", asked.output_tokens,
            "--steady", asked.steady, "--study", str(asked.out / "server.db"), "--precision", "bfloat16",
        ]  # fmt: skip
        if asked.smoke:
            command += ["--device", "none", "--gpu", "CPU", "--gpus", "1"]
        try:
            done = subprocess.run(command, check=False, env={**os.environ, "COLUMNS": "140"})
        finally:
            server.terminate()
            server.wait(30)
    sys.exit(done.returncode)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--make":
        make_model(Path(sys.argv[2]), sys.argv[3])
    else:
        main()
