"""Captures without data pick the operations that the device itself runs."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from testbed.tiny_model import BATCH, LENGTH, TOKENS, Model  # noqa: E402
from wastenot.cli.main import run  # noqa: E402
from wastenot.core.errors import BadInputError  # noqa: E402
from wastenot.workloads.capturing.capture import capture  # noqa: E402
from wastenot.workloads.capturing.user_step import default_device  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
STEP = """
import torch
model = torch.nn.Linear(8, 8)
def step():
    loss = model(torch.ones(2, 8)).sum()
    loss.backward()
def reading():
    return model(torch.ones(2, 8)).sum().item()
"""


def operations(device, dtype, **options):
    """The operations of a training step, how often each runs, and the notes on them."""
    with default_device(device):
        model = Model().to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        tokens = torch.randint(0, TOKENS, (BATCH, LENGTH))

        def step():
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        step()
        with capture() as captured:
            step()
    counts = Counter()
    for kernel in captured.workload.kernels:
        counts[kernel.call.op, kernel.pass_name, kernel.shape, kernel.flops] += kernel.count
    return counts, captured


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_the_operations_are_those_of_the_device(device, dtype, options):
    real, _ = operations(device, dtype, **options)
    fake, captured = operations(f"fake:{device}", dtype, **options)
    assert fake == real
    assert captured.workload.captured_on == device
    assert any("no data" in note for note in captured.notes)


def test_everything_is_as_before_afterwards():
    modules = [import_module(name) for name in ("torch.optim.optimizer", "torch.utils._foreach_utils")]
    types = [list(module._foreach_supported_types) for module in modules]
    with pytest.raises(KeyError), default_device("fake:cpu"):
        assert type(torch.ones(2)) is not torch.Tensor
        raise KeyError
    assert type(torch.ones(2)) is torch.Tensor
    assert [module._foreach_supported_types for module in modules] == types
    with pytest.raises(RuntimeError, match="weakref"):
        referred = torch.ones(2)
        import weakref

        reference = weakref.ref(referred)
        torch.utils.swap_tensors(referred, torch.ones(2))
    assert reference() is referred


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which has its own tests")
def test_a_device_that_pytorch_does_not_see_cannot_be_asked():
    said = "fake:cuda: PyTorch cannot use that device, whose operations are to be picked: "
    with pytest.raises(BadInputError, match=said), default_device("fake:cuda"):
        pass


def test_the_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(STEP)
    assert run(["kernel", "capture", "mine.py:step", "--device", "fake:cpu"]) == 0
    assert "captured on the CPU" in " ".join(capsys.readouterr().out.split())
    assert run(["kernel", "capture", "mine.py:reading", "--device", "fake:cpu"]) == 2
    assert "mine.py:8: " in (said := capsys.readouterr().err) and "tensors have no data here, so remove code" in said
    assert run(["kernel", "capture", "mine.py:step", "--device", "fake:cpu", "--coverage"]) == 2
    assert "nothing runs without data" in capsys.readouterr().err
    assert run(["kernel", "capture", "mine.py:step", "--device", "fake:tpu9"]) == 2
    assert "--device fake:tpu9: PyTorch cannot use that device" in capsys.readouterr().err
