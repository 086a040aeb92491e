"""What an analytical kernel demands of a GPU, from its FLOPs, bytes and sizes and the traits of its kind.

Where a preset says how many tiles are computed at once, products and attention cost whole tiles in whole waves:

    tiles     ▮▮▮▮ ▮▮▮▮ ▮▮            10 tiles on 4 multiprocessors take 3 waves, and so as long as 12 would
"""

from __future__ import annotations

import math

from wastenot.devices.simulated.kinds import FEW_QUERIES
from wastenot.devices.simulated.model import KernelParameters
from wastenot.devices.simulated.preset import OpTraits
from wastenot.workloads.attention import attention_backend
from wastenot.workloads.kernel import KernelSpec

_ATTENTION = {"attention": 4.0, "attention_backward": 10.0}  # FLOPs of a score, for each element of a head
_BY_ROWS = ("softmax", "layernorm", "rmsnorm")
CORE_OF_LATENCY = 0.4
"""Fraction of the latency of a chain of dependent accesses that scales with the core clock; the rest hardly changes."""

_TILES = ((128, 256), (256, 128), (128, 128), (128, 64), (64, 256), (64, 128), (64, 64))
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)  # of the sums of a product, so that few tiles occupy all multiprocessors
_DEPTH_OF_A_TILE = 60  # terms of a sum that beginning and ending a tile costs as much as
_DEPTH_OF_A_SPLIT = 200  # the same for adding partial sums
_EDGE = 40.0  # rows and columns at which loading a tile's inputs costs as much as computing with them
_RAMP_BYTES = 4e6
_ATTENTION_TILE = 128  # queries, and keys; memory-efficient attention takes half as many queries
_KEYS_OF_A_TILE = 96  # that beginning and ending a tile costs as much as, forward
_KEYS_OF_SPLITTING, _KEYS_OF_A_SPLIT = 160, 10  # that adding up partial sums costs as much as, and of each


def analytical_parameters(kernel: KernelSpec, traits: OpTraits) -> KernelParameters:
    """Demands of an analytical kernel on a GPU, from its FLOPs and bytes."""
    moved = moved_bytes(kernel, traits.square)
    flops = effective_flops(kernel, traits.tiles_at_once)
    rows, width, scores = rows_of(kernel, flops)
    chain_s, rows_s = traits.latency_s + width * traits.turn_s, rows * traits.row_s
    apart = rows_apart(kernel)
    return KernelParameters(
        core_s=(
            flops / traits.flops_per_s
            + moved / traits.issue_bytes_per_s
            + (0.0 if apart else rows_s)
            + scores * traits.score_s
            + CORE_OF_LATENCY * chain_s
        ),
        memory_s=moved / traits.bytes_per_s + ramped(moved) * traits.ramp_s,
        latency_core_s=0.0,
        latency_memory_s=0.0,
        fixed_s=traits.fixed_s + (1.0 - CORE_OF_LATENCY) * chain_s + (rows_s if apart else 0.0),
        clock_w=traits.clock_w,
        work_j=kernel.flops * traits.flop_j + moved * traits.issue_byte_j,
        memory_j=moved * traits.byte_j,
    )


def moved_bytes(kernel: KernelSpec, square: float) -> float:
    """Bytes to and from memory, with what is read again or written for a while.

    Args:
        kernel: the kernel.
        square: see :func:`reread`.
    """
    again = reread(kernel.shape, square) if kernel.op == "gemm" else 1.0
    moved = kernel.bytes_moved * again
    if kernel.op == "attention_backward" and len(kernel.shape) == 5 and kernel.shape[1] < kernel.shape[0]:
        heads, _, _, keys, width = kernel.shape  # gradients of keys and values for each query head, then summed
        moved += 2 * 2 * heads * keys * width * max(kernel.element_bytes, 1)
    return moved


def ramped(bytes_moved: float) -> float:
    """How much of the memory's ramp to its throughput a kernel sees, from 0 of few bytes to 1."""
    return bytes_moved / (bytes_moved + _RAMP_BYTES)


def rows_of(kernel: KernelSpec, flops: float) -> tuple[float, float, float]:
    """What is worked on row by row, in turn, and score by score.

    Rows of a softmax or norm, or queries of attention; elements that one multiprocessor works on in turn, of a row or of a
    sum of a product, or sums into rows of a table; scores of attention in whole tiles, as the FLOPs are.
    """
    if kernel.op == "gemm" and len(kernel.shape) == 4:
        return 0.0, float(kernel.shape[3]), 0.0
    if kernel.op in _ATTENTION and len(kernel.shape) == 5:
        heads, _, queries, _, width = kernel.shape
        return float(heads * queries), 0.0, flops / (_ATTENTION[kernel.op] * width)
    if kernel.op == "embedding_backward":
        return 0.0, kernel.flops, 0.0
    if kernel.op not in _BY_ROWS or len(kernel.shape) < 2:
        return 0.0, 0.0, 0.0
    return float(math.prod(kernel.shape[:-1])), float(kernel.shape[-1]), 0.0


