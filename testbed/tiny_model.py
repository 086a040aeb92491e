"""A transformer small enough for a test, and a training step of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

TOKENS, WIDTH, HEADS, BATCH, LENGTH = 50, 16, 2, 3, 6


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.joint(self.before(x)).split(WIDTH, dim=-1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Model(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make_step(optimizer: str = "adamw") -> tuple[Callable[[], torch.Tensor], torch.Tensor]:
    """A warmed-up training step, and the tokens that it trains on."""
    torch.manual_seed(1)
    model = Model()
    chosen: torch.optim.Optimizer
    if optimizer == "sgd":
        chosen = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    else:
        chosen = torch.optim.AdamW(model.parameters(), foreach=optimizer == "foreach", fused=optimizer == "fused")
    tokens = torch.randint(0, TOKENS, (BATCH, LENGTH))

    def step() -> torch.Tensor:
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        chosen.step()
        chosen.zero_grad()
        return loss

    step()
    return step, tokens


class Watch(TorchDispatchMode):
    """An independent record: every operation with the shapes that came out."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.namespace not in ("prim", "profiler"):
            self.ran.append((str(func), shapes_of(out)))
        return out


def shapes_of(out: object) -> list[tuple[int, ...]]:
    if isinstance(out, torch.Tensor):
        return [tuple(out.shape)]
    return [shape for item in out for shape in shapes_of(item)] if isinstance(out, (list, tuple)) else []
