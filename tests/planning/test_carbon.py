"""Emissions of runs on grids whose intensity changes over the day, files of it, and plans that emit least."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from testbed.small_sweeps import make_sweep, random_sweep
from wastenot.core.errors import BadInputError
from wastenot.planning.carbon import CarbonIntensity, carbon_intensity, read_day
from wastenot.planning.objective import Objective
from wastenot.planning.plan_file import read_plan
from wastenot.planning.planner import Planner, plan

EVENING = "time,g_per_kwh\n17:00,500\n06:00,50\n21:00,100\n"  # 100 from 21:00 to 06:00


@pytest.fixture
def evening(tmp_path):
    (tmp_path / "grid.csv").write_text(EVENING)
    return tmp_path / "grid.csv"


@given(
    values=st.lists(st.floats(1.0, 900.0), min_size=1, max_size=24),
    start_s=st.floats(0.0, 86_399.0),
    run_s=st.floats(60.0, 3e5),
    time_change=st.floats(-0.2, 0.5),
    energy_change=st.floats(-0.5, 0.5),
)
def test_a_run_emits_what_its_power_emits_moment_by_moment(values, start_s, run_s, time_change, energy_change):
    hours = tuple(3600.0 * hour for hour in range(len(values)))
    grid = CarbonIntensity(at_s=hours, g_per_kwh=tuple(values), start_s=start_s, run_s=run_s)

    def grams(lasts_s, energy_kwh):
        at_s = (start_s + (np.arange(20_000) + 0.5) / 20_000 * lasts_s) % 86_400.0
        return energy_kwh * np.array(values)[np.searchsorted(hours, at_s, side="right") - 1].mean()

    slower = grams(run_s * (1 + time_change), 1 + energy_change)
    assert grid.change(time_change, energy_change) == pytest.approx(slower / grams(run_s, 1.0) - 1, rel=0.02, abs=0.02)


def noisy_sweep(rng):
    """Four kernels at three settings, each read three times with 0.1 % of noise."""
    ways = ((None, 1.0, 9.0), (1200, 1.01, 7.0), (1050, 1.05, 6.5), (900, 1.2, 6.0))
    return make_sweep([
        (f"k{k}", clock, None, time * (1 + 1e-3 * rng.standard_normal()), energy * (1 + 1e-3 * rng.standard_normal()))
        for k in range(4) for clock, time, energy in ways for _ in range(3)
    ])  # fmt: skip


def test_at_a_constant_intensity_the_least_carbon_is_the_least_energy(rng, evening):
    for sweep in (random_sweep(rng, kernels=5, settings=5), noisy_sweep(rng)):
        least = plan(sweep, max_slowdown=0.1)
        for given_ in (carbon_intensity(400.0), carbon_intensity(400.0, "22:00", 3600.0), carbon_intensity(evening)):
            made = plan(sweep, Objective("carbon", 0.1, carbon_g_per_kwh=given_))
            assert made.assignments == least.assignments and made.schedule == least.schedule
            assert made.expected == least.expected
            assert made.carbon.change == pytest.approx(least.headline.energy_change, abs=1e-12)
            if made.carbon.change_interval is not None:
                assert made.carbon.change_interval == pytest.approx(least.headline.energy_change_interval, abs=1e-12)


def test_grams_of_a_day_and_of_a_run(rng, evening):
    sweep = random_sweep(rng, kernels=3, settings=4)
    day = plan(sweep, Objective("carbon", 0.3, carbon_g_per_kwh=carbon_intensity(evening))).carbon
    mean = (50 * 11 + 500 * 4 + 100 * 9) / 24
    base = Planner(sweep).measured
    kwh = base.baseline_energy_j / float(base.baseline_time_s) * 24 / 1000
    assert (day.per, day.g_per_kwh, day.baseline_g) == ("day", pytest.approx(mean), pytest.approx(mean * kwh))
    assert day.saved_g == pytest.approx(day.saved_j / 3.6e6 * mean) and day.saved_g > 0.0
    run = plan(sweep, Objective("carbon", 0.3, carbon_g_per_kwh=carbon_intensity(evening, "16:00", 7200.0))).carbon
    assert (run.per, run.g_per_kwh, run.baseline_g) == ("run", pytest.approx(275.0), pytest.approx(275 * kwh / 12))


def test_the_plan_is_the_best_of_all_to_within_a_step(rng, evening):
    for start in ("15:30", "16:50", "20:00", "20:50", "03:00"):
        sweep = random_sweep(rng, kernels=4, settings=4)
        grid = carbon_intensity(evening, start, 3600.0)
        planner, limit = Planner(sweep), 0.4
        chosen = planner.choose(Objective("carbon", limit, carbon_g_per_kwh=grid))
        totals = planner.totals(planner.measured.rows(chosen.options))
        found = grid.change(totals.time_change, totals.energy_change)
        every = [planner.totals(planner.measured.rows(each)) for each in product(range(5), repeat=4)]
        front = [each for each in every if each.time_change <= limit and not any(
            other.time_s < each.time_s and other.energy_j < each.energy_j for other in every)]  # fmt: skip
        best = min(front, key=lambda each: grid.change(each.time_change, each.energy_change))
        step = (limit - min(each.time_change for each in every)) / 16
        slower = [grid.change(t, best.energy_change) for t in np.linspace(best.time_change, best.time_change + step, 50)]
        assert grid.change(best.time_change, best.energy_change) - 1e-9 <= found <= max(slower) + 1e-9
        # What the certificate says is of energy within the time that was chosen.
        assert totals.time_s <= chosen.budget_s + 1e-12
        within = [each.energy_j for each in every if each.time_s <= chosen.budget_s]
        assert chosen.lower_bound_j <= min(within) * (1 + 1e-12)


def test_what_is_promised_is_the_best_of_plans_that_are_sure(rng, evening):
    planner, limit = Planner(noisy_sweep(rng)), 0.15
    for start in ("15:59", "16:55", "20:00"):
        grid = carbon_intensity(evening, start, 3600.0)
        objective = Objective("carbon", limit, carbon_g_per_kwh=grid)
        made = plan(planner, objective)
        assert made.headline.source == "promise" and made.expected.probability_within_budget >= 0.95 - 1e-9
        others = [planner.plan(Objective("waste", each)).headline for each in np.linspace(0.0, limit, 40)]
        least = min(grid.change(each.time_change, each.energy_change) for each in others)
        assert made.carbon.change <= least + 0.005  # of sixteen slowdowns, against forty
        rung = made.schedule.rungs[0]
        assert grid.change(rung.time_change, rung.energy_change) <= 1e-9


def test_a_run_that_would_reach_into_dirty_hours_is_slowed_down_less_and_one_before_clean_hours_is_not(evening):
    rows = [
        ("k", clock, None, time, energy) for clock, time, energy in ((None, 1.0, 10.0), (1500, 1.02, 8.5), (900, 1.3, 8.0))
    ]
    clocks = {}
    for start in ("15:58", "19:58"):
        grid = carbon_intensity(evening, start, 3600.0)
        clocks[start] = plan(make_sweep(rows), Objective("carbon", 0.31, carbon_g_per_kwh=grid)).assignments[0].core_mhz
    assert clocks == {"15:58": 1500, "19:58": 900}


@pytest.mark.slow
def test_the_interval_of_emissions_holds_however_errors_go_together(rng):
    grid = CarbonIntensity(at_s=(0.0, 3600.0), g_per_kwh=(100.0, 300.0), start_s=0.0, run_s=3500.0)
    for together in (-1.0, 0.0, 1.0):
        normal = rng.multivariate_normal((0.0, 0.0), ((1.0, together), (together, 1.0)), 4000)
        time, energy = 0.03 + 0.004 * normal[:, 0], -0.1 + 0.005 * normal[:, 1]
        low, high = grid.interval((0.03 - 0.00784, 0.03 + 0.00784), (-0.1 - 0.0098, -0.1 + 0.0098))
        held = [low <= grid.change(t, e) <= high for t, e in zip(time, energy, strict=True)]
        assert np.mean(held) > 0.94


def test_a_plan_file_keeps_it_and_notices_edits(rng, tmp_path, evening):
    sweep = random_sweep(rng, kernels=3, settings=4)
    made = plan(sweep, Objective("carbon", 0.2, carbon_g_per_kwh=carbon_intensity(evening, "16:00", 7200.0)))
    made.write(tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again == made and again.objective.objective == made.objective.objective
    assert plan(sweep, again.objective.objective) == made
    document = made.document()
    assert document["carbon"]["saved_g"] == made.carbon.saved_g
    document["carbon"]["saved_g"] *= 2
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=r"carbon\.saved_g.*was edited"):
        read_plan(tmp_path / "plan.json")
    assert not {"carbon"} & {*plan(sweep).document(), *plan(sweep).document()["objective"]}


def test_a_file_is_read_by_time_of_day(tmp_path, evening):
    assert read_day(evening) == {0: 100.0, 360: 50.0, 1020: 500.0, 1260: 100.0}
    dated = tmp_path / "dated.csv"
    dated.write_text(
        "zone,Time,G_per_kWh\nDE,2026-01-01 00:00,100\nDE,2026-01-01T12:30Z,300\n\nDE,2026-01-02T00:00:00+01:00,200\n"
    )
    assert read_day(dated) == {0: 150.0, 750: 300.0}
    assert carbon_intensity(str(dated)).mean(0.0) == pytest.approx((150 * 12.5 + 300 * 11.5) / 24)
    assert carbon_intensity("420").g_per_kwh == (420.0,)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r"grid\.csv: names no column time and no column g_per_kwh; give a number, or a CSV"),
        (b"time,g_per_kwh\n", r"grid\.csv: has no values"),
        (b"00:00,100\n12:00,200\n", r"grid\.csv:1: names no column time"),
        (b"time,g_per_kwh\n00:00,100\nnoon,200\n", r"grid\.csv:3: time 'noon': must be HH:MM such as 18:30"),
        (b"time,g_per_kwh\n24:00,100\n", r"grid\.csv:2: time '24:00': must be HH:MM"),
        (b"time,g_per_kwh\n2026-01-01,100\n", r"grid\.csv:2: time '2026-01-01': must be"),
        (b"time,g_per_kwh\n00:00,100\n00:00,200\n", r"grid\.csv:3: time '00:00': appears twice"),
        (b"time,g_per_kwh\n00:00,100\n2026-01-01T12:00,200\n", r"grid\.csv:3: .*either all times have a date, or none"),
        (b"time,g_per_kwh\n00:00\n", r"grid\.csv:2: has 1 fields, but the header has 2"),
        (b"time,g_per_kwh\n00:00,much\n", r"grid\.csv:2: g_per_kwh 'much': must be grams of CO2e per kWh"),
        (b"time,g_per_kwh\n00:00,-1\n", r"grid\.csv:2: g_per_kwh '-1'"),
        (b"time,g_per_kwh\n00:00,nan\n", r"grid\.csv:2: g_per_kwh 'nan'"),
        (b"time,g_per_kwh\n00:00,400000\n", r"grid\.csv:2: g_per_kwh '400000': .* from 0 to 5,000"),
        (b"time,g_per_kwh\n00:00,0\n", "the grid emits nothing during the run"),
        (b"time,g_per_kwh\n00:00,0.4\n", "less than any grid emits; kilograms"),
        (b"\xff\xfe\x00", r"grid\.csv: cannot be read"),
        (b"time,g_per_kwh\n\x00" + b'"' * 200_000, r"grid\.csv"),
        (b"time,g_per_kwh\n" + b"00:00,1\n" * 2_000_001, r"grid\.csv: is larger than 16 MB"),
    ],
    ids=lambda each: each[:30] if isinstance(each, str) else "",
)
def test_a_file_that_makes_no_sense_is_said_by_line(tmp_path, content, says):
    (tmp_path / "grid.csv").write_bytes(content)
    with pytest.raises(BadInputError, match=says):
        carbon_intensity(str(tmp_path / "grid.csv"))


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        (("none.csv",), r"none\.csv: cannot be read"),
        (("/",), "/: cannot be read"),
        (("/dev/zero",), "/dev/zero: is larger than 16 MB"),
        (("nan",), "finite number"),
        (("-3",), "carbon_g_per_kwh -3"),
        (("1e9",), "more than any grid emits"),
        ((400.0, "25:00", 60.0), "run_at: time '25:00': must be HH:MM"),
        ((400.0, "22:00"), "run_at and run_time are only meaningful together"),
        ((400.0, None, 3600.0), "only meaningful together"),
        ((400.0, "22:00", 0.0), "run_time 0 s: must be from 1 s to 366 days"),
        ((400.0, "22:00", float("nan")), "must be from 1 s"),
    ],
)
def test_other_values_that_make_no_sense(given_, says):
    with pytest.raises(BadInputError, match=says):
        carbon_intensity(*given_)


def test_what_does_not_go_with_it(rng):
    with pytest.raises(BadInputError, match="give it for objective carbon"):
        Objective("carbon")
    with pytest.raises(BadInputError, match="is only for objective carbon, not waste"):
        Objective("waste", carbon_g_per_kwh=carbon_intensity(400.0))
    with pytest.raises(BadInputError, match="with objective carbon: choose one of global"):
        plan(
            random_sweep(rng, kernels=2, settings=2),
            Objective("carbon", carbon_g_per_kwh=carbon_intensity(4.0)),
            scope="local",
        )
