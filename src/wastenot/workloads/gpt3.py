"""The kernels of GPT-3 as llm.c runs them, in the groups and order of the kernel-level DVFS paper's Table 1."""

from __future__ import annotations

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.parts import Place, Work, placer
from wastenot.workloads.shared_kernels import attention, attention_backward, head, loss, optimizer
from wastenot.workloads.sizes import Sizes

# Partial sums of a bias gradient as wide as the model, which a second kernel brings together: llm.c's grid on the
# paper's RTX 3080 Ti at GPT-3 XL's width, 80 SMs × 2 blocks / (2,048 / 64). Wider ones fill the GPU without.
_BIAS_SPLITS = 5
_GELU_FLOPS = 10.0  # the tanh approximation, a tanh being one
_GELU_BACKWARD_FLOPS = 15.0


def gpt3_kernels(s: Sizes) -> tuple[KernelSpec, ...]:
    """The kernels of one training iteration, prefill or decoding step.

    Without flash attention and optimizer a training iteration has 46: embedding 2, forward 12, loss 5, backward 25,
    embedding backward 2.
    """
    kernels = [*_embedding(s), *_forward(s)]
    if not s.training:
        return (*kernels, head(s))
    last_norm = placer("loss")("layernorm_last_backward", "Layernorm", s.part.norm_backward(s.logit_rows, s.width))
    kernels += [*loss(s), last_norm, *_backward(s), *_embedding_backward(s)]
    return tuple(kernels + optimizer(s))


def _embedding(s: Sizes) -> list[KernelSpec]:
    put, table_rows = placer("embedding"), s.tokens_touched + s.positions_touched
    return [
        put("wte_wpe", "WTE & WPE", s.part.embedding(s.shared_rows, s.width, table_rows=table_rows, tables=2)),
        put("layernorm_first", "Layernorm", s.part.norm(s.shared_rows, s.width)),
    ]


def _forward(s: Sizes) -> list[KernelSpec]:
    part, put = s.part, placer("forward", "layer", s.model.layers)
    residual = part.norm(s.shared_rows, s.width, residual=True)
    return [
        put("qkv_gemm", "GEMM", part.gemm(s.rows, s.qkv_width, s.width)),
        *_permuted(s, put, "permute_qkv", s.qkv_width),
        *attention(s, put),
        *_permuted(s, put, "unpermute", s.query_width),
        put("projection_gemm", "GEMM", part.gemm(s.rows, s.width, s.query_width)),
        put("residual_1", "Residual", residual),
        put("up_gemm", "GEMM", part.gemm(s.rows, s.hidden, s.width)),
        put("gelu", "GELU", _gelu(s)),
        put("down_gemm", "GEMM", part.gemm(s.rows, s.width, s.hidden)),
        put("residual_2", "Residual", residual),
    ]


def _permuted(s: Sizes, put: Place, name: str, width: int) -> list[KernelSpec]:
    """The change of layout around unfused attention; attention in one kernel reads and writes the layers' own layout."""
    return [] if s.fused else [put(name, "Permute", s.part.permute(s.rows * width))]


def _gelu(s: Sizes) -> Work:
    return s.part.elementwise(s.rows * s.hidden, flops=_GELU_FLOPS)


def _backward(s: Sizes) -> list[KernelSpec]:
    part, put = s.part, placer("backward", "layer", s.model.layers)
    rows, width, hidden, queries, qkv = s.rows, s.width, s.hidden, s.query_width, s.qkv_width
    narrow_bias = part.column_sums(s.shared_rows, width, splits=_BIAS_SPLITS)
    bias_reduce = part.sum_of_partials(_BIAS_SPLITS, width)
    gelu_backward = part.elementwise(rows * hidden, inputs=2, flops=_GELU_BACKWARD_FLOPS)
    norm_backward = part.norm_backward(s.shared_rows, width)
    return [
        put("gelu_again", "GELU", _gelu(s)),  # recomputed to save memory
        put("down_dbias", "Bias", narrow_bias),
        put("down_dbias_reduce", "Bias reduce", bias_reduce),
        put("down_dinput_gemm", "GEMM", part.gemm(rows, hidden, width)),
        put("gelu_backward", "GELU", gelu_backward),
        put("down_dweight_gemm", "GEMM", part.gemm(width, hidden, rows, accumulate=True)),
        put("up_dbias", "Bias", part.column_sums(rows, hidden)),
        put("up_dinput_gemm", "GEMM", part.gemm(rows, width, hidden)),
        put("up_dweight_gemm", "GEMM", part.gemm(hidden, width, rows, accumulate=True)),
        put("layernorm_2_backward", "Layernorm", norm_backward),
        put("projection_dbias", "Bias", narrow_bias),
        put("projection_dbias_reduce", "Bias reduce", bias_reduce),
        put("projection_dinput_gemm", "GEMM", part.gemm(rows, queries, width)),
        put("projection_dweight_gemm", "GEMM", part.gemm(width, queries, rows, accumulate=True)),
        *_permuted(s, put, "unpermute_backward", queries),
        *attention_backward(s, put),
        *_permuted(s, put, "permute_backward", qkv),
        put("qkv_dbias", "Bias", part.column_sums(rows, qkv)),
        put("qkv_dinput_gemm", "GEMM", part.gemm(rows, width, qkv)),
        put("qkv_dweight_gemm", "GEMM", part.gemm(qkv, width, rows, accumulate=True)),
        put("layernorm_1_backward", "Layernorm", norm_backward),
    ]


def _embedding_backward(s: Sizes) -> list[KernelSpec]:
    part, put, rows, width = s.part, placer("embedding_backward"), s.shared_rows, s.width
    return [
        put("wpe_backward", "WPE", part.embedding_backward(rows, width, s.positions_touched, looked_up=False)),
        put("wte_backward", "WTE", part.embedding_backward(rows, width, s.tokens_touched)),
    ]
