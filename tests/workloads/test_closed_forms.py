"""FLOPs and bytes against closed forms, written here from the models' published sizes."""

import pytest

from wastenot.workloads.build import build_workload, list_workloads
from wastenot.workloads.named import find_model

# layers, width, query heads, key heads, head width, feed-forward width, vocabulary (padded)
GPT3 = {
    "gpt3-small": (12, 768, 12, 12, 64, 3072, 50304),
    "gpt3-xl": (24, 2048, 16, 16, 128, 8192, 50304),
    "gpt3-175b": (96, 12288, 96, 96, 128, 49152, 50304),
}
LLAMA = {
    "llama-1b": (16, 2048, 32, 8, 64, 8192, 128256),
    "llama-7b": (32, 4096, 32, 32, 128, 11008, 32000),
    "llama-70b": (80, 8192, 64, 8, 128, 28672, 128256),
}
ALL = GPT3 | LLAMA


def products(workload, *passes):
    return sum(
        kernel.count * kernel.flops
        for kernel in workload.kernels
        if kernel.op == "gemm" and kernel.pass_name in (passes or (kernel.pass_name,))
    )


def named(workload):
    return {kernel.name: kernel for kernel in workload.kernels}


@pytest.mark.parametrize(
    ("name", "published", "within"),
    [
        ("gpt3-small", 125e6, 0.01), ("gpt3-medium", 350e6, 0.02), ("gpt3-large", 760e6, 0.01),
        ("gpt3-xl", 1.3e9, 0.015), ("gpt3-2.7b", 2.65e9, 0.01), ("gpt3-6.7b", 6.7e9, 0.01), ("gpt3-13b", 13e9, 0.02),
        ("gpt3-175b", 175e9, 0.01), ("llama-1b", 1.2358e9, 1e-4), ("llama-3b", 3.2127e9, 1e-4),
        ("llama-7b", 6.7384e9, 1e-4), ("llama-8b", 8.0303e9, 1e-4), ("llama-13b", 13.0159e9, 1e-4),
        ("llama-70b", 70.5537e9, 1e-4),
    ],
)  # fmt: skip
def test_parameters_are_those_published(name, published, within):
    assert find_model(name).parameters == pytest.approx(published, rel=within)


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_forward_products(name):
    layers, width, *_, vocabulary = GPT3[name]
    batch, sequence = 3, 512
    workload = build_workload(name, batch=batch, sequence=sequence)
    rows = batch * sequence
    layer = 2 * rows * 12 * width**2 + 4 * batch * sequence**2 * width
    assert products(workload, "forward") == layers * layer
    assert named(workload)["logits_gemm"].flops == 2 * rows * width * vocabulary


@pytest.mark.parametrize("name", LLAMA)
def test_llama_forward_products(name):
    layers, width, heads, groups, head_width, hidden, vocabulary = LLAMA[name]
    batch, sequence = 2, 2048
    workload = build_workload(name, batch=batch, sequence=sequence)
    weights = width * head_width * (2 * heads + 2 * groups) + 3 * width * hidden
    layer = 2 * batch * sequence * weights + 4 * batch * sequence**2 * heads * head_width
    assert products(workload, "forward") == layers * layer
    assert named(workload)["logits_gemm"].flops == 2 * batch * sequence * width * vocabulary


@pytest.mark.parametrize("name", ALL)
def test_training_is_three_times_the_forward_products(name):
    workload = build_workload(name)
    assert products(workload, "backward") == 2 * products(workload, "forward")
    assert products(workload) == 3 * (products(workload, "forward") + named(workload)["logits_gemm"].flops)


def test_products_are_nearly_all_and_six_flops_a_parameter_and_token():
    workload, model = build_workload("gpt3-xl"), find_model("gpt3-xl")
    assert 0.99 < products(workload) / workload.flops < 1
    attention = 3 * 24 * 4 * 40 * 1024**2 * 2048
    assert products(workload) - attention == pytest.approx(6 * model.parameters * 40 * 1024, rel=0.005)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_serving_predicts_only_the_next_token(name, phase):
    logits = build_workload(name, phase=phase, batch=5, sequence=256).kernels[-1]
    assert (logits.name, logits.shape) == ("logits_gemm", (1, 5, ALL[name][-1], ALL[name][1]))


def test_bytes_of_a_product():
    kernels = named(build_workload("gpt3-small", batch=2, sequence=128))
    rows, width = 256, 768
    qkv, dweight = kernels["qkv_gemm"], kernels["qkv_dweight_gemm"]
    assert qkv.bytes_read == 2 * (rows * width + width * 3 * width)
    assert qkv.bytes_written == 2 * rows * 3 * width
    assert dweight.bytes_read == 2 * (3 * width * rows + rows * width + 3 * width**2)  # adds to the old gradient
    assert dweight.bytes_written == 2 * 3 * width**2


