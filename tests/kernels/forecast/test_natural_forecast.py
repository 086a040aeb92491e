"""Forecasts from natural clocks: narrower, within what is known, and honest about the rest."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.few_kernels import write_few_kernels
from testbed.known_truth import contains, true_changes
from testbed.natural_studies import Errors, natural_study, read_curves
from wastenot.kernels.forecast.forecast import forecast
from wastenot.kernels.forecast.natural import cap_costs, caps_in_range, draw_relative, know
from wastenot.kernels.natural.whole import best_cap, whole_of_study
from wastenot.study.sweep_file import export_sweep, import_sweep

DRAWS = 40


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return natural_study(tmp_path_factory.mktemp("natural") / "study.db")


@pytest.fixture(scope="module")
def predicted(study):
    return forecast(study, max_slowdown=0.02, core_only=True, draws=DRAWS)


def test_what_was_seen_narrows_the_forecast(predicted, study):
    low, high = predicted.energy_change.central_95
    before = predicted.natural.without.central_95
    assert high - low < 0.5 * (before[1] - before[0])
    alone = forecast(study, max_slowdown=0.02, core_only=True, draws=DRAWS, ignore_natural=True)
    assert alone.natural is None and alone.energy_change == predicted.natural.without


def test_it_holds_the_truth_below_the_clocks_seen_too(predicted):
    (truth,) = true_changes("h200", "gpt3-xl", (0.02,), core_only=True)
    assert contains(predicted.energy_change.central_95, truth)


def test_savings_within_the_range_seen_are_stated_by_slowdown(predicted, study):
    rows = predicted.natural.within_range
    assert [row.max_slowdown for row in rows] == [0.0, 0.02, 0.05]
    for row in rows:
        low, high = row.energy_change.central_95
        assert high - low <= 0.03 and high <= 1e-12  # to rounding
        assert row.time_change.central_95[1] <= row.max_slowdown + 1e-6  # times this close count as the same
    medians = [row.energy_change.median for row in rows]
    assert medians == sorted(medians, reverse=True)
    curves, kernels = read_curves(study), study.read(None, "natural").kernels
    whole = whole_of_study(study, "gpt3-xl", kernels, curves.curves)
    for one in predicted.natural.one_cap:  # of a whole iteration, as elsewhere
        best = best_cap(whole, one.max_slowdown)
        assert one.cap_mhz == (None if best is None else best.core_mhz)
        assert one.energy_change.median == (0.0 if best is None else best.change[1]) <= 0.0
        assert one.time_change.central_80[1] <= one.max_slowdown
        assert one.cap_mhz is None or one.cap_mhz < whole.default.core_mhz
    assert predicted.natural.one_cap[1].cap_mhz is not None
    assert 1350 < predicted.natural.low_mhz < 1440 and predicted.natural.high_mhz == 1980.0


def test_a_cap_changes_nothing_above_a_kernels_own_clock_and_the_most_below_those_seen(study):
    curves = read_curves(study)
    names = [curve.kernel for curve in curves]
    known = know(curves, names, 5, 0)
    caps = caps_in_range(known.curves)
    time_s, energy_j = cap_costs(known.curves, 2, np.ones(len(names)), np.full(len(names), 500.0), 1.01)
    for index, curve in enumerate(curves):
        above, below = caps >= curve.auto.core_mhz - 1.0, np.flatnonzero(caps < curve.core_mhz[0] - 1.0)
        assert (time_s[index, 1:][above] == 1.0).all() and (energy_j[index, 1:][above] == 500.0).all()
        if len(below):
            cycles, power_w = time_s[index, 1:] * caps, energy_j[index, 1:] / time_s[index, 1:]
            assert cycles[below] == pytest.approx(cycles[below[-1]]) and power_w[below] == pytest.approx(power_w[below[-1]])
        assert (time_s[index, 1:] >= 1.0 - 1e-12).all()


def test_draws_of_a_curve_spread_as_its_errors_say(study):
    curve = read_curves(study)["softmax"]
    drawn = draw_relative(curve, 4000, np.random.default_rng(0))
    ends = np.zeros(len(curve.core_mhz))
    ends[0], ends[-1] = 1.0, -1.0
    stated = float(np.sqrt(ends @ curve.log_power_cov @ ends))
    assert np.std(drawn.log_power[:, 0]) == pytest.approx(stated, rel=0.06)


@pytest.mark.slow
def test_errors_of_curves_and_of_locked_power_both_widen_it(tmp_path, monkeypatch):
    few = str(write_few_kernels(tmp_path / "few.json", "llama-1b", each=3))
    good = natural_study(tmp_path / "good.db", few, errors=Errors(1e-3, 4e-3))
    bad = natural_study(tmp_path / "bad.db", few, errors=Errors(8e-3, 4e-2))

    def width(study, assumed):
        monkeypatch.setattr("wastenot.kernels.forecast.natural.LOCKED_POWER_SD", assumed)
        made = forecast(study, core_only=True, draws=DRAWS)
        return np.ptp(made.natural.within_range[1].energy_change.central_95)

    narrow = width(good, 0.0)
    assert narrow < 0.008
    assert width(bad, 0.0) > 2.0 * narrow
    assert width(good, 0.005) > 0.01


def test_rows_from_a_file_say_no_more_than_the_default_clocks(tmp_path, study):
    export_sweep(study, tmp_path / "rows.csv")
    import_sweep(tmp_path / "rows.csv", tmp_path / "rows.db", device="sim:h200", origin="simulated")
    assert forecast(tmp_path / "rows.db", draws=DRAWS).natural is None
