"""A model's step becomes a workload."""

from __future__ import annotations

import json
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402

from testbed.tiny_model import BATCH, LENGTH, TOKENS, WIDTH, Watch, make_step, shapes_of  # noqa: E402
from wastenot.core.errors import BadInputError  # noqa: E402
from wastenot.workloads.capturing.capture import capture  # noqa: E402
from wastenot.workloads.operations.replay import prepare_call  # noqa: E402


def named(captured, part):
    return [kernel for kernel in captured.workload.kernels if part in kernel.name]


@pytest.mark.parametrize("optimizer", ["adamw", "foreach", "fused", "sgd"])
def test_every_operation_is_counted_once(optimizer):
    step, _ = make_step(optimizer)
    with Watch() as watch, capture() as captured:
        step()
    counts = Counter({kernel.call.op: 0 for kernel in captured.workload.kernels})
    for kernel in captured.workload.kernels:
        counts[kernel.call.op] += kernel.count
    left_out = sum((Counter(ops) for ops in captured.left_out.values()), Counter())
    assert counts + left_out == Counter(op for op, _ in watch.ran)
    assert captured.seen == len(watch.ran) == captured.workload.calls + sum(left_out.values())


@pytest.mark.parametrize("optimizer", ["adamw", "foreach", "fused", "sgd"])
def test_every_kernel_runs_alone_and_gives_the_shapes_it_gave(optimizer):
    step, _ = make_step(optimizer)
    with Watch() as watch, capture() as captured:
        step()
    for kernel in captured.workload.kernels:
        first, second = prepare_call(kernel.call, "cpu", 2)
        gave = [shapes for op, shapes in watch.ran if op == kernel.call.op]
        assert shapes_of(first()) in gave, kernel.name
        assert shapes_of(second()) in gave


def test_passes_are_told_apart_and_in_order():
    step, _ = make_step("fused")
    with capture() as captured:
        step()
    kernels = captured.workload.kernels
    assert list(dict.fromkeys(kernel.pass_name for kernel in kernels)) == ["forward", "backward", "optimizer"]
    assert {kernel.pass_name for kernel in named(captured, "_backward_")} == {"backward"}
    assert [kernel.pass_name for kernel in named(captured, "fused_adamw")] == ["optimizer"]
    assert kernels[0].name.startswith(f"forward_embedding_{BATCH}x{LENGTH}x{WIDTH}")
    assert named(captured, "ones_like")[0].pass_name == "backward"


def test_work_between_backward_and_the_optimizer_belongs_to_the_optimizer():
    layer = torch.nn.Linear(4, 4)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    with capture() as captured:
        layer(torch.randn(2, 4)).sum().backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        sgd.step()
        layer(torch.randn(2, 4)).sum().backward()
    passes = {kernel.pass_name for kernel in captured.workload.kernels if "norm" in kernel.name}
    assert passes == {"optimizer"}
    assert [kernel.count for kernel in named(captured, "forward_addmm")] == [2]


def test_alike_operations_are_one_kernel_and_others_are_not():
    a, b = torch.randn(4, 6), torch.randn(6, 8)
    with capture() as captured:
        for scale in (1.0, 1.0, 2.0):
            (a @ b) * scale
        a.t() @ a
        b.t() @ b
    assert [(kernel.name, kernel.count) for kernel in named(captured, "_mm_")] == [
        ("forward_mm_4x6x8", 3), ("forward_mm_6x4x6", 1), ("forward_mm_8x6x8", 1),
    ]  # fmt: skip
    assert [(kernel.name, kernel.count) for kernel in named(captured, "mul")] == [
        ("forward_mul_4x8", 2),
        ("forward_mul_4x8_2", 1),
    ]


