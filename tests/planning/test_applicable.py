"""What of a plan can be applied today: coarser plans, judged by their shortest stay."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from testbed.noisy_gpu import Truth
from testbed.small_sweeps import make_sweep, random_sweep
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.planning import planner as planner_file
from wastenot.planning.applicable import NEAR
from wastenot.planning.objective import Objective
from wastenot.planning.plan_file import read_plan
from wastenot.planning.planner import Planner, plan


@pytest.mark.parametrize("scope", ["global", "local"])
@pytest.mark.parametrize("objective", [Objective("waste", 0.1), Objective("edp"), Objective("energy")], ids=str)
def test_rows_are_the_plans_of_each_granularity(rng, objective, scope):
    for _ in range(3):
        sweep = random_sweep(rng, kernels=6, settings=5, passes=2)
        rows = plan(sweep, objective, scope=scope).applicable.rows
        assert [row.granularity for row in rows] == ["kernel", "pass", "iteration"]
        for row in rows:
            alone = plan(sweep, objective, granularity=row.granularity, scope=scope)
            assert (row.energy_change, row.time_change) == (alone.headline.energy_change, alone.headline.time_change)
            assert row.switches_per_iteration == alone.switches.per_iteration
            assert row.shortest_dwell_s == alone.switches.shortest_dwell_s
            assert alone.applicable.rows[0] == row
        assert rows[-1].fits and rows[-1].shortest_dwell_s is None
        assert len(plan(sweep, objective, granularity="pass", scope=scope).applicable.rows) == 2
        assert len(plan(sweep, objective, granularity="iteration", scope=scope).applicable.rows) == 1


def test_coarser_granularities_that_are_the_same_are_left_out(rng):
    def granularities(**about):
        return [row.granularity for row in plan(random_sweep(rng, settings=3, **about)).applicable.rows]

    assert granularities(kernels=4, passes=1) == ["kernel", "iteration"]
    assert granularities(kernels=4, passes=4) == ["kernel", "iteration"]
    assert granularities(kernels=1) == ["kernel"]


def test_what_fits_is_what_the_schedule_says(rng):
    sweep = random_sweep(rng, kernels=6, settings=5)
    free = Objective("energy")
    fast, slow, never = (plan(sweep, free, switch_time_s=time) for time in (0.0, 0.3, 1e6))
    assert fast.applicable.rows[0].fits and fast.applicable.finest.granularity == "kernel"
    assert fast.schedule.rungs[0].energy_j == pytest.approx(fast.predicted.energy_j)
    assert not never.applicable.rows[0].fits and never.applicable.finest.granularity == "iteration"
    iteration = plan(sweep, free, granularity="iteration")
    assert never.schedule.rungs[0].energy_j == pytest.approx(iteration.predicted.energy_j)
    assert never.schedule.rungs[0].switches == 0
    for made in (fast, slow, never):
        row, best = made.applicable.rows[0], made.schedule.rungs[0]
        assert row.late_energy_change == pytest.approx(best.energy_change - made.predicted.energy_change)
        assert row.fits == (row.late_energy_change <= NEAR)
        stay_s = best.shortest_stay_s
        assert stay_s is None or stay_s >= made.schedule.switching.core_s
    energies = [made.schedule.rungs[0].energy_j for made in (fast, slow, never)]
    assert energies == sorted(energies)


def test_rungs_lead_from_the_schedule_to_the_default_clocks(rng):
    rungs = plan(random_sweep(rng, kernels=6, settings=5), Objective("energy"), switch_time_s=0.0).schedule.rungs
    times, energies = ([getattr(rung, name) for rung in rungs] for name in ("time_change", "energy_change"))
    assert len(rungs) > 3 and (times.pop(), energies.pop()) == (0.0, 0.0)
    assert times == sorted(times, reverse=True) and energies == sorted(energies)


def test_the_least_dwell_and_whose_switching_counts(rng):
    sweep = random_sweep(rng, kernels=6, settings=5)
    free = Objective("energy")
    stays = [plan(sweep, free, switch_time_s=0.0, min_dwell_s=dwell).schedule.rungs[0].shortest_stay_s for dwell in (0, 5)]
    assert stays[1] is None or stays[1] >= 5.0 > stays[0]
    assert plan(sweep, free, device="sim:h200").schedule.switching.core_s == 0.0225
    for arguments, said in (
        ({"min_dwell_s": -1.0}, "min_dwell_s"),
        ({"min_dwell_s": math.inf}, "min_dwell_s"),
        ({"device": "sim:none"}, "no simulated GPU of that name"),
        ({"device": "h200", "switch_time_s": 0.1}, "leave out"),
    ):
        with pytest.raises(BadInputError, match=said):
            plan(sweep, free, **arguments)


def test_the_shortest_stay_and_where_it_is():
    sweep = make_sweep(
        [
            *(("a", core, 9501, 4.0, energy) for core, energy in ((None, 9.0), (900, 5.0), (1500, 8.0))),
            *(("b", core, 9501, 0.125, energy) for core, energy in ((None, 9.0), (900, 8.0), (1500, 5.0))),
            *(("c", core, 9501, 2.0, energy) for core, energy in ((None, 9.0), (900, 5.0), (1500, 8.0))),
        ],
        counts={"a": 1, "b": 2, "c": 3},
    )
    found = plan(sweep).switches
    assert (found.per_iteration, found.mean_dwell_s) == (2, 10.25 / 2)
    assert (found.shortest_dwell_s, found.shortest_dwell_unit) == (0.25, "b")


def test_memory_clocks_take_longer(rng):
    sweep = dataclasses.replace(random_sweep(rng, kernels=5, settings=4), device="sim:h200")
    assert plan(sweep, Objective("energy")).applicable.rows[0].switch_time_s == 1.0
    same = dataclasses.replace(sweep, memory_mhz=np.where(np.isnan(sweep.memory_mhz), np.nan, 3201.0))
    made = plan(same, Objective("energy"))
    assert all(row.memory_mhz == 3201.0 for row in made.assignments)
    assert made.applicable.rows[0].switch_time_s == 0.0225


def test_one_setting_comes_with_its_commands(rng):
    sweep = dataclasses.replace(random_sweep(rng, kernels=4, settings=4), device="sim:rtx-3080-ti")
    made = plan(sweep, Objective("energy"))
    row = made.applicable.rows[-1]
    alone = plan(sweep, Objective("energy"), granularity="iteration")
    assert row.setting.setting == alone.assignments[0].setting
    assert row.commands[0] == f"nvidia-smi -i 0 -lgc 0,{row.setting.core_mhz:.0f}"
    assert row.commands[1].startswith("nvidia-smi -i 0 -lmc ")
    at_default = dataclasses.replace(sweep, effective_memory_mhz=np.full(len(sweep), row.setting.memory_mhz))
    assert plan(at_default, Objective("energy")).applicable.rows[-1].commands == row.commands[:1]


def test_a_granularity_without_a_plan_says_why(rng):
    made = plan(random_sweep(rng, kernels=6, settings=5, passes=2), Objective("time"))
    fastest = Objective("waste", made.predicted.time_change * 0.999)
    rows = plan(random_sweep(np.random.default_rng(2026), kernels=6, settings=5, passes=2), fastest).applicable.rows
    assert rows[0].reason is None
    assert (
        rows[2].energy_change is None
        and "faster is possible" in rows[2].reason
        and "max_slowdown" not in rows[2].reason
        and not rows[2].fits
    )
    apart = make_sweep([("a", None, None, 1, 9), ("a", 900, 9501, 1, 5), ("b", None, None, 1, 9), ("b", 930, 9501, 1, 5)])
    row = plan(apart).applicable.rows[-1]
    assert row.granularity == "iteration" and "no setting besides auto is common" in row.reason


def test_kernels_within_the_tolerance_share_one_setting():
    apart = make_sweep([("a", None, None, 1, 9), ("a", 900, 9501, 1, 5), ("b", None, None, 3, 9), ("b", 930, 9501, 2, 5)])
    made = plan(apart, granularity="iteration", clock_tolerance_mhz=30.0)
    assert made.switches.per_iteration == 0
    assert made.applicable.rows[0].setting.setting == Setting(930.0, 9501.0)  # of the kernel that runs longest


def test_noise_is_fitted_once(rng, monkeypatch):
    fitted = []

    def fit_costs(*arguments):
        fitted.append(arguments)
        return original(*arguments)

    original = planner_file.fit_costs
    monkeypatch.setattr(planner_file, "fit_costs", fit_costs)
    made = plan(Truth.drawn(rng, kernels=6).sweep(rng, 0.005, 0.005), Objective("waste", 0.02))
    assert made.expected is not None and len(made.applicable.rows) >= 2 and len(fitted) == 1


def test_a_plan_keeps_what_can_be_applied_in_its_file(rng, tmp_path):
    made = plan(random_sweep(rng, kernels=4, settings=4, passes=2), Objective("waste", 0.1))
    made.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == made
    document = json.loads(made.to_json())
    for part, key, value, field in (
        ("switches", "shortest_dwell_s", 1e-9, "switches.shortest_dwell_s"),
        ("applicable", "stay_per_switch", 1.0, "digest"),
        ("schedule", "gap", 0.123, "schedule.gap"),
        ("schedule", "min_dwell_s", 0.5, "digest"),
    ):
        (tmp_path / "edited.json").write_text(json.dumps(document | {part: document[part] | {key: value}}, indent=2))
        with pytest.raises(BadInputError, match=field):
            read_plan(tmp_path / "edited.json")


def test_a_plan_written_before_stays_were_stated_is_still_read():
    older = read_plan(Path(__file__).parent / "older-plan.json")
    assert older.switches.shortest_dwell_s is None and older.applicable is None


def test_a_planner_alone_leaves_the_coarser_plans_out(rng):
    assert Planner(random_sweep(rng, kernels=3, settings=3)).plan(Objective()).applicable is None
