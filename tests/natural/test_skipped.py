"""Cycles that kernels skip, from made timelines and from those of an H200."""

from pathlib import Path

import numpy as np
import pytest

from wastenot.devices.timeline import Timeline
from wastenot.natural.skipped import Changes, Skipped, changes_of, skipped_cycles

PROBES = sorted((Path(__file__).parents[2] / "data" / "h200" / "natural").glob("probe-duty_*.npz"))


def timeline_of(subject, core_mhz, begin_s=None, end_s=None) -> Timeline:
    subject = np.asarray(subject, dtype=np.intp)
    begin_s = 1e-3 * np.arange(len(subject)) if begin_s is None else begin_s
    end_s = begin_s + 1e-3 if end_s is None else end_s
    ones = np.ones(len(subject), dtype=np.intp)
    return Timeline(ones, subject, ones, begin_s, end_s, np.asarray(core_mhz, dtype=float), {}, (), None)


def test_counted_and_reported_clocks_are_inverse():
    skip = Skipped(0.09)
    assert skip.counted_mhz(1500.0) == pytest.approx(1365.0, rel=2e-3)
    for reported in (1350.0, 1500.0, 1700.0, 1800.0):
        assert skip.reported_mhz(float(skip.counted_mhz(reported))) == pytest.approx(reported, rel=1e-6)
    assert Skipped().counted_mhz(1700.0) == 1700.0


def test_changes_are_those_from_heavy_work_to_the_kernel():
    found = changes_of([timeline_of([0, 1, 1, 0, 0, -1, 1, 0], [1900, 1400, 1350, 1480, 1500, 0, 1300, 1420])])
    assert found.before_mhz.tolist() == [1350.0, 1300.0]
    assert found.after_mhz.tolist() == [1480.0, 1420.0]
    begin_s = np.array([0.0, 0.5])  # a rest in between
    assert not len(changes_of([timeline_of([1, 0], [1350, 1900], begin_s)]).before_mhz)


def test_what_is_skipped_is_found_for_each_kernel():
    rng = np.random.default_rng(4)
    true = {"light": 0.0, "other light": 0.0, "product": 0.09, "flash": 0.05, "unknown": 0.08}
    reported = {name: rng.uniform(1400.0, 1700.0, 12 if name != "unknown" else 2) for name in true}
    changes = {
        name: Changes(Skipped(0.1).counted_mhz(clock), Skipped(true[name]).counted_mhz(clock) + rng.normal(0, 1, len(clock)))
        for name, clock in reported.items()
    }
    found = skipped_cycles(changes, {"light", "other light"})
    assert {name: skip.fraction for name, skip in found.items()} == pytest.approx({"product": 0.09, "flash": 0.05}, abs=2e-3)
    assert skipped_cycles(changes, set()) == {}
    same = {name: Changes(clock, clock) for name, clock in reported.items()}
    assert skipped_cycles(same, {"light", "other light"}) == {}


def test_products_of_an_h200_skip_a_tenth_of_their_cycles():
    """Products (subject 0) in turn with a light kernel (subject 1), over all lengths of both."""
    changes = []
    for path in PROBES:
        saved = np.load(path)
        timeline = timeline_of(saved["subject"], saved["core_mhz"], saved["begin_s"], saved["end_s"])
        changes.append(changes_of([timeline], kernel=1, heavy=0))
    assert len(changes) == 7
    for each in changes:  # to a step of the regulator, which may fall in between
        expected_mhz = Skipped(0.0937).counted_mhz(each.after_mhz)
        assert float(np.median(each.before_mhz / expected_mhz)) == pytest.approx(1.0, abs=0.012)