def test_bytes_of_what_is_not_a_product():
    kernels = named(build_workload("gpt3-small", batch=2, sequence=128, optimizer="adamw"))
    rows, width, scores = 256, 768, 2 * 12 * 128 * 128
    expected = {
        "wte_wpe": (2 * (256 + 128) * width + 4 * rows, 2 * rows * width),
        "layernorm_first": (2 * rows * width + 2 * 2 * width, 2 * rows * width + 2 * 4 * rows),
        "permute_qkv": (2 * rows * 3 * width, 2 * rows * 3 * width),
        "softmax": (scores, scores),  # two bytes of each score in the causal half
        "residual_1": (2 * 2 * rows * width + 2 * 2 * width, 2 * 2 * rows * width + 2 * 4 * rows),
        "gelu": (2 * rows * 4 * width, 2 * rows * 4 * width),
        "cross_entropy": (2 * rows * 50304 + 4 * rows, 2 * rows * 50304 + 4 * rows),
        "softmax_backward": (2 * scores, 2 * scores),
        "up_dbias": (2 * rows * 4 * width + 2 * 4 * width, 2 * 4 * width),
        "down_dbias": (2 * rows * width, 5 * 4 * width),
        "down_dbias_reduce": (5 * 4 * width + 2 * width, 2 * width),
        "layernorm_1_backward": (
            3 * 2 * rows * width + 2 * 4 * rows + 3 * 2 * width, 2 * rows * width + 2 * 2 * width,
        ),
        "wpe_backward": (2 * (rows + 128) * width, 2 * 128 * width),
        "wte_backward": (2 * (rows + 256) * width + 4 * rows, 2 * 256 * width),
    }  # fmt: skip
    for name, (read, written) in expected.items():
        assert (kernels[name].bytes_read, kernels[name].bytes_written) == (read, written), name


@pytest.mark.parametrize(("dtype", "read", "written"), [("bf16", 14, 14), ("fp32", 16, 12), ("fp8", 13, 13)])
def test_adamw_updates_every_parameter_once(dtype, read, written):
    for model in list_workloads():
        tail = build_workload(model.name, optimizer="adamw", dtype=dtype).kernels[-2:]
        assert sum(kernel.count * kernel.shape[0] for kernel in tail) == model.parameters
        assert sum(kernel.count * kernel.bytes_read for kernel in tail) == read * model.parameters
        assert sum(kernel.count * kernel.bytes_written for kernel in tail) == written * model.parameters


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("attention", ["unfused", "flash"])
def test_decoding_reads_the_cache_once(name, attention):
    heads, groups, head_width = ALL[name][2:5]
    batch, context = 7, 3000
    workload = build_workload(name, phase="decode", batch=batch, sequence=context, attention=attention)
    kernels = named(workload)
    cache = 2 * 2 * batch * context * groups * head_width  # keys and values of a layer, two bytes each
    tokens = 2 * batch * heads * head_width  # queries of a layer, and likewise its outputs
    scores = 2 * batch * heads * context
    if attention == "flash":
        assert kernels["attention"].bytes_read == cache + tokens
        assert kernels["attention"].bytes_written == tokens + 4 * batch * heads
    else:
        read = kernels["scores_gemm"].bytes_read + kernels["values_gemm"].bytes_read
        assert read == cache + tokens + scores
        assert kernels["softmax"].bytes_read == scores  # the newest token attends to all
    flops = 4 * batch * context * heads * head_width
    found = sum(kernels[kernel].flops for kernel in ("attention", "scores_gemm", "values_gemm") if kernel in kernels)
    assert found == flops
    assert all(kernel.shape[1] == batch for kernel in workload.kernels if kernel.name in ("qkv_gemm", "down_gemm"))


def test_decoding_reads_the_weights_once():
    model = find_model("llama-8b")
    workload = build_workload("llama-8b", phase="decode", batch=1, sequence=1)
    looked_up = model.vocabulary * model.width  # the input table, of which one row is read
    assert workload.bytes_moved == pytest.approx(2 * (model.parameters - looked_up), rel=0.002)


@pytest.mark.parametrize("name", ["gpt3-xl", "llama-8b"])
@pytest.mark.parametrize("phase", ["training", "prefill", "decode"])
def test_flash_attention_moves_fewer_bytes(name, phase):
    unfused, flash = (build_workload(name, phase=phase, attention=kind) for kind in ("unfused", "flash"))
    assert flash.bytes_moved < unfused.bytes_moved


def test_flash_attention_by_closed_form():
    kernels = named(build_workload("llama-8b", attention="flash", batch=2, sequence=1024))
    scores, row = 2 * 32 * 1024 * 1024, 2 * 1024 * 128 * 2  # all scores; bytes of one head of all tokens
    forward, backward = kernels["attention"], kernels["attention_backward"]
    assert forward.flops == 4 * scores * 128 / 2 and backward.flops == 2.5 * forward.flops
    assert forward.bytes_read == row * (32 + 2 * 8)
    assert backward.bytes_written == row * (32 + 2 * 8)


def test_grouped_queries_read_keys_once_and_compute_the_same():
    grouped = named(build_workload("llama-8b"))["scores_gemm"]
    alone = named(build_workload("llama-7b"))["scores_gemm"]
    assert grouped.flops == alone.flops
    assert alone.bytes_read - grouped.bytes_read == 2 * 40 * 1024 * 128 * (32 - 8)
