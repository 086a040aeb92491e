"""Traits of every kind of kernel on an H200, from measurements and what each kind leans on where little was measured.

    streaming  <-  softmax  <-  softmax-backward            products  <-  attention  <-  attention-cudnn
               <-  elementwise  <-  elementwise-special                <-  attention, backward  <-  ...

A kind leans the less on the next wider one the more of its kernels were measured. What this says of kernels that it never
saw is judged by benchmarks/bench_h200_fit.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presets.cards import ATTENTION_EFFICIENCY, H200
from presets.h200_data import Measured, by_work
from presets.h200_fit import FITTED, Lean, fit_kind
from wastenot.devices.simulated.kinds import kinds_of
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import OpTraits
from wastenot.workloads.attention import BACKENDS

MEMORY_J_PER_BYTE = 26.6e-12  # median over seven sweeps of lines through the memory power of their kernels


def fit_ops(operations: Sequence[Measured], device: DeviceParameters) -> dict[str, OpTraits]:
    """Traits of each kind of kernels, fitted to times and powers at the clocks that they ran at, and to both by clock.

    What streaming kinds have in common is fitted first, then each operation leans on it and each kind on a wider one.
    Attention leans on matrix products, backward on forward.
    """
    members: dict[str, list[Measured]] = {}
    operations = by_work(operations)
    for one in operations:
        for kind in kinds_of(one.kernel):
            members.setdefault(kind, []).append(one)
    streaming = [one for op in _STREAMING for one in members.get(op, ())]
    common = fit_kind(streaming, device, Lean(_STREAMING_GUESS, _COMMON_DOUBT))
    wide: dict[str, OpTraits] = {"": common}
    guess = _GEMM_GUESS
    for op in _MATRIX:
        if op == "attention":
            guess = guess.model_copy(update=_ATTENTION_GUESS)
        elif op == "attention_backward":
            guess = guess.model_copy(
                update={
                    "flops_per_s": _BACKWARD_OVER_FORWARD * guess.flops_per_s,
                    "row_s": _BACKWARD_ROW_S,
                    "latency_s": 4e-6,
                }
            )
        doubt = _GEMM_DOUBT if op == "gemm" else _ATTENTION_DOUBT
        guess = wide[op] = fit_kind(members.get(op, ()), device, Lean(guess, doubt))
    for op in dict.fromkeys(one.kernel.op for one in operations):
        if op not in wide:
            guess = common.model_copy(update=_SORTED_SUMS_GUESS) if op == "embedding_backward" else common
            wide[op] = fit_kind(members[op], device, Lean(guess, _DOUBT))
    for kind in ("residual", "backward", "backward-captured"):
        norms = [one for op in _NORMS for one in members.get(f"{op}-{kind}", ()) if _narrowest(one) == f"{op}-{kind}"]
        guess = wide["norm-backward"] if kind == "backward-captured" else common
        guess = common.model_copy(update=_NORM_BACKWARD_GUESS) if kind == "backward" else guess
        wide[f"norm-{kind}"] = fit_kind(norms, device, Lean(guess, _DOUBT))
    fitted: dict[str, OpTraits] = {}
    first = ("permute", "gemm")  # which other operations' kinds lean on
    for kind in sorted(members, key=lambda kind: (kind.partition("-")[0] not in first, kind.count("-"), kind)):
        own = [one for one in members[kind] if _narrowest(one) == kind]
        leaning_on = _lean_on(kind, wide | fitted)
        fitted[kind] = fit_kind(own, device, Lean(leaning_on, _NARROW_DOUBT)) if own else leaning_on
    for kind in _KINDS:
        if kind not in fitted:
            fitted[kind] = _lean_on(kind, wide | fitted)
    return {"default": fitted.get("elementwise", common)} | fitted


def _narrowest(one: Measured) -> str:
    return kinds_of(one.kernel)[0]


def _lean_on(kind: str, found: Mapping[str, OpTraits]) -> OpTraits:
    """Traits of the next wider kind that there are."""
    op, _, narrow = kind.partition("-")
    like = _LIKE.get(kind)
    if like is not None and like in found:
        return found[like]
    wider = [f"{op}-{narrow.rpartition('-')[0]}", f"{op}-{narrow.rpartition('-')[2]}", op] if "-" in narrow else [op]
    if narrow and op in _NORMS:
        wider.insert(0, f"norm-{narrow}")
    return next((found[each] for each in wider if each in found), found[""])


_KINDS = (
    "rmsnorm", "layernorm", "softmax", "permute", "reduce", "embedding", "embedding_backward", "optimizer", "gemm-skinny",
    *(f"{op}-{backend}" for op in ("attention", "attention_backward") for backend in BACKENDS),
    *(f"attention-{backend}-decode" for backend in BACKENDS), "attention-flash-by-head", "attention_backward-flash-by-head",
    *(f"{op}-{kind}" for op in ("layernorm", "rmsnorm") for kind in ("residual", "backward", "backward-captured")),
    "softmax-causal", "softmax-short", "softmax-wide", "softmax-backward", "softmax-backward-causal", "softmax-loss",
    "elementwise-broadcast", "elementwise-rotary", "elementwise-special", "elementwise-special-fused", "permute-copy",
    "permute-split", "permute-transpose", "permute-widen", "reduce-columns", "reduce-extremes", "reduce-partials",
)  # fmt: skip
"""Kinds that are stated even where none was measured, so that they have the traits of those that they lean on."""

_LIKE = {
    "elementwise-broadcast": "permute",  # the place of each element has to be found
    "softmax-short": "softmax-causal",
    "softmax-causal": "softmax-short",
    "softmax-backward-causal": "softmax-causal",
    "reduce": "",
    "reduce-partials": "",
    "attention-cudnn-decode": "gemm-skinny",
}
"""Kinds that are more like one of another operation than like others of their own."""

_NORMS = ("layernorm", "rmsnorm")
_MATRIX = ("gemm", "attention", "attention_backward")  # each leans on the one before it
_STREAMING = ("softmax", "layernorm", "rmsnorm", "elementwise", "reduce", "embedding")
_MULTIPROCESSORS, _BYTES_A_CLOCK = 132, 64  # what a Hopper multiprocessor takes from the L2 at most
_ATTENTION_FLOPS_PER_S = 0.35 * H200.tensor_tflops * 1e12  # FlashAttention-2 on Hopper: FlashAttention-3 paper, abstract
_ATTENTION_GUESS = {"flops_per_s": 1.3 * _ATTENTION_FLOPS_PER_S, "row_s": 0.0, "score_s": 3e-13, "latency_s": 2e-6}
_BACKWARD_ROW_S = 4e-10  # products and sums of a query that come before and after
_BACKWARD_OVER_FORWARD = ATTENTION_EFFICIENCY[1] / ATTENTION_EFFICIENCY[0]

# First guesses, and the standard deviation of the logarithm of each fitted one.
_STREAMING_GUESS = OpTraits(
    flops_per_s=8e12,
    bytes_per_s=4.4e12,
    issue_bytes_per_s=_MULTIPROCESSORS * _BYTES_A_CLOCK * 1.98e9,
    fixed_s=0.9e-6,
    latency_s=0.2e-6,
    ramp_s=1e-6,
    row_s=0.2e-9,
    turn_s=0.3e-9,
    score_s=0.0,
    clock_w=26.0,
    flop_j=6e-12,
    issue_byte_j=40e-12,
    byte_j=MEMORY_J_PER_BYTE,
)
_GEMM_GUESS = _STREAMING_GUESS.model_copy(
    update={
        "flops_per_s": 1000e12,
        "issue_bytes_per_s": 12e12,
        "flop_j": 0.4e-12,
        "turn_s": 0.5e-9,
        "tiles_at_once": _MULTIPROCESSORS,
    }
)


def _doubt(*values: float) -> dict[str, float]:
    return dict(zip(FITTED, values, strict=True))


# Rates of FLOPs, bytes, bytes issued; fixed, latency, ramp; row, turn, score; power of the clock; energy of FLOPs, bytes.
_COMMON_DOUBT = _doubt(1.0, 0.1, 0.5, 0.03, 0.1, 0.2, 0.5, 0.5, 0.1, 0.5, 1.0, 0.5)
_DOUBT = _doubt(1.5, 0.2, 1.0, 0.03, 0.3, 0.3, 1.5, 1.0, 0.1, 0.5, 1.5, 0.5)
_NARROW_DOUBT = _doubt(1.0, 0.3, 1.0, 0.03, 0.3, 0.3, 1.0, 0.7, 1.0, 0.3, 1.0, 0.5)
_GEMM_DOUBT = _doubt(0.3, 0.1, 0.7, 0.05, 0.4, 0.2, 0.1, 0.7, 0.1, 0.3, 0.7, 0.7)
_ATTENTION_DOUBT = _doubt(0.9, 0.1, 0.7, 0.05, 0.5, 0.2, 1.0, 0.1, 1.5, 0.3, 0.7, 0.7)
# Gradients of weights are a kernel of their own, which reads both inputs again and sums down the columns.
_NORM_BACKWARD_GUESS = {"bytes_per_s": 3e12, "latency_s": 2e-5}
_SORTED_SUMS_GUESS = {"turn_s": 15e-12, "flop_j": 2e-9}  # additions one after another into rows of a table
