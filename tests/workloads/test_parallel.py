"""What tensor parallelism splits, what it leaves whole, and what sequence parallelism splits of that."""

import pytest

from wastenot.workloads.build import build_workload

WHOLE = {"embedding", "loss", "embedding_backward"}  # passes that tensor parallelism leaves


def shared(kernel):
    return kernel.pass_name in WHOLE or kernel.label in ("Layernorm", "RMSnorm", "Residual") or (
        kernel.name.startswith(("down_dbias", "projection_dbias"))
    )  # fmt: skip


@pytest.mark.parametrize("name", ["gpt3-xl", "llama-8b"])
@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("attention", ["unfused", "flash"])
def test_gpus_together_do_the_work_of_one(name, degree, attention):
    one = build_workload(name, attention=attention)
    part = build_workload(name, attention=attention, tensor_parallel=degree)
    for whole, share in zip(one.kernels, part.kernels, strict=True):
        assert share.flops * (1 if shared(whole) else degree) == whole.flops, whole.name


@pytest.mark.parametrize("name", ["gpt3-xl", "llama-8b"])
def test_sequence_parallelism_splits_the_rest(name):
    tensor = build_workload(name, tensor_parallel=2)
    both = build_workload(name, tensor_parallel=2, sequence_parallel=True)
    for whole, share in zip(tensor.kernels, both.kernels, strict=True):
        halved = shared(whole) and whole.label != "Bias reduce"
        assert share.flops * (2 if halved else 1) == whole.flops, whole.name
        if whole.label in ("Layernorm", "RMSnorm", "Residual"):
            assert share.bytes_moved == pytest.approx(whole.bytes_moved / 2, rel=1e-3)
    assert both.bytes_moved < tensor.bytes_moved


def test_each_gpu_updates_its_share():
    one, part = (
        build_workload("llama-8b", optimizer="adamw", tensor_parallel=degree).kernels[-2].shape[0] for degree in (1, 4)
    )
    norms = 2 * 4096
    assert part - norms == (one - norms) / 4


def test_serving_splits_the_output_layer_and_the_cache():
    one = {kernel.name: kernel for kernel in build_workload("llama-70b", phase="decode").kernels}
    part = {kernel.name: kernel for kernel in build_workload("llama-70b", phase="decode", tensor_parallel=8).kernels}
    for name in ("logits_gemm", "scores_gemm", "values_gemm"):
        assert part[name].flops * 8 == one[name].flops
    assert part["scores_gemm"].bytes_moved * 8 == one["scores_gemm"].bytes_moved
    padded = build_workload("gpt3-13b", phase="decode", tensor_parallel=40).kernels[-1]
    assert padded.shape[2] == 1258  # 50,304 words on 40 GPUs
