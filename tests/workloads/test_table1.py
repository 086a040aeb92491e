"""GPT-3 XL's training iteration is the 46 kernels of the paper's Table 1, in its groups and order."""

from itertools import groupby

import pytest

from wastenot.workloads.build import build_workload

# Copied from the table, group by group.
TABLE_1 = {
    "embedding": ["WTE & WPE", "Layernorm"],
    "forward": [
        "GEMM", "Permute", "GEMM", "Softmax", "GEMM", "Permute", "GEMM", "Residual", "GEMM", "GELU", "GEMM", "Residual",
    ],
    "loss": ["GEMM", "Softmax", "GEMM", "GEMM", "Layernorm"],
    "backward": [
        "GELU", "Bias", "Bias reduce", "GEMM", "GELU", "GEMM", "Bias", "GEMM", "GEMM", "Layernorm", "Bias",
        "Bias reduce", "GEMM", "GEMM", "Permute", "GEMM", "GEMM", "Softmax", "GEMM", "GEMM", "Permute", "Bias", "GEMM",
        "GEMM", "Layernorm",
    ],
    "embedding_backward": ["WPE", "WTE"],
}  # fmt: skip
XL = build_workload("gpt3-xl")


def groups(workload):
    return {name: list(kernels) for name, kernels in groupby(workload.kernels, key=lambda kernel: kernel.pass_name)}


def test_labels_groups_and_order():
    found = {name: [kernel.label for kernel in kernels] for name, kernels in groups(XL).items()}
    assert found == TABLE_1 and list(found) == list(TABLE_1)
    assert [len(labels) for labels in found.values()] == [2, 12, 5, 25, 2] and len(XL.kernels) == 46


def test_counts_blocks_and_places():
    for kernel in XL.kernels:
        in_layer = kernel.pass_name in ("forward", "backward")
        assert (kernel.count, kernel.block) == ((24, "layer") if in_layer else (1, None)), kernel
    assert [kernel.place for kernel in XL.kernels] == list(range(1, 47))
    assert XL.calls == 37 * 24 + 9


def test_parallelism_and_batch_leave_the_kernels():
    names = [kernel.name for kernel in XL.kernels]
    for options in ({"batch": 1}, {"tensor_parallel": 16}, {"tensor_parallel": 2, "sequence_parallel": True}):
        assert [kernel.name for kernel in build_workload("gpt3-xl", **options).kernels] == names


def test_flash_attention_takes_the_place_of_products_softmax_and_permutes():
    found = groups(build_workload("gpt3-xl", attention="flash"))
    assert {name: len(kernels) for name, kernels in found.items()} == {
        "embedding": 2, "forward": 8, "loss": 5, "backward": 19, "embedding_backward": 2,
    }  # fmt: skip
    forward = [kernel.label for kernel in found["forward"]]
    assert forward == ["GEMM", "Attention", "GEMM", "Residual", "GEMM", "GELU", "GEMM", "Residual"]


@pytest.mark.parametrize("name", ["gpt3-xl", "llama-1b"])
def test_adamw_is_a_pass_at_the_end(name):
    plain, updated = build_workload(name), build_workload(name, optimizer="adamw")
    assert updated.kernels[: len(plain.kernels)] == plain.kernels
    tail = updated.kernels[len(plain.kernels) :]
    assert [(kernel.pass_name, kernel.label, kernel.op) for kernel in tail] == [("optimizer", "AdamW", "optimizer")] * 2
