"""How many tokens an engine's key-value cache holds: what its cards' memory leaves beside the weights."""

from __future__ import annotations

from typing import Final

from wastenot.core.errors import BadInputError
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.models import Model

CARDS_BYTES: Final = {
    "H200": 141e9,
    "GH200": 96e9,
    "H100 NVL": 94e9,
    "H100": 80e9,
    "B200": 180e9,
    "A100": 80e9,
    "L40": 48e9,
    "A6000": 48e9,
    "A4000": 16e9,
    "V100": 32e9,
    "3080 Ti": 12e9,
    "MI300X": 192e9,
}
"""Memory by what the name of a card contains, from datasheets; the larger where there are two."""

USED: Final = 0.9
"""Of a card's memory, as vLLM takes by default."""

_DTYPE = "bf16"  # of weights and cache
_ACTIVATIONS_BYTES = 2e9  # beside weights and cache: activations of a step, graphs, buffers of collectives; assumed


def card_bytes(card: str) -> float | None:
    """Memory of a card by its name; ``None`` where it is not known."""
    found = [name for name in CARDS_BYTES if name.lower() in card.lower()]
    return CARDS_BYTES[max(found, key=len)] if found else None


def cache_token_bytes(model: Model) -> int:
    """Bytes of the cache that a token takes, on all cards together: a key and a value in each layer."""
    return 2 * model.layers * model.groups * model.head_width * DTYPE_BYTES[_DTYPE]


def cache_blocks(model: Model, memory_bytes: float, *, degree: int = 1) -> int:
    """Blocks of 16 tokens of the cache of an engine.

    Args:
        model: that it serves.
        memory_bytes: of one card.
        degree: of tensor parallelism, cards that share weights and cache.

    Raises:
        BadInputError: the weights leave no room.
    """
    weights = model.parameters * DTYPE_BYTES[_DTYPE]
    left = degree * (USED * memory_bytes - _ACTIVATIONS_BYTES) - weights
    blocks = int(left // (16 * cache_token_bytes(model)))
    if blocks < 1:
        raise BadInputError(
            f"{model.name}: its {weights / 1e9:.3g} GB of weights leave no room for a cache in {degree} × "
            f"{memory_bytes / 1e9:.3g} GB; take more GPUs (`degrees`)"
        )
    return blocks
