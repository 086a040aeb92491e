from __future__ import annotations

import pytest

from wastenot.core.errors import BadInputError
from wastenot.workloads.build import build_workload
from wastenot.workloads.serving_steps import StepPart, StepShapes, part_of, step_parts


def test_parts_are_the_kernels_of_the_phases() -> None:
    shapes = StepShapes((1, 64), (1, 64), (1, 64), (1, 512), (1, 64), (0, 512))
    parts = {(part.name, part.size, part.at): kernel for part, kernel in step_parts("llama-8b", shapes)}
    decode = build_workload("llama-8b", phase="decode", batch=64, sequence=512, attention="flash").kernels
    prefill = build_workload("llama-8b", phase="prefill", batch=1, sequence=64, attention="flash").kernels
    sizes = {"attention": ("decode", (64, 512)), "logits_gemm": ("sequences", (64,))}
    for kernel in decode:
        size, at = sizes.get(kernel.name, ("tokens", (64,)))
        assert parts[kernel.name, size, at].shape == kernel.shape
        assert parts[kernel.name, size, at].flops == kernel.flops
    sizes = {"attention": ("prefill", (64, 0)), "logits_gemm": ("sequences", (1,))}
    for kernel in prefill:
        size, at = sizes.get(kernel.name, ("tokens", (64,)))
        assert (parts[kernel.name, size, at].shape, parts[kernel.name, size, at].flops) == (kernel.shape, kernel.flops)


def test_attention_of_a_chunk_counts_what_is_before_it() -> None:
    shapes = StepShapes((64,), (64,), (1,), (1,), (64,), (0, 512))
    work = {part.at: kernel for part, kernel in step_parts("llama-8b", shapes) if part.size == "prefill"}
    heads, width = 32, 128
    assert work[64, 0].flops == 4.0 * heads * width * 64 * 32
    assert work[64, 512].flops == pytest.approx(4.0 * heads * width * 64 * (512 + 32))


@pytest.mark.parametrize("size", ["tokens", "sequences", "decode", "prefill"])
def test_names_say_what_a_part_is(size: str) -> None:
    part = StepPart("attention", size, (3, 70) if size in ("decode", "prefill") else (3,), 32)  # type: ignore[arg-type]
    assert part_of(part.called, 32) == part


@pytest.mark.parametrize("name", ["qkv_gemm", "attention of 3 new tokens", "qkv_gemm of x tokens", ""])
def test_other_kernels_are_no_parts(name: str) -> None:
    assert part_of(name, 1) is None


def test_shapes_reach_what_is_asked_for() -> None:
    shapes = StepShapes.up_to(3000, 100, 5000)
    assert shapes.product_tokens[-1] == shapes.smooth_tokens[-1] == shapes.prompt_tokens[-1] == 3000
    assert shapes.sequences[-1] == 100 and shapes.context[-1] == shapes.past_tokens[-1] == 5000
    assert {1024, 1025} <= set(shapes.product_tokens)
    assert shapes.past_tokens[0] == 0


def test_shapes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInputError, match="batch 0"):
        StepShapes.up_to(batch=0)
    with pytest.raises(BadInputError, match="must not be above"):
        StepShapes.up_to(tokens=100, batch=101)
