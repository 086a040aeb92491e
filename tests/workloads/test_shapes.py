"""Which shapes there are: nonsense is refused with what would do, and all the rest gives sound numbers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from wastenot.core.errors import BadInputError
from wastenot.workloads.bound import GPUS, Roofline, find_roofline
from wastenot.workloads.build import build_shape, build_workload, list_workloads
from wastenot.workloads.kernel import DTYPE_BYTES, Workload
from wastenot.workloads.named import find_model
from wastenot.workloads.shape import (
    ATTENTIONS,
    PHASES,
    Shape,
    default_batch,
    name_of,
    tensor_parallel_degrees,
)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gpt3-xk", {}, ["'gpt3-xk'", "did you mean 'gpt3-xl'", "llama-70b"]),
        ("GPT3-XL", {}, ["did you mean 'gpt3-xl'"]),
        ("bert", {}, ["here are: gpt3-small"]),
        ("gpt3-xl", {"batch": 0}, ["batch 0", "from 1", "nearest is 1"]),
        ("gpt3-xl", {"batch": -3}, ["batch -3"]),
        ("gpt3-xl", {"batch": 1.5}, ["batch 1.5", "whole number"]),
        ("gpt3-xl", {"batch": True}, ["batch True"]),
        ("gpt3-xl", {"batch": 10**400}, ["batch", "16,777,216"]),
        ("gpt3-xl", {"sequence": 0}, ["sequence 0"]),
        ("gpt3-xl", {"tensor_parallel": 0}, ["tensor_parallel 0"]),
        ("gpt3-xl", {"tensor_parallel": 3}, ["16 heads", "nearest that does is 2", "1, 2, 4, 8, 16"]),
        ("gpt3-xl", {"tensor_parallel": 32}, ["nearest that does is 16"]),
        ("llama-70b", {"tensor_parallel": 16}, ["8 key-value heads", "nearest that does is 8"]),
        ("gpt3-xl", {"sequence_parallel": True}, ["tensor_parallel of at least 2"]),
        ("gpt3-xl", {"tensor_parallel": 2, "sequence_parallel": True, "sequence": 33}, ["sequence 33", "divisible by"]),
        (
            "gpt3-xl",
            {"tensor_parallel": 2, "sequence_parallel": True, "phase": "decode", "batch": 5},
            ["batch 5", "divisible by"],
        ),
        ("gpt3-xl", {"phase": "decoding"}, ["did you mean 'decode'", "training, prefill, decode"]),
        ("gpt3-xl", {"dtype": "bf17"}, ["did you mean 'bf16'"]),
        ("gpt3-xl", {"attention": "flashy"}, ["did you mean 'flash'"]),
        ("gpt3-xl", {"optimizer": "adam"}, ["did you mean 'adamw'"]),
        ("gpt3-xl", {"optimizer": "adamw", "phase": "decode"}, ["training only"]),
    ],
)
def test_nonsense_is_refused(name, options, says):
    with pytest.raises(BadInputError) as refused:
        build_workload(name, **options)
    for part in says:
        assert part in str(refused.value), refused.value


@st.composite
def runs(draw):
    model = draw(st.sampled_from(list_workloads()))
    degree = draw(st.sampled_from(tensor_parallel_degrees(model)))
    phase = draw(st.sampled_from(PHASES))
    split = degree > 1 and draw(st.booleans())
    times = degree if split else 1
    return model, Shape(
        phase=phase,
        batch=draw(st.integers(1, 500)) * (times if phase == "decode" else 1),
        sequence=draw(st.integers(1, 10_000)) * times,
        tensor_parallel=degree,
        sequence_parallel=split,
        dtype=draw(st.sampled_from(sorted(DTYPE_BYTES))),
        attention=draw(st.sampled_from(ATTENTIONS)),
        optimizer=draw(st.sampled_from(["none", "adamw"])) if phase == "training" else "none",
    )


@given(runs())
def test_every_allowed_shape_gives_sound_kernels(run):
    model, shape = run
    workload = build_workload(model.name, shape)
    names = [kernel.name for kernel in workload.kernels]
    assert len(set(names)) == len(names)
    for kernel in workload.kernels:
        assert math.isfinite(kernel.flops) and kernel.flops >= 0
        assert (kernel.flops == 0) == (
            kernel.op == "permute" or (kernel.op == "embedding" and kernel.name == "embedding")
        ), kernel
        assert 0 < kernel.bytes_read < math.inf and 0 < kernel.bytes_written < math.inf
        assert kernel.count in (1, model.layers) and all(size >= 1 for size in kernel.shape)
    order = ("embedding", "forward", "head", "loss", "backward", "embedding_backward", "optimizer")
    found = tuple(dict.fromkeys(kernel.pass_name for kernel in workload.kernels))
    assert found == tuple(name for name in order if name in found)


@given(runs())
def test_larger_batches_never_do_less(run):
    model, shape = run
    more = build_workload(model.name, replace(shape, batch=2 * shape.batch))
    for small, large in zip(build_workload(model.name, shape).kernels, more.kernels, strict=True):
        assert large.flops >= small.flops and large.bytes_moved >= small.bytes_moved


@given(runs(), runs())
def test_names_tell_runs_apart(one, other):
    assert (name_of(*one) == name_of(*other)) == (one == other)


def test_names_leave_out_what_is_default():
    assert build_workload("gpt3-xl").name == "gpt3-xl"
    assert build_workload("llama-8b", phase="decode").name == "llama-8b-decode"
    options = {"batch": 10, "sequence": 512, "tensor_parallel": 2, "sequence_parallel": True, "dtype": "fp16"}
    name = build_workload("gpt3-xl", **options, attention="flash", optimizer="adamw").name
    assert name == "gpt3-xl-batch10-seq512-tp2sp-fp16-flash-adamw"


def test_the_batch_is_by_default_that_of_the_phase():
    assert [build_shape(phase=phase).batch for phase in PHASES] == [default_batch(phase) for phase in PHASES]
    assert build_shape(phase="decode", batch=3).batch == 3
    given_shape = Shape(batch=7)
    assert build_workload("gpt3-xl", given_shape, sequence=64).name == "gpt3-xl-batch7-seq64"


def test_two_kernels_of_one_name_are_refused():
    kernel = build_workload("gpt3-xl").kernels[0]
    with pytest.raises(BadInputError, match="same name"):
        Workload("twice", (kernel, kernel), "")


def test_compute_bound_is_above_the_machines_ratio():
    kernel = build_workload("gpt3-xl").kernels[2]
    at = Roofline("here", "bf16", kernel.intensity * 1e9, 1e9, "test")
    assert at.bound(kernel) == "memory"  # larger than the machine's, not equal
    assert replace(at, peak_flops=at.peak_flops * 0.999).bound(kernel) == "compute"


def test_fingravs_kernels_are_bound_as_it_says():
    """Square products of 2K and more are compute-bound on MI300X, products with a vector memory-bound."""
    kernel = build_workload("gpt3-xl").kernels[2]
    machine = find_roofline("mi300x", "fp16")
    for size in (2048, 4096, 8192):
        square = replace(kernel, flops=2.0 * size**3, bytes_read=4.0 * size**2, bytes_written=2.0 * size**2)
        vector = replace(kernel, flops=2.0 * size**2, bytes_read=2.0 * (size**2 + size), bytes_written=2.0 * size)
        assert (machine.bound(square), machine.bound(vector)) == ("compute", "memory")


@pytest.mark.parametrize(
    ("name", "dtype", "units", "mhz"),
    [  # FLOPs in a clock from the vendor's architecture papers, times boost clock
        ("rtx-3080-ti", "fp32", 80 * 128 * 2, 1665),
        ("rtx-3080-ti", "bf16", 80 * 4 * 128 * 2 / 2, 1665),
        ("rtx-a4000", "fp32", 48 * 128 * 2, 1560),
        ("rtx-a4000", "bf16", 48 * 4 * 128 * 2, 1560),
        ("v100", "fp32", 80 * 64 * 2, 1530),
        ("v100", "fp16", 80 * 8 * 64 * 2, 1530),
        ("h200", "fp32", 132 * 128 * 2, 1980),
        ("gtx-980", "fp32", 2048 * 2, 1216),
        ("mi300x", "bf16", 304 * 2048, 2100),
        ("mi300x", "fp8", 304 * 4096, 2100),
    ],
)
def test_peaks_follow_from_units_and_clocks(name, dtype, units, mhz):
    assert find_roofline(name, dtype).peak_flops == pytest.approx(units * mhz * 1e6, rel=0.005)


def test_what_a_gpu_cannot_compute_is_computed_wider():
    assert find_roofline("v100", "bf16").dtype == "fp32"
    assert find_roofline("sim:rtx-3080-ti", "fp8").dtype == "bf16"
    assert find_roofline("gtx-980", "fp8").peak_flops == 4.98e12
    for name in GPUS:
        assert all(find_roofline(name, dtype).flops_per_byte > 1 for dtype in DTYPE_BYTES)


@pytest.mark.parametrize(
    ("device", "dtype", "says"),
    [
        ("sim:rtx-3080-tj", "bf16", "did you mean 'rtx-3080-ti'"),
        ("nvidia:0", "bf16", "there are: rtx-3080-ti"),
        ("", "bf16", "there are"),
        ("h200", "bf61", "did you mean 'bf16'"),
    ],
)
def test_unknown_devices_are_refused(device, dtype, says):
    with pytest.raises(BadInputError, match=says):
        find_roofline(device, dtype)


def test_sources_are_given():
    assert all(model.source for model in list_workloads()) and all(gpu.source for gpu in GPUS.values())
    assert find_model("gpt3-xl").heads == 16
