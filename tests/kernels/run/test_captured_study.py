"""A study of a captured workload knows what its kernels compute: forecasts and later measurements find it there."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from wastenot.core.errors import StudyError
from wastenot.devices.open import open_device
from wastenot.kernels.forecast.observed import observe
from wastenot.meters.tasks import find_tasks, tasks_in_study, tasks_of
from wastenot.study.store import open_study
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions, hottest_first
from wastenot.workloads.kernel import Call, KernelSpec, Workload

ARGUMENTS = json.dumps({"args": [], "kwargs": {}, "tensors": [], "storages": []})


def kernel(name, op, flops, moved, element_bytes=2, arguments=ARGUMENTS):
    call = Call(f"aten.{name}.default", arguments)
    return KernelSpec(
        name, name.upper(), op, (1, 8, 4, 2), flops, moved, moved / 2, "forward", None, 3, 0, call, element_bytes
    )


WORKLOAD = Workload("step-mine", (kernel("gelu", "elementwise", 1e7, 1e8), kernel("mm", "gemm", 6e11, 6e8)), "captured")


def captured_kernels(study):
    return tuple(spec for steps in study.captured("step-mine").values() for spec, _ in steps)


def swept(path, workload=WORKLOAD, granularity="kernel"):
    study = open_study(path, create=True)
    device = open_device("sim:h200", seed=1)
    measure_sweep(device, tasks_of(workload, granularity), study, [], options=PointOptions(0.2, 1.0), rounds=1)
    return study


@pytest.fixture
def study(tmp_path):
    return swept(tmp_path / "s.db")


def test_what_was_captured_comes_back_whole(study, tmp_path):
    assert captured_kernels(study) == WORKLOAD.kernels
    units = find_tasks(str(tmp_path / "s.db"), "sim:h200")
    assert [task.steps[0][0] for task in units.tasks] == list(WORKLOAD.kernels)
    assert units.kernels == tasks_of(WORKLOAD).kernels
    assert hottest_first(units.tasks) == [1, 0]
    swept(tmp_path / "s.db")  # what is there is not kept twice
    assert captured_kernels(study) == WORKLOAD.kernels


def test_a_forecast_knows_flops_and_bytes(study):
    observed, _, notes = observe(study, None)
    assert observed.operations == ("elementwise", "gemm")
    assert np.isfinite(observed.traffic).all() and observed.arithmetic[1] > 0.5 > observed.arithmetic[0]
    assert not any("FLOPs" in note for note in notes)


@pytest.mark.parametrize(
    ("element_bytes", "precision", "tflops"), [(2, None, 989.4), (4, None, 66.9), (4, "high", 494.7), (1, None, 1978.9)]
)
def test_the_peak_is_that_of_the_data_type_captured(tmp_path, element_bytes, precision, tflops):
    arguments = json.loads(ARGUMENTS) | ({"matmul_precision": precision} if precision else {})
    product = kernel("mm", "gemm", 1e9, 6e8, element_bytes, json.dumps(arguments))
    observed, gpu, _ = observe(swept(tmp_path / "s.db", replace(WORKLOAD, kernels=(product,))), None)
    slower = gpu.clocks.boost_mhz / observed.core_mhz[0]
    assert observed.arithmetic[0] * observed.time_s[0] / slower == pytest.approx(1e9 / (tflops * 1e12), rel=0.01)


def test_what_was_measured_as_a_whole_can_be_measured_again(tmp_path):
    study = swept(tmp_path / "s.db", granularity="pass")
    assert study.captured("step-mine") == {"forward": tuple((spec, spec.count) for spec in WORKLOAD.kernels)}
    again = tasks_in_study(study, study.read())
    assert again == tasks_of(WORKLOAD, "pass")
    observed, _, notes = observe(study, None)
    assert observed.operations == ("other",) and np.isnan(observed.traffic).all()
    assert any("FLOPs and bytes of 1 of 1" in note for note in notes)


@pytest.mark.parametrize("damage", ["op = 'magic'", "shape = '8xmany'"])
def test_damage_is_reported(study, tmp_path, damage):
    with create_engine(f"sqlite:///{tmp_path / 's.db'}").begin() as connection:
        connection.execute(text(f"UPDATE wastenot_captured SET {damage}"))
    with pytest.raises(StudyError, match="is damaged"):
        study.captured("step-mine")
