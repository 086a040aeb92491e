"""Measurements at natural clocks in a study: nothing is lost, new estimates replace old ones, older studies gain tables."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.setting import AUTO, Setting
from wastenot.study.coverage import Intent
from wastenot.study.natural_log import keep_curve, keep_timeline
from wastenot.study.packing import Packed, pack, unpack
from wastenot.study.recorder import Measurement
from wastenot.study.store import open_study
from wastenot.study.sweep import Kernel
from wastenot.study.sweep_file import export_sweep, read_sweep
from wastenot.workloads.identity import WorkloadKey

KERNELS = (Kernel("product", 2, "forward"), Kernel("softmax", 1, "forward"))


def row(kernel, core_mhz, time_s=1e-3, energy_j=0.5):
    setting = AUTO if core_mhz is None else Setting(core_mhz)
    return Measurement(
        kernel, setting, time_s, 0.01 * time_s, energy_j, 0.02 * energy_j, core_mhz or 1980.0, None, 10, 50.0, 1.0, None,
        None, "", "natural clocks", (),
    )  # fmt: skip


def curve(knots=(1500.0, 1700.0), scale=1e-4):
    covariance = scale * (0.5 + 0.5 * np.eye(len(knots)))
    arrays = {"core_mhz": np.array(knots), "log_time_cov": covariance, "log_power_cov": 2 * covariance}
    return Packed({"complete": True}, arrays)


def recording(study, intent=None):
    return study.recording(
        KERNELS, workload=WorkloadKey("toy", "natural"), device="card", origin="measured", source="sweep", intent=intent
    )


@pytest.fixture
def study(tmp_path):
    return open_study(tmp_path / "study.db", create=True)


def fill(study, **intent):
    with recording(study, Intent("natural", **intent)) as recorder:
        for kernel in KERNELS:
            keep_curve(recorder, kernel.name, [row(kernel.name, mhz) for mhz in (None, 1500.0, 1700.0)], curve())
        recorder.finish()


def test_packed_content_comes_back_exactly():
    arrays = {"x": np.arange(5), "y": np.array([[0.1, 1e-300], [np.pi, -2.0]])}
    found = unpack(pack(Packed({"a": [1, "ü", None]}, arrays)))
    assert found.header == {"a": [1, "ü", None]}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(pack(Packed({}, arrays))[:-30])


def test_a_timeline_is_on_disk_as_soon_as_it_was_kept(study):
    with recording(study) as recorder:
        keep_timeline(recorder, "softmax", Packed({"turn": 1}, {"x": np.arange(3)}))
        keep_timeline(recorder, "product", Packed({"turn": 2}, {"x": np.arange(4)}))
        seen = open_study(study.path).timelines("toy")
        assert [(each.kernel, each.content.header["turn"]) for each in seen] == [("softmax", 1), ("product", 2)]
        assert len(study.timelines("toy", "product")[0].content.arrays["x"]) == 4


def test_what_is_estimated_of_a_kernel_replaces_what_was_estimated_before(study):
    fill(study)
    with recording(study) as recorder:
        assert recorder.done["softmax", Setting(1700.0)] == 1
        keep_curve(recorder, "softmax", [row("softmax", mhz, 2e-3) for mhz in (None, 1600.0)], curve((1600.0,)))
        assert recorder.done["softmax", Setting(1700.0)] == 0
    sweep = study.read()
    assert sweep.state == "natural" and str(sweep.key) == "toy at natural clocks"
    of_softmax = sweep.kernel_index == 1
    np.testing.assert_array_equal(sweep.core_mhz[of_softmax], [np.nan, 1600.0])
    assert (sweep.time_s[of_softmax] == 2e-3).all() and (sweep.time_s[~of_softmax] == 1e-3).all()
    assert list(sweep.curve_errors) == ["product", "softmax"]
    np.testing.assert_array_equal(sweep.curve_errors["softmax"].core_mhz, [1600.0])
    summary = study.summary().workloads[0]
    assert [each.rows for each in summary.imports] == [3, 2]
    assert summary.coverage.kind == "natural" and summary.coverage.complete


def test_kernels_not_reached_are_told_from_those_measured(study):
    with recording(study, Intent("natural", command="wastenot kernel sweep again")) as recorder:
        keep_curve(recorder, "product", [row("product", None)], curve(()))
    coverage = study.summary().workloads[0].coverage
    assert (coverage.measured, coverage.of, coverage.complete, coverage.command) == (
        1,
        2,
        False,
        "wastenot kernel sweep again",
    )
    with pytest.raises(StudyError, match="has not measured 1 of its kernels yet, first 'softmax'"):
        study.read()


def test_natural_rows_are_apart_from_rows_at_requested_clocks(study):
    fill(study)
    with study.recording(KERNELS, workload="toy", device="card", origin="measured", source="sweep") as recorder:
        for kernel in KERNELS:
            recorder.append(row(kernel.name, None, 3e-3))
    assert study.read("toy").state == "ssp"
    assert study.read("toy", "natural").time_s.max() == 1e-3
    with pytest.raises(BadInputError, match="was not measured with each kernel's first execution"):
        study.read("toy", "sse")


def test_files_say_that_rows_are_natural(study, tmp_path):
    fill(study)
    for name in ("out.csv", "out.parquet"):
        export_sweep(study, tmp_path / name)
        again = read_sweep(tmp_path / name)
        assert again.state == "natural" and again.curve_errors == {}
        np.testing.assert_array_equal(again.core_mhz, study.read().core_mhz)
        np.testing.assert_array_equal(again.effective_core_mhz, study.read().effective_core_mhz)
