"""``transformers serve`` for real, with a tiny model of random weights that is made on the spot."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WORDS = 400
_PATIENCE_S = 120.0


def write_tiny_model(folder: Path, *, hidden: int = 64, layers: int = 2) -> None:
    """A Llama with random weights whose tokens are words, and that never ends an answer by itself."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {f"w{index}": index for index in range(_WORDS)} | {"?": _WORDS}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?", pad_token="?")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=4, max_position_embeddings=4096, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=False)
    model.save_pretrained(folder)


@contextmanager
def tiny_server(folder: Path, *, hidden: int = 64, layers: int = 2) -> Iterator[tuple[str, str]]:
    """Serve a tiny model; its address and the name to ask for."""
    write_tiny_model(folder, hidden=hidden, layers=layers)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "transformers"), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port),
        "--device", "cpu", "--log-level", "error",
    ]  # fmt: skip
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    url = f"http://127.0.0.1:{port}"
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | quiet) as server,
    ):
        try:
            until = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=5.0).close()
                    break
                except (urllib.error.URLError, OSError):
                    assert server.poll() is None, (folder / "server.log").read_text()
                    assert time.monotonic() < until, "transformers serve does not come up"
                    time.sleep(0.1)
            yield url, str(folder)
        finally:
            server.kill()
