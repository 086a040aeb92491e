from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.serving.model.engine_kernels import engine_tasks, exchange_s, idle_power_w, profile_from_kernels
from wastenot.serving.model.profile_file import read_engine, write_engine
from wastenot.study.store import open_study
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.workloads.build import build_workload
from wastenot.workloads.communication import LINKS
from wastenot.workloads.named import find_model
from wastenot.workloads.serving_steps import StepShapes

FEW = StepShapes(
    (1, 32, 64, 65, 128, 512), (1, 128, 512), (1, 32, 64, 128), (1, 512, 2048), (1, 64, 128, 129, 256, 257, 512), (0, 2048)
)
QUICK = PointOptions(warm_up_s=1.0, window_s=1.0)


def test_steps_put_together_are_those_measured(tmp_path: Path) -> None:
    study = open_study(tmp_path / "kernels.db", create=True)
    settings = (Setting(900.0), Setting(1395.0), AUTO)
    profile = profile_from_kernels(
        "llama-8b", open_device("sim:h200", seed=1), study, shapes=FEW, settings=settings, core_step_mhz=150.0, options=QUICK
    )
    engine = profile.engines[0]
    assert (engine.tables.evidence, engine.tables.source, profile.device) == ("simulated", "kernels", "sim:h200")
    device = open_device("sim:h200", seed=2)
    for phase, batch, tokens in (("decode", 48, 700), ("decode", 100, 1500), ("prefill", 1, 110), ("prefill", 1, 512)):
        workload = build_workload("llama-8b", phase=phase, batch=batch, sequence=tokens, attention="flash")  # type: ignore[arg-type]
        for index, setting in enumerate(settings):
            task = Task("iteration", tuple((kernel, kernel.count) for kernel in workload.kernels))
            seen = measure_point(device, task, setting, PointOptions(2.0, 1.0))
            cost = engine.tables.decode(index, batch, tokens) if phase == "decode" else engine.tables.prefill(index, tokens)
            assert cost.time_s == pytest.approx(seen.time_s, rel=0.05)
            assert cost.energy_j == pytest.approx(seen.energy_j, rel=0.05)


def test_what_is_measured_is_kept_and_resumed(tmp_path: Path) -> None:
    study = open_study(tmp_path / "kernels.db", create=True)
    device = open_device("sim:h200", seed=1)

    def profile(degrees: tuple[int, ...]) -> object:
        return profile_from_kernels(
            "llama-8b", device, study, degrees=degrees, shapes=FEW, core_step_mhz=600.0, options=QUICK
        )

    profile((2,))
    before = len(study.read("llama-8b-serving-tp2"))
    now_s = device.time.now_s()
    made = profile((1, 2))
    assert len(study.read("llama-8b-serving-tp2")) == before
    assert device.time.now_s() > now_s
    write_engine(made, tmp_path / "engine.json")  # type: ignore[arg-type]
    again = read_engine(tmp_path / "engine.json")
    assert [each.gpus for each in again.engines] == [1, 2]
    one, two = again.engines
    assert two.cache_blocks > 2 * one.cache_blocks
    assert two.tables.decode(0, 64, 512).time_s < one.tables.decode(0, 64, 512).time_s
    assert any("nvlink4" in note for note in again.notes)


def test_time_of_exchange() -> None:
    model, link = find_model("llama-8b"), LINKS["nvlink4"]
    few, many = exchange_s(model, link, 8, np.array([1.0, 8192.0]))
    size = 2 * 4096
    assert few == pytest.approx(2 * 32 * (link.latency_s + 7 * size / link.bytes_per_s))
    assert many == pytest.approx(2 * 32 * 2 * 7 * (link.latency_s + 8192 * size / 8 / link.bytes_per_s))


def test_idle_power() -> None:
    assert idle_power_w(open_device("sim:h200")) == pytest.approx(79.0, rel=0.03)


def test_bad_input_is_refused_before_anything_is_measured() -> None:
    device = open_device("sim:h200")
    before_s = device.time.now_s()
    with pytest.raises(BadInputError, match="degrees 3: llama-8b can be split by 1, 2, 4, 8"):
        profile_from_kernels("llama-8b", device, degrees=(3,))
    with pytest.raises(BadInputError, match="take more GPUs"):
        profile_from_kernels("llama-70b", device)
    with pytest.raises(BadInputError, match="no such model"):
        profile_from_kernels("llama-9b", device)
    assert device.time.now_s() - before_s < 0.1


def test_tasks_run_the_kernels_of_their_names() -> None:
    tasks = engine_tasks("llama-8b", 2, FEW)
    assert tasks.name == "llama-8b-serving-tp2"
    named = {task.name: task for task in tasks.tasks}
    kernel, times = named["gate_up_gemm of 65 tokens"].steps[0]
    assert times == 1 and kernel.shape == (1, 65, 14_336, 4096)


def test_a_card_at_its_own_clocks_takes_curves_of_its_kind() -> None:
    settings = (Setting(1200.0), AUTO)
    made = profile_from_kernels(
        "llama-8b", open_device("sim:h200", seed=1), shapes=FEW, settings=settings, core_step_mhz=None, curves="sim:h200",
        options=QUICK,
    )  # fmt: skip
    tables = made.engines[0].tables
    assert tables.evidence == "forecast" and any("sim:h200" in note for note in made.notes)
    device = open_device("sim:h200", seed=2)
    workload = build_workload("llama-8b", phase="prefill", batch=1, sequence=128, attention="flash")
    for index, setting in enumerate(settings):
        task = Task("iteration", tuple((kernel, kernel.count) for kernel in workload.kernels))
        seen = measure_point(device, task, setting, PointOptions(2.0, 1.0))
        cost = tables.prefill(index, 128)
        assert cost.time_s == pytest.approx(seen.time_s, rel=0.02)
        assert cost.energy_j == pytest.approx(seen.energy_j, rel=0.03)  # 8 % less where kernels are just added up


def test_curves_are_of_a_simulated_gpu_and_for_the_cards_own_clocks() -> None:
    device = open_device("sim:h200")
    with pytest.raises(BadInputError, match="at the default clocks"):
        profile_from_kernels("llama-8b", device, curves="sim:h200")
    with pytest.raises(BadInputError, match="simulated GPU"):
        profile_from_kernels("llama-8b", device, shapes=FEW, core_step_mhz=None, curves="recorded:x", options=QUICK)