def test_a_part_of_a_larger_tensor_is_the_same_kernel_wherever_it_lies_in_it():
    joint = torch.randn(5, 24)
    with capture() as captured:
        for part in joint.split(8, dim=1):
            part.clone()
    (clone,) = named(captured, "clone")
    assert clone.count == 3
    tensor = json.loads(clone.call.arguments)["tensors"][0]
    assert (tensor["strides"], tensor["offset"]) == ([24, 1], 0)


def test_flops_and_bytes_of_a_linear_layer_are_the_closed_form():
    rows, width, out = 12, 20, 28
    layer = torch.nn.Linear(width, out, dtype=torch.bfloat16)
    x = torch.randn(rows, width, dtype=torch.bfloat16, requires_grad=True)
    with capture() as captured:
        layer(x).sum().backward()
    (forward,) = named(captured, "addmm")
    assert forward.op == "gemm" and forward.shape == (1, rows, out, width) and forward.element_bytes == 2
    assert forward.flops == 2 * rows * width * out
    assert forward.bytes_read == 2 * (rows * width + width * out + out)
    assert forward.bytes_written == 2 * rows * out
    backward = named(captured, "backward_mm")
    assert sum(kernel.flops * kernel.count for kernel in backward) == 4 * rows * width * out


def test_bytes_of_what_is_looked_up_written_and_broadcast():
    table, index = torch.randn(1000, 8), torch.tensor([1, 5, 5])
    with capture() as captured:
        functional.embedding(index, table)
        torch.zeros(16)
        torch.randn(4, 1).expand(4, 100).clone()
        x = torch.randn(10)
        x.add_(x)
    (lookup,), (zeros,), (clone,), (add,) = (named(captured, part) for part in ("embedding", "zeros", "clone", "add"))
    assert (lookup.bytes_read, lookup.bytes_written) == (3 * 8 * 4 + 3 * 8, 3 * 8 * 4)
    assert (zeros.bytes_read, zeros.bytes_written) == (0, 64)
    assert (clone.bytes_read, clone.bytes_written) == (4 * 4, 4 * 4 * 100)
    assert (add.bytes_read, add.bytes_written) == (40, 40)


def test_a_causal_mask_leaves_about_half_of_the_attention():
    query = torch.randn(2, 3, 8, 4)
    with capture() as captured:
        functional.scaled_dot_product_attention(query, query, query)
        functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    whole, causal = captured.workload.kernels
    assert whole.op == causal.op == "attention" and whole.shape == (6, 6, 8, 8, 4)
    assert whole.flops == 4 * 6 * 8 * 8 * 4
    assert causal.flops == pytest.approx(whole.flops * 36 / 64)


def test_an_elementwise_operation_counts_what_each_element_takes():
    x = torch.randn(4, 5)
    with capture() as captured:
        functional.silu(x)
        torch.add(x, x)
    silu, add = captured.workload.kernels
    assert (silu.flops, add.flops) == (5 * 20, 20)  # negation, exponential, sum, quotient and product


def test_kinds_of_operations():
    step, _ = make_step("foreach")
    with capture() as captured:
        step()
    kinds = {kernel.label: kernel.op for kernel in captured.workload.kernels}
    assert kinds["native_layer_norm"] == kinds["native_layer_norm_backward"] == "layernorm"
    assert kinds["_log_softmax".strip("_")] == "softmax" and kinds["gelu"] == kinds["gelu_backward"] == "elementwise"
    assert (kinds["embedding"], kinds["embedding_dense_backward"]) == ("embedding", "embedding_backward")
    assert kinds["foreach_addcdiv"] == "optimizer" and kinds["sum"] == "reduce"
    assert {op for label, op in kinds.items() if "dot_product" in label} == {"attention", "attention_backward"}


def test_inference_mode_is_captured_as_what_it_runs():
    layer, x = torch.nn.Linear(4, 8), torch.randn(2, 4)
    with torch.inference_mode(), capture() as captured:
        layer(x)
    assert [kernel.name for kernel in captured.workload.kernels] == ["forward_addmm_2x4x8"]


