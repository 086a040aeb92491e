"""Every kernel of the built-in workloads as a PyTorch operation: it runs, on what sizes, and whether it is right."""

import itertools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from wastenot.core.errors import CannotRunError  # noqa: E402
from wastenot.workloads.attention import attention_backend  # noqa: E402
from wastenot.workloads.build import build_workload  # noqa: E402
from wastenot.workloads.gpt3 import gpt3_kernels  # noqa: E402
from wastenot.workloads.kernel import Call, KernelSpec  # noqa: E402
from wastenot.workloads.llama import llama_kernels  # noqa: E402
from wastenot.workloads.models import Model  # noqa: E402
from wastenot.workloads.operations import analytical, elementwise, embeddings, norms, optimizers, reductions, softmaxes  # noqa: E402
from wastenot.workloads.operations.analytical import prepare_kernel  # noqa: E402
from wastenot.workloads.operations.attention import attention, attention_backward  # noqa: E402
from wastenot.workloads.operations.prepare import prepare  # noqa: E402
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall  # noqa: E402
from wastenot.workloads.parts import Parts  # noqa: E402
from wastenot.workloads.shape import Shape  # noqa: E402
from wastenot.workloads.sizes import Sizes  # noqa: E402

FAMILIES = {
    "gpt3": (gpt3_kernels, Model("tiny", "gpt3", 2, 64, 4, 4, 256, 512, 128, True, "")),
    "llama": (llama_kernels, Model("tiny", "llama", 2, 64, 4, 2, 192, 512, 0, False, "")),
}
RUNS = [
    (family, phase, attention, optimizer, element_bytes)
    for family, phase, attention, optimizer, element_bytes in itertools.product(
        FAMILIES, ("training", "prefill", "decode"), ("unfused", "flash", "cudnn"), ("none", "adamw"), (2, 4)
    )
    if optimizer == "none" or phase == "training"
]


def tiny(family, element_bytes=2, **options):
    make, model = FAMILIES[family]
    dtype = {1: "fp8", 2: "bf16", 4: "fp32"}[element_bytes]
    kernels = make(Sizes(model, Shape(batch=2, sequence=64, dtype=dtype, **options)))
    return [replace(kernel, element_bytes=element_bytes) for kernel in kernels]


def kernel_named(name, family="gpt3", **options):
    return next(kernel for kernel in tiny(family, **options) if kernel.name == name)


def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    return [tensor for part in output for tensor in tensors(part)] if isinstance(output, (tuple, list)) else []


@pytest.mark.parametrize(("family", "phase", "attention", "optimizer", "element_bytes"), RUNS)
def test_every_kernel_runs_and_writes_what_its_formula_says(family, phase, attention, optimizer, element_bytes):
    for kernel in tiny(family, element_bytes, phase=phase, attention=attention, optimizer=optimizer):
        calls = prepare(kernel, "cpu", 2)
        assert len(calls) == 2, kernel.name
        outputs = tensors(calls[1]())
        for tensor in outputs:
            assert torch.isfinite(tensor).all(), kernel.name
            assert float(tensor.float().std()) > 0 or tensor.numel() == 1, kernel.name
        causal = kernel.name == "softmax" and kernel.bytes_written < element_bytes * kernel.shape[0] * kernel.shape[1]
        written = sum(tensor.nbytes for tensor in outputs) * (0.5 if causal else 1.0)
        # On the CPU, statistics of a bf16 layer norm are bf16, where formula and GPU have fp32.
        assert written == pytest.approx(kernel.bytes_written, rel=0.04 if kernel.op == "layernorm" else 1e-9), kernel.name


@pytest.mark.parametrize("name", ["gpt3-small", "llama-1b"])
def test_real_widths_run(name):
    cheap = {"layernorm", "rmsnorm", "elementwise", "permute", "reduce", "attention"}
    kernels = build_workload(name, batch=1, sequence=64, attention="flash").kernels
    chosen = [kernel for kernel in kernels if kernel.op in cheap or kernel.name == "qkv_gemm"]
    assert len(chosen) >= 10
    for kernel in chosen:
        (call,) = prepare(kernel, "cpu", 1)
        assert all(torch.isfinite(tensor).all() for tensor in tensors(call())), kernel.name