def rows_apart(kernel: KernelSpec) -> bool:
    """Whether rows are worked on before and after all else, by kernels of their own that memory bounds.

    In attention's backward pass these sum outputs times their gradients, clear the gradients of queries, and convert them.
    """
    return kernel.op == "attention_backward"


def effective_flops(kernel: KernelSpec, tiles_at_once: int) -> float:
    """FLOPs that take as long as the kernel's do in whole tiles and waves.

    Args:
        kernel: the kernel; only products and attention have tiles.
        tiles_at_once: how many tiles are computed at once; 0 for no more FLOPs than are needed.
    """
    if not tiles_at_once or not kernel.flops:
        return kernel.flops
    if kernel.op == "gemm" and len(kernel.shape) == 4:
        return _of_product(kernel.shape, tiles_at_once)
    if kernel.op in _ATTENTION and len(kernel.shape) == 5:
        return kernel.flops * _of_attention(kernel, tiles_at_once)
    return kernel.flops


def _of_product(shape: tuple[int, ...], tiles_at_once: int) -> float:
    batches, m, n, k = shape
    least = math.inf
    ideal = 1.0 + _EDGE * (1 / 128 + 1 / 256)
    for rows, columns in _TILES:
        tiles = batches * math.ceil(m / rows) * math.ceil(n / columns)
        loading = (1.0 + _EDGE * (1 / rows + 1 / columns)) / ideal
        for splits in _SPLITS:
            if splits > 1 and (k < 512 * splits or tiles * splits > 2 * tiles_at_once):
                break
            waves = math.ceil(tiles * splits / tiles_at_once)
            depth = k / splits + _DEPTH_OF_A_TILE + (_DEPTH_OF_A_SPLIT if splits > 1 else 0)
            least = min(least, 2.0 * waves * tiles_at_once * rows * columns * depth * loading)
    return least


def _of_attention(kernel: KernelSpec, tiles_at_once: int) -> float:
    """Ratio of the FLOPs of whole tiles in whole waves to those needed."""
    heads, groups, queries, keys, width = kernel.shape
    backend, forward = attention_backend(kernel), kernel.op == "attention"
    few = queries <= FEW_QUERIES
    if few and backend == "cudnn":  # which memory bounds
        return 1.0
    used = min(kernel.flops / (_ATTENTION[kernel.op] * width * heads * queries * keys), 1.0)
    packed = backend == "flash" and queries == 1  # a group's queries share a tile
    side = _ATTENTION_TILE // 2 if forward and backend == "efficient" else _ATTENTION_TILE
    tiles = groups * math.ceil(heads / groups / side) if packed else heads * math.ceil(queries / side)
    blocks, started = math.ceil(keys / _ATTENTION_TILE), _KEYS_OF_A_TILE if forward else 0.0
    whole_keys, waves = float(blocks * _ATTENTION_TILE), float(math.ceil(tiles / tiles_at_once))
    if few:  # Of the last block all is computed, not loaded. Of many waves the last is hardly waited for (data/h200).
        whole_keys, waves = 0.5 * (whole_keys + keys), max(tiles / tiles_at_once, 1.0)
    longest = whole_keys + started
    mean = whole_keys * used + (0.5 * side if used < 1.0 else 0.0) + started
    whole = waves * tiles_at_once * mean
    if used < 1.0:  # tiles of a causal mask differ in length: forward, the last one to begin is among the longest
        whole = max(tiles * mean + tiles_at_once * (longest if forward else mean), tiles_at_once * longest)
    if few and backend == "flash" and (splits := _splits_of_keys(tiles, blocks, 2 * tiles_at_once)) > 1:
        share = math.ceil(blocks / splits) * _ATTENTION_TILE + started
        turns = math.ceil(tiles * splits / tiles_at_once)  # of tiles of half as many rows
        whole = tiles_at_once * (0.5 * turns * share + _KEYS_OF_SPLITTING + _KEYS_OF_A_SPLIT * splits)
    return whole * side / (heads * queries * keys * used)


def _splits_of_keys(tiles: int, blocks: int, at_once: int) -> int:
    """Into how many parts FlashAttention-2 splits keys where there are few tiles (num_splits_heuristic in flash_api.cpp)."""
    if tiles >= 0.8 * at_once:
        return 1
    parts = [each for each in range(1, min(blocks, 128) + 1) if each == 1 or -(-blocks // each) < -(-blocks // (each - 1))]
    fills = [each * tiles / at_once / math.ceil(each * tiles / at_once) for each in parts]
    return next(each for each, fill in zip(parts, fills, strict=True) if fill >= 0.85 * max(fills))


def reread(shape: tuple[int, ...], square: float) -> float:
    """Ratio of the bytes that a GEMM moves to those of reading each input and writing the output once.

    All multiprocessors together compute one square of the output at a time, narrower and longer where the output is
    narrow; the strips of both inputs that it needs are read again for each square.

    Args:
        shape: (batches, m, n, k).
        square: edge of the square, in rows and columns; 0 for no re-reading.
    """
    if not square:
        return 1.0
    _, m, n, k = shape
    rows = min(m, square)
    columns = min(n, square * square / rows)
    rows = min(m, square * square / columns)
    once = m * k + k * n + m * n
    return (m * k * n / columns + k * n * m / rows + m * n) / once
