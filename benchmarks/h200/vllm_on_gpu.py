"""Steps of a real vLLM on one GPU whose clocks nobody sets: what each held, how long it took, and the card's energy.

    export WASTENOT_READ_ONLY=1
    python benchmarks/h200/vllm_on_gpu.py FOLDER second     # four minutes with vLLM 0.26 on an H100 or H200
    python benchmarks/h200/vllm_kernels.py FOLDER           # nine minutes more: the kernels by themselves, for the profile
    python -m benchmarks.h200.vllm_windows FOLDER           # anywhere: FOLDER/windows.json, and the profile beside it

Llama 3 8B with random weights, vLLM's own defaults but for at most 256 requests and 8,192 tokens a step. Phases of decode,
prefill and mixed steps of one size each, then traffic of many sizes. The plug-in records steps, as on any server; a process
beside it notes NVML's energy counter whenever it moves. Nothing of the card is set.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "bos_token_id": 128000,
    "eos_token_id": 128001, "torch_dtype": "bfloat16",
}  # fmt: skip
SECONDS = 5.0  # of each phase
# name, sequences that decode, tokens of each before, prompts at once beside them, tokens of each
PHASES = {
    "first": (
        ("decode", 8, 150, 0, 0), ("decode", 32, 150, 0, 0), ("decode", 128, 200, 0, 0),
        ("prefill", 0, 0, 1, 512), ("prefill", 0, 0, 1, 2048), ("prefill", 0, 0, 4, 512),
        ("mixed", 32, 400, 1, 512), ("mixed", 128, 400, 1, 512), ("mixed", 32, 400, 1, 2048), ("mixed", 8, 400, 1, 128),
        ("decode", 1, 150, 0, 0), ("decode", 64, 1500, 0, 0), ("decode", 256, 300, 0, 0),
        ("prefill", 0, 0, 1, 128), ("prefill", 0, 0, 4, 2048), ("prefill", 0, 0, 1, 6000),
    ),
    "second": (
        ("decode", 16, 700, 0, 0), ("decode", 64, 500, 0, 0), ("decode", 256, 600, 0, 0),
        ("prefill", 0, 0, 1, 1024), ("prefill", 0, 0, 8, 256), ("prefill", 0, 0, 2, 1500),
        ("mixed", 16, 500, 1, 1024), ("mixed", 64, 300, 2, 256), ("mixed", 48, 400, 1, 1500), ("mixed", 192, 250, 1, 384),
    ),
}  # fmt: skip
# requests per second, seconds, seed
TRAFFIC = {"first": ((8.0, 25.0, 1), (20.0, 25.0, 2)), "second": ((6.0, 18.0, 3), (14.0, 18.0, 4))}


def sample(path: str) -> None:
    """Note the energy counter whenever it moves: time, mJ, W, MHz, °C. Reads only."""
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = None
    with open(path, "w", encoding="utf-8", buffering=1) as file:
        while True:
            energy_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
            at = time.time()
            if energy_mj != before:
                before = energy_mj
                power = pynvml.nvmlDeviceGetFieldValues(card, [186])[0].value.uiVal
                clock = pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM)
                heat = pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU)
                file.write(f"{at:.4f},{energy_mj},{1e-3 * power:.1f},{clock},{heat}\n")
            time.sleep(0.004)


class Load:
    """Requests of one engine.

    Args:
        engine: of vLLM.
    """

    def __init__(self, engine: Any) -> None:
        self.engine, self.sent, self.rng = engine, 0, random.Random(0)

    async def request(self, prompt: int, answer: int) -> None:
        """A prompt of random tokens and its answer."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.sent += 1
        ids = self.rng.choices(range(1000, 120_000), k=prompt)
        wanted = SamplingParams(
            temperature=1.0, max_tokens=answer, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY
        )
        async for _ in self.engine.generate({"prompt_token_ids": ids}, wanted, f"r{self.sent}"):
            pass

    async def prompts(self, tokens: int) -> None:
        """One prompt after another, without end."""
        while True:
            await self.request(tokens, 1)

    async def phase(self, decodes: int, context: int, prompts: int, tokens: int, seconds: float) -> None:
        """Steps of one size: twice as many prompts are sent as a step takes, so that the next always wait."""
        work = [self.request(context, 8000 - context) for _ in range(decodes)]
        tasks = _started(work)
        if decodes:
            await asyncio.sleep(1.5)
        tasks += _started([self.prompts(tokens) for _ in range(2 * prompts)])
        await asyncio.sleep(seconds)
        await _ended(tasks)

    async def traffic(self, per_second: float, seconds: float, seed: int) -> None:
        """Requests at random times, of random lengths."""
        rng, ends, tasks = random.Random(seed), time.monotonic() + seconds, []
        while time.monotonic() < ends:
            prompt, answer = (int(rng.lognormvariate(mean, 0.8)) for mean in (6.2, 5.0))
            tasks += _started([self.request(min(max(prompt, 16), 6000), min(max(answer, 2), 1000))])
            await asyncio.sleep(rng.expovariate(per_second))
        await _ended(tasks)


