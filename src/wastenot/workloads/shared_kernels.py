"""The kernels that GPT-3 and Llama have in common: attention, the output layer, the loss and the optimizer.

Attention is between queries, keys and values that are laid out for it: unfused, scores in memory; or in one kernel. Query
heads that share a key head (grouped-query attention) are the rows of one product, so that keys and values are read once for
all of them.
"""

from __future__ import annotations

from wastenot.workloads.attention import fused_name
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.parts import Place, placer
from wastenot.workloads.sizes import Sizes


def attention(s: Sizes, put: Place) -> list[KernelSpec]:
    """Scores, softmax, weighted values. In decoding, keys and values are the whole cache."""
    part, keys, width = s.part, s.keys, s.head_width
    if s.fused:
        work = part.attention(s.heads, s.groups, s.queries, keys, width, used=s.used)
        return [put(fused_name(s.shape.attention), "Attention", work)]
    rows = _rows_of_group(s)
    return [
        put("scores_gemm", "GEMM", part.gemm(rows, keys, width, s.groups)),
        put("softmax", "Softmax", part.softmax(s.heads * s.queries, keys, used=s.used)),
        put("values_gemm", "GEMM", part.gemm(rows, width, keys, s.groups)),
    ]


def attention_backward(s: Sizes, put: Place) -> list[KernelSpec]:
    """Gradients of scores, values, queries and keys."""
    part, keys, width = s.part, s.keys, s.head_width
    if s.fused:
        work = part.attention_backward(s.heads, s.groups, s.queries, keys, width, used=s.used)
        return [put(fused_name(s.shape.attention, backward=True), "Attention", work)]
    rows = _rows_of_group(s)
    return [
        put("values_dscores_gemm", "GEMM", part.gemm(rows, keys, width, s.groups)),
        put("values_dvalues_gemm", "GEMM", part.gemm(keys, width, rows, s.groups)),
        put("softmax_backward", "Softmax", part.softmax_backward(s.heads * s.queries, keys, used=s.used)),
        put("scores_dquery_gemm", "GEMM", part.gemm(rows, width, keys, s.groups)),
        put("scores_dkey_gemm", "GEMM", part.gemm(keys, width, rows, s.groups)),
    ]


def _rows_of_group(s: Sizes) -> int:
    return s.queries * s.heads // s.groups


def head(s: Sizes) -> KernelSpec:
    """The output layer in serving."""
    return placer("head")("logits_gemm", "GEMM", s.part.gemm(s.logit_rows, s.logit_columns, s.width))


def loss(s: Sizes) -> list[KernelSpec]:
    """The output layer in training, the loss, and their gradients; the last norm's gradient comes next."""
    part, put, rows, words, width = s.part, placer("loss"), s.logit_rows, s.logit_columns, s.width
    return [
        put("logits_gemm", "GEMM", part.gemm(rows, words, width)),
        put("cross_entropy", "Softmax", part.cross_entropy(rows, words)),
        put("logits_dinput_gemm", "GEMM", part.gemm(rows, width, words)),
        put("logits_dweight_gemm", "GEMM", part.gemm(words, width, rows, accumulate=True)),
    ]


def optimizer(s: Sizes) -> list[KernelSpec]:
    """The optimizer pass, where there is one."""
    if s.shape.optimizer == "none":
        return []
    layer = placer("optimizer", "layer_update", s.model.layers)
    return [
        layer("adamw_layer", "AdamW", s.part.adamw(s.model.layer_parameters(s.degree))),
        placer("optimizer")("adamw_embedding", "AdamW", s.part.adamw(s.model.outer_parameters(s.keys))),
    ]