def test_copies_differ_and_the_seed_decides():
    kernel = kernel_named("gelu")
    first, second = (tensors(call())[0] for call in prepare_kernel(kernel, "cpu", 2, seed=1))
    again = tensors(prepare_kernel(kernel, "cpu", 1, seed=1)[0]())[0]
    other = tensors(prepare_kernel(kernel, "cpu", 1, seed=2)[0]())[0]
    assert torch.equal(first, again) and not torch.equal(first, second) and not torch.equal(first, other)


def test_inputs_are_random_never_zero():
    for family in FAMILIES:
        for kernel in tiny(family, optimizer="adamw") + tiny(family, attention="flash"):
            (call,) = prepare_kernel(kernel, "cpu", 1)
            assert isinstance(call, PreparedCall)
            for tensor in (argument for argument in call.arguments if isinstance(argument, torch.Tensor)):
                if kernel.op != "optimizer" or tensor is not call.arguments[0]:  # what is only written to
                    assert (tensor != 0).float().mean() > 0.45, kernel.name  # half, of causal probabilities


def test_gradients_of_weights_add_up():
    kernel = kernel_named("up_dweight_gemm")
    (call,) = prepare_kernel(kernel, "cpu", 1)
    total, left, right = call.arguments
    before = total.clone().float()
    product = left.float() @ right.float()
    call()
    once = total.clone().float()
    call()
    assert left.T.is_contiguous() and right.is_contiguous()  # the sum goes over rows as they lie in memory
    torch.testing.assert_close(once, before + product, rtol=0.02, atol=0.1)
    torch.testing.assert_close(total.float(), before + 2 * product, rtol=0.02, atol=0.3)


def test_accumulation_in_batches():
    kernel = replace(Parts(2).gemm(8, 6, 4, 3, accumulate=True).placed("a_gemm", "GEMM", "x", None, 1), element_bytes=2)
    (call,) = prepare_kernel(kernel, "cpu", 1)
    total, left, right = call.arguments
    expected = total.float() + left.float() @ right.float()
    torch.testing.assert_close(call().float(), expected, rtol=0.02, atol=0.05)


@pytest.mark.parametrize(
    ("name", "left_by_rows", "right_by_rows"),
    [
        ("qkv_gemm", True, False),
        ("up_dinput_gemm", True, True),
        ("scores_gemm", True, False),
        ("values_gemm", True, True),
        ("values_dscores_gemm", True, False),
        ("values_dvalues_gemm", False, True),
        ("scores_dquery_gemm", True, True),
        ("scores_dkey_gemm", False, True),
    ],
)
def test_products_lie_in_memory_as_in_training(name, left_by_rows, right_by_rows):
    kernel = kernel_named(name)
    (call,) = prepare_kernel(kernel, "cpu", 1)
    left, right = call.arguments
    batches, m, n, k = kernel.shape
    assert left.shape[-2:] == (m, k) and right.shape[-2:] == (k, n)
    assert (left.stride(-1) == 1) == left_by_rows and (right.stride(-1) == 1) == right_by_rows
    torch.testing.assert_close(call().float(), left.float() @ right.float(), rtol=0.02, atol=0.1)
    assert call().shape == ((batches, m, n) if batches > 1 else (m, n))


def wide(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_layer_norm_backward_is_autograds():
    x, weight, bias = (tensor.requires_grad_() for tensor in (wide(12, 32), wide(32), wide(32)))
    grad, passing, grad_weight, grad_bias = wide(12, 32), wide(12, 32), wide(32), wide(32)
    y, mean, deviation = torch.native_layer_norm(x, [32], weight, bias, 1e-5)
    y.backward(grad)
    found = norms.layer_norm_backward(
        *(tensor.detach().float() for tensor in (grad, x, passing, weight, mean, deviation, grad_weight, grad_bias))
    )
    for value, expected in zip(found, (x.grad + passing, weight.grad + grad_weight, bias.grad + grad_bias), strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)


def test_rms_norm_and_its_backward_are_autograds():
    x, weight = wide(12, 32).requires_grad_(), wide(32).requires_grad_()
    grad, passing, grad_weight = wide(12, 32), wide(12, 32), wide(32)
    y = torch.nn.functional.rms_norm(x, [32], weight, 1e-5)
    y.backward(grad)
    found, deviation = norms.rms_norm(x.detach().float(), weight.detach().float())
    torch.testing.assert_close(found.double(), y.detach(), rtol=1e-4, atol=1e-5)
    backward = norms.rms_norm_backward(
        *(tensor.detach().float() for tensor in (grad, x, passing, weight, deviation, grad_weight))
    )
    for value, expected in zip(backward, (x.grad + passing, weight.grad + grad_weight), strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)


def test_residual_norms_keep_the_sum():
    x, y, weight, bias = torch.randn(6, 16), torch.randn(6, 16), torch.randn(16), torch.randn(16)
    total, normed, *_ = norms.residual_layer_norm(x, y, weight, bias)
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(normed, torch.nn.functional.layer_norm(x + y, [16], weight, bias))
    total, normed, _ = norms.residual_rms_norm(x, y, weight)
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(x + y, [16], weight, 1e-5))


