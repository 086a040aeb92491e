"""Training jobs for the benchmark of markers: GPT-2 and eight layers of a 7B Llama, from a config, with random weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import wastenot as wn
from wastenot.planning.plan import Plan

_WANTED_S = 0.075  # a step
_LARGEST_BATCH = 64


@dataclass
class Job:
    """A model in training.

    Attributes:
        name: of the job.
        model: as it is called.
        optimizer: of its parameters.
        tokens: of one step, shape (batch, length).
    """

    name: str
    model: Any
    optimizer: Any
    tokens: torch.Tensor

    def step(self) -> None:
        """One iteration."""
        self.model(input_ids=self.tokens, labels=self.tokens).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def facts(self) -> dict[str, Any]:
        """What it is."""
        parameters = sum(one.numel() for one in self.model.parameters())
        return {
            "parameters": parameters,
            "tokens": list(self.tokens.shape),
            "dtype": str(next(self.model.parameters()).dtype),
        }


def make_job(name: str, device: str, *, tiny: bool = False) -> Job:
    """A job: ``gpt2``, ``gpt2-compiled``, ``llama`` or ``llama-compiled``; tiny ones are to try the script.

    A step has as many sequences as make it last about 75 ms.
    """
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if name.startswith("gpt2"):
        sizes = {"n_layer": 4, "n_embd": 64, "n_head": 2} if tiny else {}
        model: Any = GPT2LMHeadModel(GPT2Config(loss_type="ForCausalLM", **sizes))
        length, vocabulary = (64 if tiny else 1024), 50257
    else:
        width, hidden = (64, 172) if tiny else (4096, 11008)
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=width, intermediate_size=hidden, num_hidden_layers=8, vocab_size=32000,
                num_attention_heads=2 if tiny else 32, loss_type="ForCausalLM", use_cache=False,
            )
        )  # fmt: skip
        length, vocabulary = (64 if tiny else 2048), 32000
    model = model.to(device, torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device != "cpu")
    run = torch.compile(model, backend="aot_eager" if tiny else "inductor") if name.endswith("compiled") else model
    job = Job(name, run, optimizer, torch.empty(0))

    def with_batch(batch: int) -> float:
        job.tokens = torch.randint(0, vocabulary, (batch, length), device=device)
        return timed(job.step, 3, device)

    if tiny:
        with_batch(2)
        return job
    eager = job.model
    job.model = model  # the batch is chosen without compiling for each
    # The time of a small batch is that of launching its kernels, so that of a larger one does not follow from it.
    batch = 1
    while with_batch(batch) < 0.75 * _WANTED_S and batch < _LARGEST_BATCH:
        batch *= 2
    job.model = eager
    with_batch(batch)
    return job


def made_up_plan(step_s: float, rows: Path, workload: str, device: str) -> Plan:
    """A plan for a device whose numbers are made up but for the time of a step, so that it is taken for the job's."""
    lines = ["kernel,count,core_mhz,memory_mhz,time_s,energy_j,pass"]
    for name, share in (("forward", 0.3), ("loss", 0.1), ("backward", 0.6)):
        time_s = share * step_s
        lines += [f"{name},1,,,{time_s},{600 * time_s},{name}", f"{name},1,1605,,{1.01 * time_s},{500 * time_s},{name}"]
    rows.write_text("\n".join(lines) + "\n")
    sweep = wn.read_sweep(rows, workload=workload, device=device, origin="synthetic")
    return wn.plan(sweep, max_slowdown=0.05, granularity="pass", as_measured=True)


def own_name() -> str:
    """The first card's, as plans name devices."""
    return f"{torch.cuda.get_device_name()} GPU-{torch.cuda.get_device_properties(0).uuid}"


def timed(step: Callable[[], None], times: int, device: str) -> float:
    """Mean time of a step, after warm-up."""
    for _ in range(2):
        step()
    _wait(device)
    began_s = time.perf_counter()
    for _ in range(times):
        step()
    _wait(device)
    return (time.perf_counter() - began_s) / times


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
