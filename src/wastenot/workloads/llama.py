"""The kernels of Llama: RMS norm, rotary positions, grouped-query attention, gated feed-forward."""

from __future__ import annotations

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.parts import Work, placer
from wastenot.workloads.shared_kernels import attention, attention_backward, head, loss, optimizer
from wastenot.workloads.sizes import Sizes

_ROTARY_FLOPS = 3.0  # of an element: two products and a sum
_SILU_PRODUCT_FLOPS = 6.0  # negation, exponential, sum, quotient, two products
_SILU_PRODUCT_BACKWARD_FLOPS = 12.0


def llama_kernels(s: Sizes) -> tuple[KernelSpec, ...]:
    """The kernels of one training iteration, prefill or decoding step."""
    kernels = [*_embedding(s), *_forward(s)]
    if not s.training:
        return (*kernels, head(s))
    last_norm = s.part.norm_backward(s.logit_rows, s.width, op="rmsnorm")
    tables = s.part.embedding_backward(s.shared_rows, s.width, s.tokens_touched)
    kernels += [*loss(s), placer("loss")("norm_last_backward", "RMSnorm", last_norm), *_backward(s)]
    kernels.append(placer("embedding_backward")("embedding_backward", "Embedding", tables))
    return tuple(kernels + optimizer(s))


def _embedding(s: Sizes) -> list[KernelSpec]:
    put = placer("embedding")
    return [
        put("embedding", "Embedding", s.part.embedding(s.shared_rows, s.width, table_rows=s.tokens_touched)),
        put("norm_first", "RMSnorm", s.part.norm(s.shared_rows, s.width, op="rmsnorm")),
    ]


def _forward(s: Sizes) -> list[KernelSpec]:
    part, put = s.part, placer("forward", "layer", s.model.layers)
    residual = part.norm(s.shared_rows, s.width, op="rmsnorm", residual=True)
    silu_product = part.elementwise(s.rows * s.hidden, inputs=2, flops=_SILU_PRODUCT_FLOPS)
    return [
        put("qkv_gemm", "GEMM", part.gemm(s.rows, s.qkv_width, s.width)),
        put("rotary", "Rotary", _rotary(s)),
        *attention(s, put),
        put("projection_gemm", "GEMM", part.gemm(s.rows, s.width, s.query_width)),
        put("residual_1", "Residual", residual),
        put("gate_up_gemm", "GEMM", part.gemm(s.rows, 2 * s.hidden, s.width)),
        put("silu_product", "SiLU", silu_product),
        put("down_gemm", "GEMM", part.gemm(s.rows, s.width, s.hidden)),
        put("residual_2", "Residual", residual),
    ]


def _rotary(s: Sizes) -> Work:
    """Queries and keys are turned in place; values stay."""
    return s.part.elementwise(s.rows * (s.query_width + s.kv_width), flops=_ROTARY_FLOPS)


def _backward(s: Sizes) -> list[KernelSpec]:
    part, put = s.part, placer("backward", "layer", s.model.layers)
    rows, width, hidden, queries, qkv = s.rows, s.width, s.hidden, s.query_width, s.qkv_width
    norm_backward = part.norm_backward(s.shared_rows, width, op="rmsnorm")
    silu_backward = part.elementwise(rows * hidden, inputs=3, outputs=2, flops=_SILU_PRODUCT_BACKWARD_FLOPS)
    return [
        put("down_dinput_gemm", "GEMM", part.gemm(rows, hidden, width)),
        put("down_dweight_gemm", "GEMM", part.gemm(width, hidden, rows, accumulate=True)),
        put("silu_backward", "SiLU", silu_backward),
        put("gate_up_dinput_gemm", "GEMM", part.gemm(rows, width, 2 * hidden)),
        put("gate_up_dweight_gemm", "GEMM", part.gemm(2 * hidden, width, rows, accumulate=True)),
        put("norm_2_backward", "RMSnorm", norm_backward),
        put("projection_dinput_gemm", "GEMM", part.gemm(rows, queries, width)),
        put("projection_dweight_gemm", "GEMM", part.gemm(width, queries, rows, accumulate=True)),
        *attention_backward(s, put),
        put("rotary_backward", "Rotary", _rotary(s)),
        put("qkv_dinput_gemm", "GEMM", part.gemm(rows, width, qkv)),
        put("qkv_dweight_gemm", "GEMM", part.gemm(qkv, width, rows, accumulate=True)),
        put("norm_1_backward", "RMSnorm", norm_backward),
    ]
