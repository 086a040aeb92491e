"""Timelines and curves come back from a study as they went in."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.natural_studies import Errors, exact_curves, natural_study, noisy, read_curves
from wastenot.core.errors import BadInputError
from wastenot.devices.open import open_device
from wastenot.devices.timeline import Phase, Subject
from wastenot.kernels.natural.seen import Recorded
from wastenot.kernels.natural.storage import (
    packed_curve,
    packed_timeline,
    rows_of_curve,
    unpacked_curve,
    unpacked_timeline,
)
from wastenot.meters.tasks import find_tasks
from wastenot.study.packing import Packed, pack, unpack
from wastenot.study.sweep_file import export_sweep, import_sweep
from wastenot.workloads.primitives import primitive


@pytest.fixture(scope="module")
def seen():
    device = open_device("sim:h200", seed=3)
    recorder = device.timelines()
    kernel = find_tasks("gpt3-xl", "sim:h200").tasks[5].steps[0][0]
    subjects = (Subject(kernel), Subject(primitive("gemm:8192")[0], "zeros"))
    with recorder.prepare(subjects) as prepared:
        timeline = prepared.run((Phase(1, 0.1), Phase(0, 0.05), Phase(-1, 0.02), Phase(0, 0.02)))
        names = tuple((each.kernel.name, each.data) for each in subjects)
        return Recorded(timeline, names, tuple(prepared.call_s), recorder.channels, recorder.stamps, prepared.how)


def test_a_timeline_comes_back_as_it_went_in(seen):
    again = unpacked_timeline(unpack(pack(packed_timeline(seen))))
    was, now = seen.timeline, again.timeline
    for name in ("phase", "subject", "calls"):
        np.testing.assert_array_equal(getattr(now, name), getattr(was, name))
    for name in ("begin_s", "end_s"):
        np.testing.assert_allclose(getattr(now, name), getattr(was, name), rtol=0, atol=1.1e-9)
    np.testing.assert_allclose(now.core_mhz, was.core_mhz, rtol=1e-7)
    np.testing.assert_array_equal(now.readings["total"].moment_s, was.readings["total"].moment_s)
    np.testing.assert_allclose(now.readings["total"].power_w, was.readings["total"].power_w, rtol=1e-6)
    assert (now.round_trips, now.temperature_c, now.shared) == (was.round_trips, was.temperature_c, was.shared)
    assert again.subjects == seen.subjects and again.subjects[1] == ("gemm-8192", "zeros")
    assert (again.call_s, again.channels, again.stamps) == (seen.call_s, seen.channels, seen.stamps)


def test_a_timeline_without_readings_or_groups_comes_back_too(seen):
    packed = packed_timeline(seen)
    again = unpacked_timeline(Packed(dict(packed.header), {k: v for k, v in packed.arrays.items() if " " not in k}))
    assert again.timeline.readings == {}


def test_what_a_newer_wastenot_wrote_is_refused(seen):
    with pytest.raises(ValueError, match="a timeline of version 2"):
        unpacked_timeline(Packed(packed_timeline(seen).header | {"version": 2}, {}))
    with pytest.raises(ValueError, match="a curve of version None"):
        unpacked_curve("k", Packed({}, {}))


def test_a_curve_comes_back_and_its_rows_hold_its_errors():
    device, tasks = open_device("sim:h200"), find_tasks("gpt3-xl", "sim:h200")
    curve = noisy(exact_curves(device, tasks, Errors())[3], np.random.default_rng(1))
    again = unpacked_curve(curve.kernel, unpack(pack(packed_curve(curve, together=True, seconds=3.0))))
    for name in ("core_mhz", "time_s", "power_w", "log_time_cov", "log_power_cov"):
        np.testing.assert_array_equal(getattr(again, name), getattr(curve, name))
    assert again.auto == curve.auto
    auto, *knots = rows_of_curve(curve, 3.0, "graph", 51.0, 3201.0)
    assert auto.setting.is_auto and auto.effective_core_mhz == curve.auto.core_mhz
    assert [row.setting.core_mhz for row in knots] == [row.effective_core_mhz for row in knots] == curve.core_mhz.tolist()
    np.testing.assert_allclose([row.energy_j for row in knots], curve.energy_j)
    np.testing.assert_allclose([row.energy_se_j for row in knots], curve.energy_se_j)
    np.testing.assert_allclose([row.time_se_s for row in knots], curve.time_se_s)


def test_curves_are_read_from_the_study_that_they_were_measured_into_only(tmp_path):
    study = natural_study(tmp_path / "study.db")
    curves = read_curves(study)
    assert len(curves.curves) == 46 and curves.seconds == 46 * 18.0 and curves.origin == "simulated"
    export_sweep(study, tmp_path / "sweep.csv")
    import_sweep(tmp_path / "sweep.csv", tmp_path / "other.db", origin="simulated")
    with pytest.raises(BadInputError, match="is not in this study, only its rows"):
        read_curves(__import__("wastenot").open_study(tmp_path / "other.db"))