def test_product_with_silu_and_its_backward_are_autograds():
    gate, up, grad = wide(50).requires_grad_(), wide(50).requires_grad_(), wide(50)
    product = torch.nn.functional.silu(gate) * up
    product.backward(grad)
    torch.testing.assert_close(
        elementwise.multiply_by_silu(gate.detach().float(), up.detach().float()).double(),
        product.detach(),
        rtol=1e-5,
        atol=1e-6,
    )
    found = elementwise.multiply_by_silu_backward(grad.float(), gate.detach().float(), up.detach().float())
    for value, expected in zip(found, (gate.grad, up.grad), strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-6)


def test_rotation_is_a_product_of_complex_numbers():
    x, angles = torch.randn(2, 5, 3, 8), torch.randn(5, 4)
    turned = elementwise.rotate(x, angles.cos(), angles.sin())
    expected = torch.complex(*x.double().chunk(2, -1)) * torch.exp(1j * angles.double())[:, None, :]
    torch.testing.assert_close(turned.double(), torch.cat((expected.real, expected.imag), -1), rtol=1e-5, atol=1e-6)
    back = elementwise.rotate(turned, (-angles).cos(), (-angles).sin())
    torch.testing.assert_close(back, x, rtol=1e-4, atol=1e-5)


def test_rotary_turns_back_in_backward():
    forward, backward = (kernel_named(name, "llama") for name in ("rotary", "rotary_backward"))
    sines = [prepare_kernel(kernel, "cpu", 1)[0].arguments[2] for kernel in (forward, backward)]
    torch.testing.assert_close(sines[0], -sines[1])
    assert sines[0].abs().max() > 0.5


def test_causal_softmax_and_its_backward_are_autograds():
    scores, grad = wide(3 * 7, 7).requires_grad_(), wide(3 * 7, 7)
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1).repeat(3, 1)
    probabilities = torch.softmax(scores.masked_fill(mask, -torch.inf), -1)
    probabilities.backward(grad)
    found = softmaxes.causal_softmax(scores.detach().float())
    assert (found[mask] == 0).all()
    torch.testing.assert_close(found.double(), probabilities.detach(), rtol=1e-5, atol=1e-6)
    backward = softmaxes.causal_softmax_backward(grad.float(), found)
    torch.testing.assert_close(backward.double(), scores.grad, rtol=1e-4, atol=1e-6)


def test_cross_entropy_and_gradient_are_autograds():
    logits, targets = wide(9, 40).requires_grad_(), torch.randint(40, (9,), dtype=torch.int32)
    torch.nn.functional.cross_entropy(logits, targets.long()).backward()
    loss, grad = softmaxes.cross_entropy_and_gradient(logits.detach().float(), targets)
    expected = torch.nn.functional.cross_entropy(logits.detach(), targets.long(), reduction="none")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grad.double(), logits.grad, rtol=1e-4, atol=1e-7)


def test_adamw_step_is_pytorchs():
    grad, master, first = torch.randn(100), torch.randn(100), torch.randn(100)
    second = torch.rand(100)
    expected = [tensor.clone() for tensor in (master, first, second)]
    torch._fused_adamw_(
        [expected[0]], [grad.clone()], [expected[1]], [expected[2]], [], [torch.tensor(optimizers._STEP)],
        lr=optimizers._RATE, beta1=optimizers._BETA1, beta2=optimizers._BETA2, weight_decay=optimizers._DECAY,
        eps=optimizers._EPSILON, amsgrad=False, maximize=False,
    )  # fmt: skip
    weight = torch.empty(100, dtype=torch.bfloat16)
    optimizers.adamw_step(weight, grad, master, first, second)
    for value, wanted in zip((master, first, second), expected, strict=True):
        torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(weight, master.bfloat16())


