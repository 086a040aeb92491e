"""Measured switching latencies: their file, their place in a study, and what plans take from them."""

import json
from dataclasses import replace

import pytest

from testbed.small_sweeps import make_sweep
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.planning.latency import Latency, SwitchCost, TargetLatency, parse_latency, read_latency, switching_of
from wastenot.planning.planner import plan
from wastenot.study.store import open_study

DEVICE = "Test GPU"


def small_sweep(device):
    """Two settings of one kernel."""
    return replace(make_sweep([("a", None, None, 1.0, 100.0), ("a", 1000, 9501, 1.0, 80.0)]), device=device)


def target(what, mhz, seconds, start=None, **changes):
    values = {"error_s": 1e-4, "jitter": 0.1, "switches": 50, "outliers": 1, "longest_s": 0.2} | changes
    return TargetLatency(what=what, start=start, target=mhz, seconds=seconds, **values)


def cost(what, stall_s, energy_j=None):
    error_j = None if energy_j is None else 0.01
    return SwitchCost(what=what, switches=90, stall_s=stall_s, stall_error_s=1e-4, energy_j=energy_j, energy_error_j=error_j)


def latency(**changes):
    values = {
        "origin": "measured",
        "device": DEVICE,
        "model": "Test GPU",
        "measured_at": "2026-11-22T13:00:00+00:00",
        "seconds": 60.0,
        "error": 0.02,
        "iteration_s": 5e-5,
        "clock_error_s": 1e-6,
        "targets": (target("core", 500.0, 0.02), target("core", 1500.0, 0.01)),
        "pairs": (),
    }
    return Latency(**(values | changes))


def test_a_file_is_read_as_it_was_written(tmp_path):
    found = latency(pairs=(target("core", 500.0, 0.02, start=1500.0),), costs=(cost("core", 1e-3, 0.2),))
    found.write(tmp_path / "l.json")
    assert read_latency(tmp_path / "l.json") == found
    assert json.loads(found.to_json())["schema"] == "wastenot.latency/1"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"seconds": 0.02', '"seconds": -1', "targets.0.seconds"),
        ('"seconds": 0.02', '"seconds": NaN', "seconds"),
        ("latency/1", "latency/9", "schema"),
        ('"target": 1500.0', '"target": 500.0', "twice"),
        ('"what": "core"', '"what": "fan"', "targets.0.what"),
    ],
)
def test_what_cannot_be_is_refused_with_line_and_field(tmp_path, old, new, says):
    text = latency().to_json()
    assert old in text
    (tmp_path / "l.json").write_text(text.replace(old, new, 1))
    with pytest.raises(BadInputError, match=says) as refusal:
        read_latency(tmp_path / "l.json")
    assert str(refusal.value).startswith(f"{tmp_path / 'l.json'}:")


def test_plans_take_times_by_target_and_costs_that_stand_out():
    found = latency(costs=(cost("core", 1e-3, 0.2), cost("memory", 1e-4)), targets=(
        target("core", 1500.0, 0.01, jitter=0.4), target("core", 500.0, 0.02, jitter=0.0),
        target("memory", 810.0, 0.09), target("power_limit", 200.0, 0.05),
    )).switch_time  # fmt: skip
    assert (found.basis, found.core_s, found.memory_s, found.power_limit_s) == ("measured", 0.02, 0.09, 0.05)
    assert found.latency_s(AUTO, Setting(1000.0)) == pytest.approx(0.015)
    assert (found.stall_s, found.memory_stall_s, found.energy_j) == (1e-3, 0.0, 0.2)  # the others are within the noise
    assert 0.2 < found.jitter < 0.3 and "assumed" not in found.source


def test_what_was_not_measured_stays_assumed_and_is_said_so():
    found = latency().switch_time
    assert found.memory_s == 0.1 and "memory clock assumed" in found.source


def test_the_given_counts_before_the_measured_and_the_measured_before_the_assumed(tmp_path):
    sweep = small_sweep(device=DEVICE)
    assert switching_of(sweep).basis == "assumed"
    assert switching_of(sweep, latency=latency()).basis == "measured"
    assert switching_of(sweep, 0.004, latency()).basis == "given"
    with pytest.raises(BadInputError, match="is of 'another', but the measurements are of 'Test GPU'"):
        switching_of(sweep, latency=latency(device="another"))


def test_a_study_keeps_it_and_plans_use_it(tmp_path):
    study = open_study(tmp_path / "s.db", create=True)
    study.add(small_sweep(device=DEVICE), source="test")
    assert plan(study).applicable.switching.basis == "assumed" and study.latency() is None
    for seconds in (0.5, 0.02):  # the latest counts
        found = latency(targets=(target("core", 500.0, seconds),))
        study.keep_latency(found.to_json(), DEVICE)
    assert parse_latency(study.latency(), "s.db") == found
    switching = plan(study).applicable.switching
    assert (switching.basis, switching.core_s) == ("measured", 0.02)
    assert plan(study, switch_time_s=0.3).applicable.switching.core_s == 0.3
    with pytest.raises(BadInputError, match="another"):
        study.keep_latency(latency(device="another").to_json(), "another")
    assert parse_latency(study.latency(), "s.db") == found
