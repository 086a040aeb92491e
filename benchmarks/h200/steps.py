"""Training steps of Hugging Face models with random weights, built from a config: nothing is downloaded.

wastenot capture benchmarks/h200/steps.py:gpt2 --device cuda:0 --coverage
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


@cache
def _training(name: str) -> tuple[Any, Any, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if name == "gpt2":
        model: Any = GPT2LMHeadModel(GPT2Config())
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=8,
                vocab_size=32000,
            )
        )  # fmt: skip
    model = model.to("cuda", torch.bfloat16).train()
    tokens = torch.randint(0, 32000, (8, 1024), device="cuda")
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4), tokens


def _step(name: str, compiled: bool = False) -> None:
    model, optimizer, tokens = _training(name)
    run = torch.compile(model) if compiled else model
    run(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def gpt2() -> None:
    """One training step of GPT-2 (124 M)."""
    _step("gpt2")


def llama() -> None:
    """One training step of a small Llama (8 layers, grouped-query attention)."""
    _step("llama")


def gpt2_compiled() -> None:
    """The same GPT-2 step under torch.compile."""
    _step("gpt2", compiled=True)
