"""``wastenot kernel capture`` as a user runs it."""

from __future__ import annotations

import json
import shlex
import textwrap

import pytest

pytest.importorskip("torch")

from wastenot.cli.main import app, run
from wastenot.workloads.capturing.workload_file import read_workload

TRAIN = """
import torch
from helper import WIDTH

model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
calls = []

def step():
    print("a step")
    calls.append(torch.is_grad_enabled())
    model(torch.randn(4, WIDTH)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

def steps_so_far():
    raise ValueError("first line\\nsecond line")

def leaves():
    raise SystemExit(3)

def takes_one(batch):
    return batch

def idle():
    pass
"""


@pytest.fixture(autouse=True)
def verb():
    """The verb, where the program does not have it yet."""
    from wastenot.cli import capture

    if "capture" not in {command.name for command in app.registered_commands}:
        app.command("capture")(capture.capture)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.delitem(__import__("sys").modules, "helper", raising=False)
    monkeypatch.delitem(__import__("sys").modules, "train", raising=False)
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    (tmp_path / "helper.py").write_text("WIDTH = 8\n")
    return tmp_path


def test_it_prints_a_table_and_writes_the_file(folder, capsys):
    assert run(["kernel", "capture", "train.py:step"]) == 0
    shown = capsys.readouterr()
    workload = read_workload(folder / "workload.json")
    assert workload.name == "train-step"
    addmm = [kernel for kernel in workload.kernels if kernel.label == "addmm"]
    assert [kernel.shape for kernel in addmm] == [(1, 4, 16, 8), (1, 4, 8, 16)]
    assert all(kernel.name in shown.out for kernel in workload.kernels)
    assert "of FLOPs" in shown.out and "left out" in shown.out and "coverage" not in shown.out
    assert "a step" in shown.err and "a step" not in shown.out
    following = shown.err.strip().splitlines()[-1]
    assert following == "Next: wastenot kernel natural workload.json --device sim:h200"  # captured on the CPU
    assert run([*shlex.split(following)[2:], "--dry-run"]) == 0


def test_json_is_one_document(folder, capsys):
    assert run(["kernel", "capture", "train.py:step", "--json", "--coverage", "--out", "w.json", "--device", "cpu"]) == 0
    document = json.loads(capsys.readouterr().out)
    workload = read_workload(folder / "w.json")
    assert document["file"] == "w.json" and document["calls"] == workload.calls
    assert [kernel["name"] for kernel in document["kernels"]] == [kernel.name for kernel in workload.kernels]
    assert document["seen"] == workload.calls + sum(sum(ops.values()) for ops in document["left_out"].values())
    covered = document["coverage"]
    assert 0 < covered["share"] < 1 and covered["of"].endswith("CPU time")


def test_coverage_is_said(folder, capsys):
    assert run(["kernel", "capture", "train.py:step", "--coverage"]) == 0
    out = capsys.readouterr().out
    assert "captured operations explain" in out and "missing:" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.py:step"], "none.py: no such file"),
        (["train.py"], "give a file and the function in it"),
        (["train.py:stepp"], "train.py: has no function 'stepp'; did you mean 'step'?"),
        (["train.py:calls"], "has no function 'calls'"),
        (["train.py:steps_so_far"], "train.py:steps_so_far: running it raised ValueError at train.py:17: first line"),
        (["train.py:leaves"], "raised SystemExit"),
        (["train.py:takes_one"], "raised TypeError"),
        (["train.py:idle"], "no PyTorch operation ran"),
        (["broken.py:step"], "importing it raised SyntaxError at"),
        (["text.txt:step"], "must end in .py"),
        (["train.py:step", "--device", "nonsense"], "--device nonsense: PyTorch cannot use it"),
        (["train.py:step", "--out", "no/such/file.json"], "cannot be written"),
    ],
)
def test_what_is_wrong_is_one_line(folder, capsys, arguments, says):
    (folder / "broken.py").write_text("def step(:\n")
    (folder / "text.txt").write_text("words")
    assert run(["kernel", "capture", *arguments]) == 2
    shown = capsys.readouterr()
    errors = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert shown.out == "" and len(errors) == 1 and says in errors[0]
