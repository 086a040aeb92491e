"""Operations that natural_ops.py measures, to fit and judge sim:h200; some are held out, for judging only.

    PYTHONPATH=src python benchmarks/h200/operations.py data/h200/natural/operations.json    # what they compute

operations() gives dicts, most important first: name, cls, shape, flops, bytes_read, bytes_written, copies (buffer sets to
alternate between), held, and aten (the operation's name) with make(device) -> callable, or kernel for a built-in one.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import partial

import torch

from wastenot.workloads.build import build_workload
from wastenot.workloads.capturing.work import base_name, describe
from wastenot.workloads.capturing.workload_file import write_workload
from wastenot.workloads.kernel import Call, KernelSpec, Workload
from wastenot.workloads.operations.signature import sign
from wastenot.workloads.parts import Parts

A = torch.ops.aten
BF, F32 = torch.bfloat16, torch.float32
L2 = 60 << 20
LIMIT = 4.5e9
HELD_OUT = "held out"  # in place of a pass


def normal(device, *shape, dtype=BF):
    return torch.empty(shape, dtype=dtype, device=device).normal_()


def _copies(moved):
    return max(1, min(8, math.ceil(2.5 * L2 / max(moved, 1.0))))


class Fake:
    """Sizes only, for the FLOPs and bytes of an operation."""

    def __enter__(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        return self.mode.__enter__()

    def __exit__(self, *args):
        return self.mode.__exit__(*args)


def eager(name, cls, func, build, *, held=False, work=None):
    """One aten operation; build(device) -> (args, kwargs)."""
    if work is None:
        with Fake():
            args, kwargs = build("cpu")
            found = describe(func, args, kwargs, func(*args, **kwargs))
        shape, flops, read, written = found.shape, found.flops, found.bytes_read, found.bytes_written
        op = found.op
    else:
        shape, flops, read, written = work.shape, work.flops, work.bytes_read, work.bytes_written
        op = work.op

    def make(device):
        args, kwargs = build(device)
        return partial(func, *args, **kwargs)

    return {
        "name": name,
        "cls": cls,
        "op": op,
        "aten": str(func),
        "shape": shape,
        "flops": float(flops),
        "bytes_read": float(read),
        "bytes_written": float(written),
        "copies": _copies(read + written),
        "held": held,
        "make": make,
        "build": build,
        "func": func,
    }


# ---------------------------------------------------------------- attention


def attention(backend, batch, heads, groups, queries, keys, width, causal, backward, *, held=False, tokens_first=True):
    used = 0.5 if causal else 1.0
    part = Parts(2)
    work = (part.attention_backward if backward else part.attention)(
        batch * heads, batch * groups, queries, keys, width, used=used
    )
    name = f"attn-{backend}-{'b' if backward else 'f'}-{batch}x{heads}" + (f"g{groups}" if groups != heads else "")
    name += f"-{queries}" + (f"q{keys}" if keys != queries else "") + f"-d{width}" + ("-causal" if causal else "-full")

    def inputs(device):
        def one(number, length):
            if tokens_first:  # as models have it: (batch, tokens, heads, width), seen as (batch, heads, tokens, width)
                return normal(device, batch, length, number, width).transpose(1, 2)
            return normal(device, batch, number, length, width)

        query, key, value = one(heads, queries), one(groups, keys), one(groups, keys)
        if backend == "efficient" and groups != heads:
            key, value = (x.repeat_interleave(heads // groups, 1) for x in (key, value))
        return query, key, value

    def make(device):
        query, key, value = inputs(device)
        grad = torch.randn_like(query) if backward else None
        if backend == "flash":
            forward = partial(A._scaled_dot_product_flash_attention, query, key, value, 0.0, causal)
            if not backward:
                return forward
            out, lse, cq, ck, mq, mk, seed, offset, _ = forward()
            return partial(
                A._scaled_dot_product_flash_attention_backward,
                grad,
                query,
                key,
                value,
                out,
                lse,
                cq,
                ck,
                mq,
                mk,
                0.0,
                causal,
                seed,
                offset,
            )
        if backend == "cudnn":
            forward = partial(A._scaled_dot_product_cudnn_attention, query, key, value, None, backward, 0.0, causal, False)
            if not backward:
                return forward
            out, lse, cq, ck, mq, mk, seed, offset, _ = forward()
            bias = None
            return partial(
                A._scaled_dot_product_cudnn_attention_backward,
                grad,
                query,
                key,
                value,
                out,
                lse,
                seed,
                offset,
                bias,
                cq,
                ck,
                mq,
                mk,
                0.0,
                causal,
            )
        if backend == "efficient":
            forward = partial(A._scaled_dot_product_efficient_attention, query, key, value, None, backward, 0.0, causal)
            if not backward:
                return forward
            out, lse, seed, offset = forward()
            return partial(
                A._scaled_dot_product_efficient_attention_backward,
                grad,
                query,
                key,
                value,
                None,
                out,
                lse,
                seed,
                offset,
                0.0,
                [True, True, True, False],
                causal,
            )
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if backend == "default":  # whatever PyTorch takes by itself
            return partial(
                torch.nn.functional.scaled_dot_product_attention,
                query,
                key,
                value,
                is_causal=causal,
                enable_gqa=groups != heads,
            )

        def math_forward():
            with sdpa_kernel(SDPBackend.MATH):
                return torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, is_causal=causal, enable_gqa=groups != heads
                )

        return math_forward

    return {
        "name": name,
        "cls": f"attention_{backend}" + ("_backward" if backward else ""),
        "op": work.op,
        "aten": f"aten._scaled_dot_product_{backend}_attention" + ("_backward" if backward else "") + ".default",
        "shape": work.shape,
        "flops": work.flops,
        "bytes_read": float(work.bytes_read),
        "bytes_written": float(work.bytes_written),
        "copies": _copies(work.bytes_read + work.bytes_written),
        "held": held,
        "make": make,
        "backend": backend,
        "causal": causal,
    }


def attentions():
    first, rest = [], []
    for length in (4096, 1024, 2048, 8192, 512):
        batch = max(1, 16384 // length)
        for backend in ("cudnn", "flash", "efficient"):
            for backward in (False, True):
                first += [attention(backend, batch, 32, 32, length, length, 128, True, backward)]
    for backend in ("cudnn", "flash", "efficient"):
        for backward in (False, True):
            rest += [attention(backend, 4, 16, 16, length, length, 128, False, backward) for length in (1024, 4096)]
            rest += [attention(backend, 4, 32, 32, length, length, 64, True, backward) for length in (1024, 4096)]
            if backend != "efficient":
                rest += [attention(backend, 4, 32, 8, length, length, 128, True, backward) for length in (1024, 4096)]
    for backend in ("cudnn", "flash", "efficient"):
        rest += [
            attention(backend, 64, 32, 8 if backend != "efficient" else 32, 1, keys, 128, False, False)
            for keys in (1024, 4096)
        ]
    rest += [
        attention("flash", 40, 16, 16, 1024, 1024, 128, True, backward, tokens_first=False) for backward in (False, True)
    ]
    rest += [
        attention("default", 4, 32, 32, 4096, 4096, 128, True, False),
        attention("math", 4, 16, 16, 1024, 1024, 128, False, False),
    ]
    rest += [
        attention("flash", 1, 32, 8, 1024, 1024, 128, True, False),
        attention("cudnn", 1, 32, 8, 1024, 1024, 128, True, False),
    ]
    held = []  # Llama 70B and 13B, and lengths in between
    for backend in ("cudnn", "flash"):
        for backward in (False, True):
            held.append(attention(backend, 1, 64, 8, 4096, 4096, 128, True, backward, held=True))
            held.append(attention(backend, 2, 40, 40, 3072, 3072, 128, True, backward, held=True))
            held.append(attention(backend, 2, 32, 8, 8192, 8192, 128, True, backward, held=True))
    return first, rest, held


# ---------------------------------------------------------------- streaming kernels, as eager PyTorch runs them


def n(device, *shape, dtype=BF):
    return normal(device, *shape, dtype=dtype)


def pointwise():
    found = []

    def add(name, cls, func, build, held=False):
        found.append(eager(name, cls, func, build, held=held))

    for million in (32, 128, 512, 4):
        size = million << 20

        def two(d, size=size):
            return ((n(d, size), n(d, size)), {})

        def one(d, size=size):
            return ((n(d, size),), {})

        add(f"add-{million}Mi", "elementwise", A.add.Tensor, two)
        add(f"mul-{million}Mi", "elementwise", A.mul.Tensor, two, held=million == 32)
        add(f"silu-{million}Mi", "elementwise", A.silu.default, one)
        add(f"clone-{million}Mi", "permute", A.clone.default, one)
    size = 96 << 20

    def one(d):
        return ((n(d, size),), {})

    def two(d):
        return ((n(d, size), n(d, size)), {})

    for func in (
        A.relu.default,
        A.sigmoid.default,
        A.exp.default,
        A.tanh.default,
        A.gelu.default,
        A.neg.default,
        A.rsqrt.default,
    ):
        add(f"{func.__name__.split('.')[0]}-96Mi", "elementwise", func, one, held=func in (A.tanh.default, A.neg.default))
    add("gelu_tanh-96Mi", "elementwise", A.gelu.default, lambda d: ((n(d, size),), {"approximate": "tanh"}))
    add("silu_backward-96Mi", "elementwise", A.silu_backward.default, two)
    add("gelu_backward-96Mi", "elementwise", A.gelu_backward.default, two)
    add("sub-96Mi", "elementwise", A.sub.Tensor, two, held=True)
    add("div-96Mi", "elementwise", A.div.Tensor, two)
    add("scale-96Mi", "elementwise", A.mul.Tensor, lambda d: ((n(d, size), 0.5), {}))
    add("add_-96Mi", "elementwise", A.add_.Tensor, two)
    add("addcmul-96Mi", "elementwise", A.addcmul.default, lambda d: ((n(d, size), n(d, size), n(d, size)), {}))
    add("mul_row-16384x4096", "elementwise", A.mul.Tensor, lambda d: ((n(d, 16384, 4096), n(d, 4096)), {}))
    add("add_row-16384x8192", "elementwise", A.add.Tensor, lambda d: ((n(d, 16384, 8192), n(d, 8192)), {}), held=True)
    add("to_fp32-96Mi", "permute", A._to_copy.default, lambda d: ((n(d, size),), {"dtype": F32}))
    add("to_bf16-96Mi", "permute", A._to_copy.default, lambda d: ((n(d, size, dtype=F32),), {"dtype": BF}))
    add("add_fp32-64Mi", "elementwise", A.add.Tensor, lambda d: ((n(d, 64 << 20, dtype=F32), n(d, 64 << 20, dtype=F32)), {}))
    add(
        "where-64Mi",
        "elementwise",
        A.where.self,
        lambda d: ((torch.ones(64 << 20, dtype=torch.bool, device=d), n(d, 64 << 20), n(d, 64 << 20)), {}),
    )
    add(
        "masked_fill-64Mi",
        "elementwise",
        A.masked_fill.Scalar,
        lambda d: ((n(d, 64 << 20), torch.zeros(64 << 20, dtype=torch.bool, device=d), 0.0), {}),
    )
    add("fill_-128Mi", "elementwise", A.fill_.Scalar, lambda d: ((n(d, 128 << 20), 1.0), {}))
    add("pow2-96Mi", "elementwise", A.pow.Tensor_Scalar, lambda d: ((n(d, size), 2), {}))
    return found


def layouts():
    found = []

    def add(name, view, build, held=False):
        def whole(d):
            return (view(build(d)),), {"memory_format": torch.contiguous_format}

        found.append(eager(name, "permute", A.clone.default, whole, held=held))

    for batch, tokens, heads, width in (
        (16, 1024, 32, 128),
        (8, 4096, 32, 128),
        (40, 1024, 16, 128),
        (16, 1024, 32, 64),
        (4, 2048, 8, 128),
    ):
        shape = (batch, tokens, heads, width)
        add(
            f"heads-{batch}x{tokens}x{heads}x{width}",
            lambda x: x.transpose(1, 2),
            lambda d, s=shape: n(d, *s),
            held=(batch, heads) == (8, 32),
        )
    add("qkv_split-40x1024x3x16x128", lambda x: x.permute(2, 0, 3, 1, 4), lambda d: n(d, 40, 1024, 3, 16, 128))
    add("qkv_join-3x40x16x1024x128", lambda x: x.permute(1, 3, 0, 2, 4), lambda d: n(d, 3, 40, 16, 1024, 128))
    add("transpose-8192x8192", lambda x: x.t(), lambda d: n(d, 8192, 8192))
    add("transpose-4096x14336", lambda x: x.t(), lambda d: n(d, 4096, 14336), held=True)
    add("transpose-2x16384x4096", lambda x: x.transpose(1, 2), lambda d: n(d, 2, 16384, 4096))
    add("keys_t-16x32x1024x128", lambda x: x.transpose(2, 3), lambda d: n(d, 16, 32, 1024, 128))
    found.append(
        eager(
            "cat_heads-16x32x1024x64",
            "permute",
            A.cat.default,
            lambda d: (([n(d, 16, 32, 1024, 64), n(d, 16, 32, 1024, 64)], -1), {}),
        )
    )
    found.append(
        eager("cat-2x16384x4096", "permute", A.cat.default, lambda d: (([n(d, 16384, 4096), n(d, 16384, 4096)], 0), {}))
    )
    found.append(
        eager(
            "half_of_rows-16384x28672",
            "permute",
            A.clone.default,
            lambda d: ((n(d, 16384, 28672)[:, :14336],), {"memory_format": torch.contiguous_format}),
        )
    )
    return found


def rows():
    found = []

    def add(name, cls, func, build, held=False):
        found.append(eager(name, cls, func, build, held=held))

    for high, wide, held in (
        (16384, 4096, False),
        (65536, 1024, False),
        (8192, 14336, False),
        (4096, 32000, False),
        (2048, 128256, False),
        (131072, 512, False),
        (32768, 2048, True),
        (1024, 4096, False),
    ):
        add(
            f"softmax-{high}x{wide}",
            "softmax",
            A._softmax.default,
            lambda d, h=high, w=wide: ((n(d, h, w), -1, False), {}),
            held=held,
        )
        if wide in (4096, 1024, 32000) and high > 1024:
            add(
                f"softmax_backward-{high}x{wide}",
                "softmax",
                A._softmax_backward_data.default,
                lambda d, h=high, w=wide: ((n(d, h, w), torch.softmax(n(d, h, w), -1), -1, BF), {}),
                held=wide == 32000,
            )
    add("log_softmax-4096x128256", "softmax", A._log_softmax.default, lambda d: ((n(d, 4096, 128256), -1, False), {}))
    for high, wide, held in (
        (16384, 4096, False),
        (16384, 8192, True),
        (40960, 2048, False),
        (65536, 1024, False),
        (16384, 5120, True),
        (2048, 4096, False),
        (32768, 768, False),
    ):
        add(
            f"rms_norm-{high}x{wide}",
            "rmsnorm",
            A._fused_rms_norm.default,
            lambda d, h=high, w=wide: ((n(d, h, w), [w], n(d, w), 1e-5), {}),
            held=held,
        )
        if wide != 768:
            add(
                f"layer_norm-{high}x{wide}",
                "layernorm",
                A.native_layer_norm.default,
                lambda d, h=high, w=wide: ((n(d, h, w), [w], n(d, w), n(d, w), 1e-5), {}),
                held=held,
            )
    for high, wide, held in ((16384, 4096, False), (40960, 2048, False), (16384, 8192, True)):
        add(
            f"layer_norm_backward-{high}x{wide}",
            "layernorm",
            A.native_layer_norm_backward.default,
            lambda d, h=high, w=wide: (
                (
                    n(d, h, w),
                    n(d, h, w),
                    [w],
                    n(d, h, 1, dtype=F32),
                    n(d, h, 1, dtype=F32).abs(),
                    n(d, w),
                    n(d, w),
                    [True, True, True],
                ),
                {},
            ),
            held=held,
        )
        add(
            f"rms_norm_backward-{high}x{wide}",
            "rmsnorm",
            A._fused_rms_norm_backward.default,
            lambda d, h=high, w=wide: (
                (n(d, h, w), n(d, h, w), [w], n(d, h, 1, dtype=F32).abs(), n(d, w), [True, True]),
                {},
            ),
            held=held,
        )
    for high, wide, held in (
        (16384, 4096, False),
        (16384, 14336, False),
        (40960, 8192, False),
        (4096, 1024, False),
        (16384, 8192, True),
    ):
        add(
            f"sum_columns-{high}x{wide}",
            "reduce",
            A.sum.dim_IntList,
            lambda d, h=high, w=wide: ((n(d, h, w), [0]), {}),
            held=held,
        )
        add(
            f"sum_rows-{high}x{wide}",
            "reduce",
            A.sum.dim_IntList,
            lambda d, h=high, w=wide: ((n(d, h, w), [1]), {}),
            held=held,
        )
    add("mean_rows_fp32-16384x4096", "reduce", A.mean.dim, lambda d: ((n(d, 16384, 4096, dtype=F32), [-1], True), {}))
    add("amax-8192x14336", "reduce", A.amax.default, lambda d: ((n(d, 8192, 14336), [-1]), {}))
    add("argmax-1024x128256", "reduce", A.argmax.default, lambda d: ((n(d, 1024, 128256), -1), {}))
    add("norm-128Mi", "reduce", A.linalg_vector_norm.default, lambda d: ((n(d, 128 << 20),), {}))
    add(
        "embedding-16384x4096",
        "embedding",
        A.embedding.default,
        lambda d: ((n(d, 128256, 4096), torch.randint(128256, (16384,), device=d)), {}),
    )
    add(
        "embedding-65536x2048",
        "embedding",
        A.embedding.default,
        lambda d: ((n(d, 50304, 2048), torch.randint(50304, (65536,), device=d)), {}),
        held=True,
    )
    add(
        "embedding_backward-16384x4096",
        "embedding_backward",
        A.embedding_dense_backward.default,
        lambda d: ((n(d, 16384, 4096), torch.randint(128256, (16384,), device=d), 128256, -1, False), {}),
    )
    add(
        "index_select-16384x4096",
        "embedding",
        A.index_select.default,
        lambda d: ((n(d, 65536, 4096), 0, torch.randint(65536, (16384,), device=d)), {}),
    )
    return found


def optimizers():
    def build(d, count=8, size=16 << 20, dtype=F32):
        lists = [[n(d, size, dtype=dtype) for _ in range(count)] for _ in range(3)]
        squares = [n(d, size, dtype=dtype).square_() for _ in range(count)]
        steps = [torch.full((), 100.0, device=d) for _ in range(count)]
        return (*lists[:3], squares, [], steps), {
            "lr": 1e-4,
            "beta1": 0.9,
            "beta2": 0.95,
            "weight_decay": 0.1,
            "eps": 1e-8,
            "amsgrad": False,
            "maximize": False,
        }

    return [
        eager("fused_adamw-128Mi", "optimizer", A._fused_adamw_.default, build),
        eager(
            "foreach_mul-128Mi",
            "optimizer",
            A._foreach_mul_.Scalar,
            lambda d: (([n(d, 16 << 20, dtype=F32) for _ in range(8)], 0.999), {}),
        ),
    ]


# ---------------------------------------------------------------- products


def gemm(name, m, nn, k, batches=1, layout="nt", held=False):
    work = Parts(2).gemm(m, nn, k, batches)

    def build(d):
        left = n(d, batches, k, m).transpose(1, 2) if layout[0] == "t" else n(d, batches, m, k)
        right = n(d, batches, nn, k).transpose(1, 2) if layout[1] == "t" else n(d, batches, k, nn)
        return ((left, right) if batches > 1 else (left[0], right[0])), {}

    return eager(name, "gemm", A.bmm.default if batches > 1 else A.mm.default, build, held=held, work=work)


def products():
    first, rest, held = [], [], []
    for m in (1, 16, 64, 256, 512):
        rest.append(gemm(f"mm-{m}x4096x4096", m, 4096, 4096))
        rest.append(gemm(f"mm-{m}x28672x4096", m, 28672, 4096))
        if m in (1, 16, 256):
            rest.append(gemm(f"mm-{m}x2048x2048", m, 2048, 2048))
            held.append(gemm(f"mm-{m}x8192x8192", m, 8192, 8192, held=True))
            held.append(gemm(f"mm-{m}x5120x13824", m, 5120, 13824, held=True))
    for size in (512, 1024, 2048, 3072, 4096, 8192):
        first += [gemm(f"mm-{size}^3", size, size, size, held=size == 3072)]
    first += [
        gemm("mm-nn-4096x14336x4096", 4096, 14336, 4096, layout="nn"),
        gemm("mm-tn-4096x4096x16384", 4096, 4096, 16384, layout="tn"),
        gemm("mm-16384x4096x4096", 16384, 4096, 4096),
        gemm("mm-16384x2048x2048", 16384, 2048, 2048),
        gemm("mm-8192x6144x4096", 8192, 6144, 4096),
        gemm("mm-2048x128256x4096", 2048, 128256, 4096),
        gemm("mm-8192x1024x1024", 8192, 1024, 1024),
        gemm("mm-1536x1536x6144", 1536, 1536, 6144),
        gemm("bmm-64x1024x1024x128", 1024, 1024, 128, 64),
        gemm("bmm-64x1024x128x1024-nn", 1024, 128, 1024, 64, layout="nn"),
        gemm("bmm-128x2048x2048x64", 2048, 2048, 64, 128),
        gemm("bmm-32x2048x64x2048-nn", 2048, 64, 2048, 32, layout="nn"),
    ]
    held += [
        gemm("mm-8192x8192x28672", 8192, 8192, 28672, held=True),
        gemm("mm-4096x13824x5120", 4096, 13824, 5120, held=True),
        gemm("mm-4096x10240x8192", 4096, 10240, 8192, held=True),
        gemm("bmm-160x1024x1024x128", 1024, 1024, 128, 160, held=True),
    ]
    return first, rest, held


# ---------------------------------------------------------------- kernels of built-in workloads


def built_in(name, *, held=False, only=None, **shape):
    workload = build_workload(name, **shape)
    found = []
    for kernel in workload.kernels:
        if only is not None and kernel.op not in only:
            continue
        found.append(
            {
                "name": f"{workload.name}:{kernel.name}",
                "cls": kernel.op,
                "op": kernel.op,
                "aten": None,
                "shape": kernel.shape,
                "flops": kernel.flops,
                "bytes_read": kernel.bytes_read,
                "bytes_written": kernel.bytes_written,
                "copies": _copies(kernel.bytes_moved),
                "held": held,
                "kernel": kernel,
            }
        )
    return found


def built_ins():
    light = {
        "softmax",
        "layernorm",
        "rmsnorm",
        "elementwise",
        "permute",
        "reduce",
        "embedding",
        "embedding_backward",
        "optimizer",
    }
    first = built_in("gpt3-xl", only=light)
    first += built_in("llama-8b", batch=4, sequence=1024, attention="flash", optimizer="adamw", only=light)
    later = built_in("gpt3-xl", only={"gemm"}) + built_in("llama-8b", batch=4, attention="flash", only={"gemm"})
    later += built_in("llama-1b", batch=16, attention="unfused", only=light | {"gemm"})  # lowest priority of all from here
    later += built_in("llama-8b", phase="decode", attention="flash")
    later += built_in("gpt3-medium", batch=16, only=light)
    held = built_in("llama-3b", batch=8, attention="unfused", held=True)
    held += built_in("llama-13b", batch=4, attention="flash", held=True, only=light)
    held += built_in("llama-70b", phase="prefill", batch=4, tensor_parallel=4, attention="flash", held=True)
    held += built_in("llama-70b", phase="decode", batch=32, tensor_parallel=4, attention="flash", held=True)
    return first, later, held


def operations():
    attention_first, attention_rest, attention_held = attentions()
    product_first, product_rest, product_held = products()
    built_first, built_later, built_held = built_ins()
    streaming = pointwise() + layouts() + rows() + optimizers()
    ordered = [
        *built_first,
        *streaming,
        *attention_first,
        *product_first,
        *attention_held,
        *attention_rest,
        *built_held,
        *product_rest,
        *product_held,
        *built_later,
    ]
    found, seen = [], set()
    for each in ordered:
        if each["bytes_read"] + each["bytes_written"] > LIMIT:
            continue
        kernel = each.get("kernel")
        kind = (
            None
            if kernel is None
            else (
                kernel.op,
                kernel.shape,
                kernel.bytes_read,
                kernel.bytes_written,
                kernel.flops,
                "backward" in kernel.name,
                kernel.name if kernel.op in ("gemm", "permute", "elementwise") else "",
            )
        )
        if kind is not None:
            if kernel.op == "gemm":
                ending = next(
                    (
                        e
                        for e in ("dinput_gemm", "dweight_gemm", "values_gemm", "dvalues_gemm", "dquery_gemm", "dkey_gemm")
                        if kernel.name.endswith(e)
                    ),
                    "gemm",
                )
                kind = (*kind[:-1], ending)
            elif kernel.name == "gelu_again":
                continue
            if kind in seen:
                continue
            seen.add(kind)
        found.append(each)
    return found


def spec_of(each):
    """What an operation computes, as a captured kernel, or as the built-in one that it is; None of several in one."""
    if "kernel" in each:
        kernel = each["kernel"]
        return replace(kernel, name=each["name"], count=1, pass_name=HELD_OUT if each["held"] else kernel.pass_name)
    if each["cls"] in ("attention_math", "attention_default"):
        return None
    with Fake():
        if "build" in each:
            func = each["func"]
            args, kwargs = each["build"]("cpu")
        else:
            call = each["make"]("cuda")
            func, args, kwargs = call.func.default, call.args, call.keywords
        name = base_name(func)
        arguments = sign(args, kwargs).with_values(name, args)
        found = describe(func, args, kwargs, func(*args, **kwargs))
    return KernelSpec(
        each["name"], name.strip("_"), found.op, found.shape, found.flops, found.bytes_read, found.bytes_written,
        HELD_OUT if each["held"] else "forward", None, 1, call=Call(str(func), arguments), element_bytes=found.element_bytes,
    )  # fmt: skip


def main(path):
    kernels = tuple(spec for each in operations() if (spec := spec_of(each)) is not None)
    description = "operations that were measured alone and in wakes of products"
    write_workload(Workload("h200-operations", kernels, description, captured_on="cuda"), path)
    print(len(kernels), "operations")


if __name__ == "__main__":
    main(*sys.argv[1:])