def test_partial_sums_are_those_of_all_rows():
    for rows in (20, 23):
        kernel = KernelSpec(
            "down_dbias", "Bias", "reduce", (rows, 8), 0.0, 2.0 * rows * 8, 4.0 * 5 * 8, "x", None, 1, 0, None, 2
        )
        (call,) = prepare_kernel(kernel, "cpu", 1)
        partial = call()
        assert partial.shape == (5, 8) and partial.dtype == torch.float32
        grad = call.arguments[0].reshape(-1, 8).float()
        torch.testing.assert_close(partial.sum(0), grad.sum(0))
        bias = torch.randn(8)
        torch.testing.assert_close(reductions.add_partials(bias, partial), bias + grad.sum(0))


def test_embeddings_touch_every_row_of_their_tables_and_no_other():
    kernel = kernel_named("wte_wpe")
    (call,) = prepare_kernel(kernel, "cpu", 1)
    tokens, table, places = call.arguments
    assert table.shape[0] + places.shape[0] == 128 + 64  # 2 × 64 tokens of 512 words, 64 positions
    assert sorted(set(tokens.tolist())) == list(range(table.shape[0]))
    expected = (table[tokens.long()].view(2, 64, 64) + places).view(128, 64)
    torch.testing.assert_close(embeddings.look_up_with_positions(tokens, table, places), expected)


def test_embeddings_of_more_tokens_than_words():
    kernel = replace(Parts(2).embedding(4096, 16, table_rows=512 + 1024, tables=2).placed("wte_wpe", "", "x", None, 1))
    (call,) = prepare_kernel(replace(kernel, element_bytes=2), "cpu", 1)
    tokens, table, places = call.arguments
    assert (tokens.shape[0], table.shape[0], places.shape[0]) == (4096, 512, 1024)


def test_gradients_of_positions_add_up_over_sequences():
    total, grad = torch.randn(4, 6), torch.randn(12, 6)
    torch.testing.assert_close(embeddings.add_by_position(total, grad), total + grad.view(3, 4, 6).sum(0))


@pytest.mark.parametrize("name", ["permute_qkv", "unpermute", "unpermute_backward", "permute_backward"])
def test_permutes_move_every_element(name):
    (call,) = prepare_kernel(kernel_named(name), "cpu", 1)
    (source,) = call.arguments
    found = call()
    assert not source.is_contiguous() and found.is_contiguous() and torch.equal(found, source)


class FakeGpu(Buffers):
    """Sizes only, as on a GPU."""

    def __init__(self):
        self.device, self.dtype = torch.device("cuda"), torch.bfloat16

    def normal(self, *shape, dtype=None):
        return torch.empty(shape, dtype=dtype or self.dtype, device="cuda")


