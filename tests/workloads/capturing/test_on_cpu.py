"""A step captured on the CPU says how it differs from CUDA, and whatever is made of it stays marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from testbed.tiny_model import make_step  # noqa: E402
from wastenot.cli.main import run  # noqa: E402
from wastenot.devices.open import open_device  # noqa: E402
from wastenot.kernels.page.summary import warnings  # noqa: E402
from wastenot.meters.tasks import tasks_in_study, tasks_of  # noqa: E402
from wastenot.planning.plan_file import read_plan  # noqa: E402
from wastenot.planning.planner import plan  # noqa: E402
from wastenot.study.store import open_study  # noqa: E402
from wastenot.sweeping.measure import measure_sweep  # noqa: E402
from wastenot.sweeping.point import PointOptions  # noqa: E402
from wastenot.workloads.capturing.capture import capture  # noqa: E402
from wastenot.workloads.capturing.on_cpu import differences_from_cuda  # noqa: E402
from wastenot.workloads.capturing.workload_file import read_workload, write_workload  # noqa: E402


def captured_step(optimizer="adamw", width_of=torch.float32):
    step, _ = make_step(optimizer)
    with capture("mine") as captured, torch.autocast("cpu", width_of, enabled=width_of != torch.float32):
        step()
    return captured


def test_what_differs_is_named():
    captured = captured_step()
    assert (captured.device, captured.workload.captured_on) == ("cpu", "cpu")
    whole, optimizer, attention, products = captured.notes
    assert "captured on the CPU" in whole and "--device cuda:0" in whole
    calls = sum(kernel.count for kernel in captured.workload.kernels if kernel.pass_name == "optimizer")
    assert f"the optimizer ran {calls:,} operations, tensor by tensor" in optimizer
    assert "aten._scaled_dot_product_flash_attention_for_cpu, " in attention and "which no GPU runs" in attention
    assert "matrix products ran in float32" in products


def test_what_does_not_differ_is_not():
    for optimizer in ("foreach", "fused"):
        notes = captured_step(optimizer).notes
        assert len(notes) == 3 and not any("tensor by tensor" in note for note in notes)
    notes = captured_step("fused", torch.bfloat16).notes
    assert not any("float32" in note for note in notes)
    on_gpu = replace(captured_step().workload, captured_on="cuda")
    assert differences_from_cuda(on_gpu) == ()
    assert differences_from_cuda(replace(on_gpu, captured_on=None)) == ()


def test_the_mark_is_kept_from_the_file_to_the_plan(tmp_path):
    write_workload(captured_step("fused").workload, tmp_path / "mine.json")
    workload = read_workload(tmp_path / "mine.json")
    assert workload.captured_on == "cpu"
    units = tasks_of(workload, "pass")
    assert units.captured_on == "cpu"
    study = open_study(tmp_path / "s.db", create=True)
    measure_sweep(open_device("sim:h200", seed=1), units, study, [], options=PointOptions(0.1, 0.2), rounds=1)
    sweep = study.read()
    assert sweep.captured_on == tasks_in_study(study, sweep).captured_on == "cpu"
    made = plan(sweep, granularity="pass")
    made.write(tmp_path / "p.json")
    assert read_plan(tmp_path / "p.json").captured_on == "cpu"
    assert any(warning.startswith("Captured on the CPU") for warning in warnings(made))
    marked = replace(sweep, captured_on="cuda")
    assert not any("CPU" in warning for warning in warnings(plan(marked, granularity="pass")))


def test_files_that_do_not_say_are_read_as_before(tmp_path):
    write_workload(replace(captured_step("fused").workload, captured_on=None), tmp_path / "old.json")
    assert "captured_on" not in (tmp_path / "old.json").read_text()
    assert read_workload(tmp_path / "old.json").captured_on is None


def test_a_sweep_says_it_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_workload(captured_step("fused").workload, "mine.json")
    quick = ["--clocks", "auto", "--warm-up", "0.1s", "--window", "0.1s", "--granularity", "pass"]
    assert run(["kernel", "sweep", "mine.json", "--device", "sim:h200", "--study", "s.db", *quick]) == 0
    assert capsys.readouterr().err.count("mine.json: Captured on the CPU") == 1
