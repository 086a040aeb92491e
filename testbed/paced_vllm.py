"""A real vLLM on the CPU with a tiny model, whose steps take as long as they are told to: what is left of each is slept."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from wastenot.serving.model.engine import Engine
from wastenot.serving.model.profile_file import read_engine

_ROOT = Path(__file__).parents[1]
_TUTORIAL = _ROOT / "docs" / "tutorials" / "vllm.md"
VLLM = _ROOT / ".venv-vllm"
"""Where ``make .venv-vllm/.ready`` installs it."""

_PROGRAM = """
import sys
import time
from pathlib import Path

from vllm.v1.worker.gpu_worker import Worker

made = Worker.execute_model


def paced(worker, scheduled):
    begun_s = time.perf_counter()
    found = made(worker, scheduled)
    step_s, token_s = map(float, Path("pace").read_text().split())
    tokens, requests = scheduled.total_num_scheduled_tokens, len(scheduled.num_scheduled_tokens)
    if tokens:
        time.sleep(max(begun_s + step_s + token_s * (tokens - requests) - time.perf_counter(), 0.0))
    return found


Worker.execute_model = paced
if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
"""


class PacedVllm:
    """The server, not yet started.

    Args:
        folder: for its model and log.
        port: at which it listens.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        (folder / "paced.py").write_text(_PROGRAM)
        self.pace(0.0, 0.0)
        model = _TUTORIAL.read_text().partition("<!-- file: tiny.py -->\n```python\n")[2].partition("```")[0]
        subprocess.run([VLLM / "bin" / "python", "-c", model], cwd=folder, env=_environment(), check=True)

    def pace(self, step_s: float, token_s: float) -> None:
        """Let a step take so long, and each token of a prompt so much longer, from the next step on."""
        new = self.folder / "pace.new"
        new.write_text(f"{step_s} {token_s}")
        new.replace(self.folder / "pace")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = "--load-format dummy --dtype bfloat16 --enforce-eager --max-model-len 2048 --max-num-seqs 64"
        port = self.url.rpartition(":")[2]
        command = [VLLM / "bin" / "python", "paced.py", "serve", "tiny", "--port", port, *options.split()]
        with (self.folder / "vllm.log").open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=_environment(), stdout=log, stderr=log, start_new_session=True
            )
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5.0):
                return
            assert self.process.poll() is None, (self.folder / "vllm.log").read_text()[-4000:]
            time.sleep(0.5)

    def signal(self, number: int) -> None:
        """To all its processes."""
        os.killpg(self.process.pid, number)

    def end(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()


def write_slower(profile: Path, into: Path, times: float) -> Engine:
    """Write a profile of which each step takes so many times as long, at the same power; its engine as it is read back."""
    read = read_engine(profile)
    engine, names = read.engine(), ("prefill_time_s", "prefill_energy_j", "decode_time_s", "decode_energy_j")
    tables = replace(engine.tables, **{name: times * getattr(engine.tables, name) for name in names})
    replace(read, engines=(replace(engine, tables=tables),)).write(into)
    return read_engine(into).engine()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