class Ran(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["flash", "cudnn", "efficient"])
def test_on_a_gpu_each_attention_runs_its_own_implementation_and_is_told_by_it(backend):
    forward, backward = (
        next(kernel for kernel in tiny("gpt3", attention=backend) if kernel.op == op)
        for op in ("attention", "attention_backward")
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        for kernel, prepare_one in ((forward, attention), (backward, attention_backward)):
            call = prepare_one(kernel, FakeGpu())
            with Ran() as ran:
                outputs = tensors(call())
            (op,) = (name for name in ran.ops if "attention" in name)
            assert op.startswith(f"aten._scaled_dot_product_{backend}_attention")
            assert ("backward" in op) == (kernel is backward)
            heads, _, queries, _, width = kernel.shape
            assert outputs[0].shape == (1, heads, queries, width)
            assert attention_backend(kernel) == attention_backend(replace(kernel, name="x", call=Call(op, "{}"))) == backend


def test_efficient_attention_takes_no_shared_heads():
    (kernel,) = (kernel for kernel in tiny("llama", attention="efficient") if kernel.op == "attention")
    with FakeTensorMode(), pytest.raises(CannotRunError, match=r"attention_efficient.*use flash or cudnn"):
        attention(kernel, FakeGpu())


def test_causal_attention_looks_back_only():
    (call,) = prepare_kernel(kernel_named("attention", "llama", attention="flash"), "cpu", 1)
    query, key, value, causal = call.arguments
    assert causal and query.shape[1] == 2 * key.shape[1]
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(call()[0], expected, rtol=0.02, atol=0.02)
    (call,) = prepare_kernel(kernel_named("attention", "llama", attention="flash", phase="decode"), "cpu", 1)
    assert call.arguments[3] is False and call.arguments[0].shape[2] == 1 and call.arguments[1].shape[2] == 64


def test_fp8_products_run_and_what_has_no_fp8_operation_is_refused():
    kernel = kernel_named("qkv_gemm", element_bytes=1)
    (call,) = prepare_kernel(kernel, "cpu", 1)
    left, right, _ = call.arguments
    assert left.dtype == right.dtype == torch.float8_e4m3fn
    torch.testing.assert_close(call().float(), left.float() @ right.float(), rtol=0.02, atol=0.1)
    for name in ("gelu", "scores_gemm", "up_dweight_gemm"):
        with pytest.raises(CannotRunError, match=f"{name}.*fp8.*use bf16"):
            prepare_kernel(kernel_named(name, element_bytes=1), "cpu", 1)
    with pytest.raises(CannotRunError, match=r"attention.*fp8"):
        prepare_kernel(kernel_named("attention", element_bytes=1, attention="flash"), "cpu", 1)


@pytest.mark.parametrize(
    ("op", "name", "shape"), [("other", "mystery", ()), ("elementwise", "mystery", (8,)), ("gemm", "qkv_gemm", ())]
)
def test_an_unknown_kernel_is_refused_by_name(op, name, shape):
    kernel = KernelSpec(name, name, op, shape, 0.0, 0.0, 0.0, "", None, 1)
    with pytest.raises(CannotRunError, match=f"{name}: it has no known PyTorch operation"):
        prepare_kernel(kernel, "cpu", 1)


def test_what_does_not_fit_is_refused_with_its_size():
    huge = 2**46
    kernel = KernelSpec("gelu", "GELU", "elementwise", (huge,), 1.0, 2.0 * huge, 2.0 * huge, "", None, 1, 0, None, 2)
    with pytest.raises(CannotRunError, match=r"gelu: 2 × its data, .*GB, do not fit into cpu; use a smaller batch"):
        prepare_kernel(kernel, "cpu", 2)


def test_unknown_data_type_is_bf16():
    (call,) = prepare_kernel(replace(kernel_named("up_dweight_gemm"), element_bytes=0), "cpu", 1)
    assert call.arguments[0].dtype == torch.bfloat16 and len(call.arguments) == 3


def test_what_takes_several_operations_says_so():
    hows = {name: prepare_kernel(kernel_named(name), "cpu", 1)[0].how for name in ("gelu", "residual_1", "up_dbias")}
    assert hows["gelu"] == "one operation"
    assert hows["residual_1"].startswith("eager, about 2") and hows["up_dbias"] == "eager, 2 operations"


@pytest.mark.slow
def test_what_takes_several_operations_is_compiled_whole(monkeypatch):
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compiled(function, backend="aot_eager", **options))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    kernels = {kernel.name: kernel for family in FAMILIES for kernel in tiny(family, optimizer="adamw")}
    several = 0
    for kernel in kernels.values():
        ready, eager = prepare_kernel(kernel, "cpu", 2), prepare_kernel(kernel, "cpu", 2)
        fused = analytical._fused(ready)
        if ready[0].parts == 1:
            assert fused is ready
            continue
        several += 1
        assert [call.how for call in fused] == ["compiled"] * 2, fused[0].how
        if kernel.op == "optimizer":  # in place, and has run already to be compiled
            eager[1]()
        for found, expected in zip(tensors(fused[1]()), tensors(eager[1]()), strict=True):
            torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    assert several >= 15


def test_where_compiling_fails_it_runs_eagerly_and_says_why(monkeypatch):
    def fail(function, **options):
        raise RuntimeError("no compiler here\nlong text")

    monkeypatch.setattr(torch, "compile", fail)
    (call,) = analytical._fused(prepare_kernel(kernel_named("residual_1"), "cpu", 1))
    assert call.how == "eager, about 2 operations: not compiled (no compiler here)" and len(tensors(call())) == 4


def test_covering_indices_are_even():
    indices = Buffers("cpu", torch.bfloat16, 0).indices(1000, 64, cover=True)
    counts = torch.bincount(indices.long(), minlength=64)
    assert indices.dtype == torch.int32 and counts.min() >= 15 and counts.max() <= 16
    assert indices[:64].tolist() != sorted(indices[:64].tolist())
