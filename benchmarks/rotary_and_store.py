"""Queries and keys rotated by their positions, keys and values put into a cache, in one Triton kernel, as engines do it.

Imported only where Triton is.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(  # type: ignore[no-untyped-def]
    qkv, cosine, sine, query, key, value, position, new, keys,
    heads: tl.constexpr, groups: tl.constexpr, padded: tl.constexpr, half: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    token = row % new
    head = tl.arange(0, padded)[:, None]
    at = tl.arange(0, half)[None, :]
    there = head < heads + 2 * groups
    source = qkv + (row * (heads + 2 * groups) + head) * (2 * half) + at
    first = tl.load(source, mask=there, other=0.0)
    second = tl.load(source + half, mask=there, other=0.0)
    cos = tl.load(cosine + token * half + at)
    sin = tl.load(sine + token * half + at)
    x, y = first.to(tl.float32), second.to(tl.float32)
    turned_x = (x * cos - y * sin).to(first.dtype)
    turned_y = (y * cos + x * sin).to(first.dtype)
    to_query = query + (row * heads + head) * (2 * half) + at
    tl.store(to_query, turned_x, mask=head < heads)
    tl.store(to_query + half, turned_y, mask=head < heads)
    group = head - heads
    line = ((row // new) * groups + group).to(tl.int64) * keys + position + token
    to_key = key + line * (2 * half) + at
    of_key = (head >= heads) & (head < heads + groups)
    tl.store(to_key, turned_x, mask=of_key)
    tl.store(to_key + half, turned_y, mask=of_key)
    line = ((row // new) * groups + group - groups).to(tl.int64) * keys + position + token
    to_value = value + line * (2 * half) + at
    of_value = (head >= heads + groups) & there
    tl.store(to_value, first, mask=of_value)
    tl.store(to_value + half, second, mask=of_value)


def turn_and_store(
    qkv: Tensor, cosine: Tensor, sine: Tensor, key: Tensor, value: Tensor, positions: Tensor, heads: int, groups: int
) -> Tensor:
    """Rotate queries and keys; keys and values go into the cache from the position that ``cosine`` begins at.

    Args:
        qkv: (batch, new, heads + 2 groups, width), contiguous.
        cosine: of the angles, (new, width / 2) in fp32, a slice of a table that begins at position 0.
        sine: likewise.
        key: cache, (batch, groups, keys, width).
        value: likewise.
        positions: unused but for their number; they are those of ``cosine``.
        heads: of queries.
        groups: of keys and of values.

    Returns:
        The queries, (batch, new, heads, width).
    """
    batch, new, every, width = qkv.shape
    query = torch.empty((batch, new, heads, width), dtype=qkv.dtype, device=qkv.device)
    position = cosine.storage_offset() // cosine.shape[1]
    _kernel[(batch * new,)](
        qkv, cosine, sine, query, key, value, position, new, key.shape[2],
        heads, groups, triton.next_power_of_2(every), width // 2,
    )  # fmt: skip
    return query