@pytest.mark.parametrize("gradients", [True, False])
def test_what_a_device_runs_as_one_is_one_although_others_could_make_it_up(gradients):
    x, gradient = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
    with torch.set_grad_enabled(gradients), capture() as captured:
        torch.ops.aten.silu_backward(gradient, x.detach())
    assert [kernel.call.op for kernel in captured.workload.kernels] == ["aten.silu_backward.default"]
    with Watch() as watch, capture() as captured:
        functional.silu(x).backward(gradient)
    backward = [kernel for kernel in captured.workload.kernels if kernel.label.startswith("silu_backward")]
    assert [(kernel.op, kernel.bytes_read, kernel.bytes_written) for kernel in backward] == [("elementwise", 256, 128)]
    assert captured.seen == len(watch.ran)
    (run,) = prepare_call(backward[0].call, "cpu", 1)
    assert shapes_of(run()) == [(4, 8)]


def test_what_a_device_does_not_run_as_one_is_what_makes_it_up():
    x, gradient = torch.randn(4, 8), torch.randn(4, 8)
    with FakeTensorMode() as mode, torch.inference_mode(), capture() as captured:
        functional.linear(mode.from_tensor(x), mode.from_tensor(gradient))
    assert [kernel.label for kernel in captured.workload.kernels] == ["mm"]


@pytest.mark.parametrize("capture_outside", [True, False])
def test_fake_tensors_are_enough(capture_outside):
    modes = (capture(), FakeTensorMode()) if capture_outside else (FakeTensorMode(), capture())
    with modes[0] as first, modes[1] as second:
        make_step("sgd")
    captured = first if capture_outside else second
    (lookup,) = named(captured, "forward_embedding")
    index = json.loads(lookup.call.arguments)["tensors"][1]
    assert index["values"] == {"range": [0, TOKENS - 1], "no_data": True}
    assert any("random" in note and "aten.embedding.default" in note for note in captured.notes)
    for kernel in captured.workload.kernels:
        for run in prepare_call(kernel.call, "cpu", 1):
            run()
    step, _ = make_step("sgd")
    with capture() as real:
        step()
    flops = {kernel.name: kernel.flops for kernel in captured.workload.kernels}
    assert all(flops[kernel.name] == kernel.flops for kernel in real.workload.kernels if kernel.op == "gemm")


def test_a_custom_operation_is_a_unit_of_its_own():
    @torch.library.custom_op("wastenot_test::doubled_product", mutates_args=())
    def doubled_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return 2 * (x @ y)

    with capture() as captured:
        doubled_product(torch.randn(3, 4), torch.randn(4, 5))
    (kernel,) = named(captured, "doubled_product")
    assert kernel.call.op == "wastenot_test.doubled_product.default" and kernel.op == "other"
    assert not named(captured, "_mm_")
    (run,) = prepare_call(kernel.call, "cpu", 1)
    assert run().shape == (3, 5)


def test_a_backward_pass_written_by_hand_is_backward():
    class Tripled(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3

    with capture() as captured:
        Tripled.apply(torch.randn(4, requires_grad=True)).sum().backward()
    assert [kernel.pass_name for kernel in named(captured, "mul")] == ["forward", "backward"]


def test_values_read_back_are_left_out_and_said():
    with capture() as captured:
        torch.randn(3).sum().item()
    assert captured.left_out["values read back to the host"] == {"aten._local_scalar_dense.default": 1}


def test_what_was_captured_before_an_error_is_kept():
    with pytest.raises(ValueError, match="enough"), capture() as captured:
        torch.randn(3, 3).sum()
        raise ValueError("enough")
    assert captured.workload.calls == 2
    with capture() as after:
        torch.randn(2)
    assert after.seen == 1


def test_an_open_or_empty_capture_has_no_workload():
    with capture("nothing") as captured, pytest.raises(BadInputError, match="with"):
        _ = captured.workload
    with pytest.raises(BadInputError, match="'nothing': no PyTorch operation ran"):
        _ = captured.workload
