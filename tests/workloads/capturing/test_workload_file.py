"""A workload goes to a file and comes back the same; a file that was spoilt is refused where it was."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from testbed.tiny_model import make_step  # noqa: E402
from wastenot.core.errors import BadInputError  # noqa: E402
from wastenot.devices.open import open_device  # noqa: E402
from wastenot.devices.protocol import Task  # noqa: E402
from wastenot.workloads.build import build_workload  # noqa: E402
from wastenot.workloads.capturing.capture import capture  # noqa: E402
from wastenot.workloads.capturing.workload_file import read_workload, write_workload  # noqa: E402
from wastenot.workloads.operations.prepare import prepare  # noqa: E402
from wastenot.workloads.shape import Shape  # noqa: E402


@pytest.fixture(scope="module")
def workload():
    step, _ = make_step("fused")
    with capture("tiny") as captured:
        step()
    return captured.workload


@pytest.fixture
def document(workload, tmp_path):
    write_workload(workload, tmp_path / "w.json")
    return json.loads((tmp_path / "w.json").read_text())


def test_a_captured_workload_comes_back_the_same_and_runs(workload, tmp_path):
    path = tmp_path / "tiny.json"
    write_workload(workload, path)
    again = read_workload(path)
    assert again == workload
    assert sum(len(prepare(kernel, "cpu", 2)) for kernel in again.kernels) == 2 * len(workload.kernels)


def test_a_workload_by_formula_comes_back_the_same(tmp_path):
    formula = build_workload("gpt3-xl", Shape(batch=10))
    write_workload(formula, tmp_path / "w.json")
    assert read_workload(tmp_path / "w.json") == formula


def test_infinities_and_text_survive(tmp_path):
    with capture("bounds – µ") as captured:
        torch.randn(4).clamp_(float("-inf"), 2.0)
        torch.full((2,), float("nan"))
    write_workload(captured.workload, tmp_path / "w.json")
    assert read_workload(tmp_path / "w.json") == captured.workload


def test_a_captured_workload_runs_on_a_simulated_gpu(workload):
    device = open_device("sim:h200", seed=1)
    for kernel in workload.kernels:
        with device.launcher.start(Task.of_kernel(kernel)) as run:
            run.mark()
            device.time.sleep(0.01)
            run.feed()
            run.mark()
        assert run.laps and run.laps[0].seconds > 0


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda d: d.update(schema="wastenot.workload/9"), "schema: is 'wastenot.workload/9'"),
        (lambda d: d.update(kernels=[]), "kernels: "),
        (lambda d: d.update(extra=1), "extra: "),
        (lambda d: d.update(model="gpt3-xl"), "model and shape: give both or neither"),
        (lambda d: d.update(model="gpt3-xl", shape={"batch": "4"}), r"shape\.batch: "),
        (lambda d: d["kernels"][2].update(count=0), "kernels.2.count: "),
        (lambda d: d["kernels"][2].update(flops=-1.0), "kernels.2.flops: "),
        (lambda d: d["kernels"][2].update(op="gemmm"), "kernels.2.op: "),
        (lambda d: d["kernels"][2].pop("bytes_read"), "kernels.2.bytes_read: "),
        (lambda d: d["kernels"][2].update(name=d["kernels"][1]["name"]), "kernels: .*two kernels have the same name"),
        (lambda d: d["kernels"][0]["call"].update(op="import os"), "kernels.0.call.op: "),
        (lambda d: d["kernels"][0]["call"]["arguments"].pop("tensors"), "kernels.0.call.arguments.tensors: "),
        (lambda d: d["kernels"][0]["call"]["arguments"].update(storages=[]), "lies in storage 0"),
        (lambda d: d["kernels"][0]["call"]["arguments"]["args"].append({"tensor": 9}), "an argument is tensor 9"),
        (lambda d: d["kernels"][0]["call"]["arguments"]["tensors"][0].update(strides=[1]), "2 sizes and 1 strides"),
    ],
)
def test_a_spoilt_file_is_refused_with_line_and_field(document, tmp_path, spoil, says):
    spoil(document)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document, indent=1))
    with pytest.raises(BadInputError, match=says) as refused:
        read_workload(path)
    assert str(refused.value).startswith(f"{path}:") and "wastenot kernel capture" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "17", '{"schema": "wastenot.workload/1", "name": NaN}', "\x00"])
def test_what_is_no_workload_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=r"bad\.json:1: "):
        read_workload(path)


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"none\.json: cannot be read"):
        read_workload(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="not UTF-8"):
        read_workload(tmp_path / "binary.json")
    with pytest.raises(BadInputError, match="cannot be written"):
        write_workload(build_workload("gpt3-xl", Shape(batch=1)), tmp_path / "no" / "such" / "w.json")