def _started(work: list[Coroutine[Any, Any, None]]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(each) for each in work]


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.7)


async def run(folder: Path, which: str, phases: list[dict[str, Any]]) -> None:
    """All phases, then traffic."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(model), served_model_name=["llama-8b"], load_format="dummy", dtype="bfloat16",
            skip_tokenizer_init=True, max_model_len=8192, max_num_seqs=256, max_num_batched_tokens=8192,
            gpu_memory_utilization=0.85, disable_log_stats=True, enable_logging_iteration_details=True,
        )
    )  # fmt: skip
    load = Load(engine)

    async def timed(what: dict[str, Any], work: Coroutine[Any, Any, None]) -> None:
        begins = time.time()
        await work
        phases.append({**what, "begins": round(begins, 3), "ends": round(time.time(), 3)})
        print(phases[-1], flush=True)

    await timed({"name": "warm"}, load.phase(16, 150, 1, 512, 3.0))
    await timed({"name": "idle"}, asyncio.sleep(4.0))
    for name, decodes, context, prompts, tokens in PHASES[which]:
        sizes = {"decodes": decodes, "context": context, "prompts": prompts, "prompt_tokens": tokens}
        await timed({"name": name, **sizes}, load.phase(decodes, context, prompts, tokens, SECONDS))
    for rate, seconds, seed in TRAFFIC[which]:
        await timed({"name": "traffic", "per_second": rate, "seed": seed}, load.traffic(rate, seconds, seed))
    engine.shutdown()


def main(folder: Path, which: str) -> None:
    """Run, and write what it ran on."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["WASTENOT_STEPS"] = str(folder / "steps.jsonl")
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    asked = "--query-gpu=name,uuid,driver_version,power.limit,clocks.max.sm,clocks.sm,temperature.gpu"
    gpu = subprocess.run(["nvidia-smi", asked, "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout
    import torch
    import vllm

    provenance = {
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "gpu": gpu.strip(), "torch": torch.__version__,
        "vllm": vllm.__version__, "python": platform.python_version(), "command": " ".join(sys.argv),
    }  # fmt: skip
    (folder / "provenance.json").write_text(json.dumps(provenance))
    print(provenance, flush=True)
    sampler = subprocess.Popen([sys.executable, __file__, "--sample", str(folder / "energy.csv")])
    phases: list[dict[str, Any]] = []
    try:
        asyncio.run(run(folder, which, phases))
    finally:
        (folder / "phases.json").write_text(json.dumps(phases))
        with suppress(OSError):
            sampler.terminate()


if __name__ == "__main__":
    if sys.argv[1] == "--sample":
        sample(sys.argv[2])
    else:
        main(Path(sys.argv[1]), sys.argv[2])
