"""A captured operation runs again as it did: values, shared memory, writing in place, and for ever."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from wastenot.core.errors import CannotRunError  # noqa: E402
from wastenot.workloads.capturing.capture import capture  # noqa: E402
from wastenot.workloads.kernel import Call  # noqa: E402
from wastenot.workloads.operations import tensor_values  # noqa: E402
from wastenot.workloads.operations.replay import prepare_call  # noqa: E402


def captured_call(run, operation):
    with capture() as captured:
        run()
    (kernel,) = [kernel for kernel in captured.workload.kernels if kernel.call.op == operation]
    return kernel.call


def replayed(run, operation, copies=1):
    return prepare_call(captured_call(run, operation), "cpu", copies)


def test_in_place_on_shared_memory_gives_what_it_gave():
    whole = torch.arange(20)
    (again,) = replayed(lambda: whole[2:10].add_(whole[10:18]), "aten.add_.Tensor")
    result, other = again.args[0], again.args[1]
    assert result.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert result.data_ptr() + 8 * 8 == other.data_ptr()
    # prepare_call has run it once, as the capture did
    assert torch.equal(result, whole[2:10]) and torch.equal(other, whole[10:18])
    assert again() is result
    assert torch.equal(result, whole[2:10] + whole[10:18])


def test_writing_to_itself_stays_writing_to_itself():
    x = torch.arange(6)
    (again,) = replayed(lambda: x.add_(x), "aten.add_.Tensor")
    assert again.args[0].data_ptr() == again.args[1].data_ptr()
    assert torch.equal(again.args[0], torch.arange(6) * 2)


def test_an_element_read_back_from_a_gpu_is_copied_again():
    call = captured_call(lambda: torch.randn(3).clone(), "aten.clone.default")
    (again,) = prepare_call(replace(call, op="aten._local_scalar_dense.default"), "cpu", 1)
    assert again().device.type == "cpu"


def test_a_given_output_is_written():
    a, b, out = torch.arange(6).view(2, 3), torch.arange(6).view(3, 2), torch.zeros(2, 2, dtype=torch.int64)
    (again,) = replayed(lambda: torch.mm(a, b, out=out), "aten.mm.out")
    assert again() is again.keywords["out"]
    assert torch.equal(again(), a @ b)


def test_different_memory_stays_different_and_each_copy_has_its_own():
    x, y = torch.randn(100), torch.randn(100)
    first, second = replayed(lambda: torch.add(x, y), "aten.add.Tensor", copies=2)
    places = {tensor.data_ptr() for run in (first, second) for tensor in run.args}
    assert len(places) == 4
    assert not torch.equal(first.args[0], second.args[0])


def test_layout_is_kept():
    x = torch.randn(8, 6, 4).permute(2, 0, 1)[1:, ::2]
    (again,) = replayed(lambda: x.clone(memory_format=torch.contiguous_format), "aten.clone.default")
    assert (again.args[0].shape, again.args[0].stride()) == (x.shape, x.stride())
    assert again.keywords["memory_format"] is torch.contiguous_format


def test_broadcast_and_overlapping_tensors_are_made_again():
    broadcast, windows = torch.arange(4).view(4, 1).expand(4, 5), torch.arange(10).unfold(0, 4, 2)
    for x in (broadcast, windows):
        (again,) = replayed(lambda x=x: x + 1, "aten.add.Tensor")
        assert again.args[0].stride() == x.stride()
        assert torch.equal(again(), x + 1)


def test_index_values_are_kept():
    index, table = torch.tensor([3, 1, 4, 1, 5]), torch.randn(9, 2)
    (again,) = replayed(lambda: functional.embedding(index, table), "aten.embedding.default")
    assert torch.equal(again.args[1], index)
    mask = torch.rand(7, 7) < 0.3
    (again,) = replayed(lambda: torch.randn(7, 7).masked_fill(mask, 0.0), "aten.masked_fill.Scalar")
    assert torch.equal(again.args[1], mask)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int16])
def test_too_many_index_values_become_their_range(dtype, monkeypatch):
    monkeypatch.setattr(tensor_values, "MOST_KEPT", 100)
    index = torch.randint(3, 90, (1000,)).to(dtype)
    call = captured_call(lambda: index + 1, "aten.add.Tensor")
    values = json.loads(call.arguments)["tensors"][0]["values"]
    assert values == {"range": [int(index.min()), int(index.max())]}
    (again,) = prepare_call(call, "cpu", 1)
    assert index.min() <= again.args[0].min() and again.args[0].max() <= index.max()
    assert again.args[0].dtype == dtype


def test_too_many_booleans_become_their_share(monkeypatch):
    monkeypatch.setattr(tensor_values, "MOST_KEPT", 100)
    mask = torch.rand(20_000) < 0.9
    (again,) = replayed(lambda: ~mask, "aten.bitwise_not.default")
    assert again.args[0].float().mean() == pytest.approx(0.9, abs=0.02)


def test_single_values_are_kept():
    steps = [torch.tensor(41.0), torch.tensor(7.0)]
    (again,) = replayed(lambda: torch._foreach_add_(steps, 1), "aten._foreach_add_.Scalar")
    assert [float(step) for step in again.args[0]] == [42.0, 8.0]


@pytest.mark.parametrize(
    ("data", "check"),
    [
        (torch.zeros(1000), lambda x: (x > 0).all()),
        (torch.rand(1000) + 0.5, lambda x: (x > 0).all()),
        (torch.rand(1000), lambda x: ((x > 0) & (x <= 1)).all()),
        (torch.randn(1000), lambda x: (x < 0).any() and (x > 0).any()),
        (torch.log_softmax(torch.randn(1000), 0), lambda x: (x < 0).all()),
        (torch.full((1000,), float("nan")), lambda x: torch.isfinite(x).all()),
        (torch.randn(1000, dtype=torch.bfloat16), lambda x: x.unique().numel() > 100),
        (torch.randn(1000, dtype=torch.complex64), lambda x: (x != 0).all()),
    ],
)
def test_floating_data_is_random_never_zero_and_of_the_sign_it_was(data, check):
    (again,) = replayed(data.clone, "aten.clone.default")
    held = again.args[0]
    assert held.dtype == data.dtype and check(held) and (held != 0).all()
    assert len(set(held.tolist())) > 50


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_eight_bit_floats(name):
    dtype = getattr(torch, name)
    x = torch.rand(64).add(1).to(dtype)
    (again,) = replayed(lambda: x.to(torch.float32), "aten._to_copy.default")
    out = again()
    assert again.args[0].dtype == dtype and torch.isfinite(out).all() and (out != 0).all() and out.unique().numel() > 3


def _foreach_decay(x):
    torch._foreach_mul_([x], [0.5])


@pytest.mark.parametrize(
    ("run", "operation"),
    [
        (lambda x: x.mul_(0.9), "aten.mul_.Tensor"),
        (lambda x: x.mul_(-1e9), "aten.mul_.Tensor"),
        (lambda x: x.mul_(torch.randn(64)), "aten.mul_.Tensor"),
        (lambda x: x.mul_(torch.tensor(0.5)), "aten.mul_.Tensor"),
        (lambda x: x.div_(1024), "aten.div_.Tensor"),
        (_foreach_decay, "aten._foreach_mul_.ScalarList"),
        (lambda x: x.add_(torch.randn(64)), "aten.add_.Tensor"),
        (lambda x: x.lerp_(torch.randn(64), 0.1), "aten.lerp_.Scalar"),
        (lambda x: x.addcmul_(torch.randn(64), torch.randn(64), value=0.1), "aten.addcmul_.default"),
        (lambda x: x.addcdiv_(torch.randn(64), torch.rand(64) + 1), "aten.addcdiv_.default"),
        (lambda x: x.sqrt_(), "aten.sqrt_.default"),
    ],
)
def test_in_place_operations_run_for_ever(run, operation):
    x = torch.rand(64) + 1
    (again,) = replayed(lambda: run(x), operation)
    for _ in range(20_000):
        again()
    held = again.args[0]
    held = held[0] if isinstance(held, (list, tuple)) else held
    assert torch.isfinite(held).all() and (held.abs() > 1e-6).all() and (held.abs() < 1e9).all()


def test_a_fused_optimizer_runs_for_ever():
    layer = torch.nn.Linear(8, 8)
    adamw = torch.optim.AdamW(layer.parameters(), fused=True)
    layer(torch.randn(2, 8)).sum().backward()
    (again,) = replayed(adamw.step, "aten._fused_adamw_.default")
    for _ in range(20_000):
        again()
    for group in again.args[:4]:
        assert all(torch.isfinite(tensor).all() and (tensor != 0).any() for tensor in group)


def test_the_same_seed_gives_the_same_data():
    call = captured_call(lambda: torch.randn(50).exp(), "aten.exp.default")
    (one,), (same,), (other,) = (prepare_call(call, "cpu", 1, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one(), same()) and not torch.equal(one(), other())


def test_arguments_other_than_tensors_are_kept():
    x = torch.randn(3, 4, dtype=torch.float64)
    (again,) = replayed(lambda: torch.full((2, 3), float("inf"), dtype=torch.float16), "aten.full.default")
    assert again().dtype == torch.float16 and torch.isinf(again()).all()
    (again,) = replayed(lambda: x.sum(dim=(0, 1), keepdim=True, dtype=torch.float32), "aten.sum.dim_IntList")
    assert again().shape == (1, 1) and again().dtype == torch.float32
    (again,) = replayed(lambda: torch.randn(5, generator=torch.Generator().manual_seed(1)), "aten.randn.generator")
    assert again().shape == (5,)


@pytest.mark.parametrize(
    ("operation", "argument", "says"),
    [
        ("aten.no_such_thing.default", 1, "unknown operation 'aten.no_such_thing.default': this PyTorch"),
        ("nobody.knows.default", 1, "import the module that registers 'nobody'"),
        ("higher_order.cond", 1, "takes functions as arguments"),
        ("words", 1, "unknown operation 'words'"),
        ("aten.mm.default", 1, "aten.mm.default cannot run on cpu"),
        ("aten.neg.default", {"opaque": "function"}, "an argument of type function cannot be recreated"),
        ("aten.neg.default", {"tensor": 3}, "cannot run on cpu"),
        ("aten.neg.default", {"dtype": "no_type"}, "cannot run on cpu"),
    ],
)
def test_what_cannot_run_says_so_in_a_line(operation, argument, says):
    call = Call(operation, json.dumps({"args": [argument], "kwargs": {}, "tensors": [], "storages": []}))
    with pytest.raises(CannotRunError, match=says) as refused:
        prepare_call(call, "cpu", 1)
    assert "\n" not in str(refused.value)


def test_a_device_that_is_not_there_is_refused():
    call = captured_call(lambda: torch.randn(4, 4).neg(), "aten.neg.default")
    with pytest.raises(CannotRunError, match=r"aten\.neg\.default cannot run on xpu:0"):
        prepare_call(call, "xpu:0", 1)


def test_a_sparse_tensor_is_captured_and_refused_when_it_is_to_run():
    sparse = torch.eye(4).to_sparse()
    with capture() as captured:
        torch.sparse.mm(sparse, torch.randn(4, 4))
    opaque = [kernel.call for kernel in captured.workload.kernels if '"opaque"' in kernel.call.arguments]
    assert opaque
    with pytest.raises(CannotRunError, match="sparse_coo tensor among its arguments cannot be recreated"):
        prepare_call(opaque[0], "cpu", 1)


def test_too_much_memory_is_refused():
    call = captured_call(lambda: torch.randn(4, 4).neg(), "aten.neg.default")
    document = json.loads(call.arguments)
    document["tensors"][0]["shape"], document["tensors"][0]["strides"] = [1 << 30, 1 << 22], [1 << 22, 1]
    document["storages"] = [1 << 54]
    with pytest.raises(CannotRunError, match="cannot run on cpu"):
        prepare_call(Call(call.op, json.dumps(document)), "cpu", 1)
