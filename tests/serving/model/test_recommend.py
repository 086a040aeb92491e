"""Recommendations, and the ML.ENERGY leaderboard's own choices."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.measured_sweeps import DATA
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables, OutsideProfileError
from wastenot.serving.model.ml_energy import read_ml_energy
from wastenot.serving.model.recommend import Bounds, Prices, recommend, with_clocks
from wastenot.serving.tables.records import Percentiles, ServingPoint

TABLE = DATA / "serving" / "ml-energy-h100.csv"
needs_table = pytest.mark.skipif(not TABLE.exists(), reason="no measured data")


def point(itl_ms=20.0, energy_j=0.5, *, model="a", batch=8, ttft_ms=None, **other):
    return ServingPoint(
        model, "H100", 1, "chat", batch, float(batch), energy_j, 400.0, 400.0 / energy_j, 100.0,
        Percentiles(p50_s=itl_ms / 1e3), Percentiles(p50_s=None if ttft_ms is None else ttft_ms / 1e3), **other,
    )  # fmt: skip


def leaderboards_choice(rows, deadline_ms, budget, gpus):
    """getBestConfigPerModel of the leaderboard's App.tsx, told in Python."""
    by_model = {}
    for row in rows:
        if row["gpu_model"] not in gpus or float(row["median_itl_ms"]) > deadline_ms:
            continue
        if float(row["energy_per_token_joules"]) > budget:
            continue
        by_model.setdefault(row["model_id"], []).append(row)
    best = []
    for of_model in by_model.values():
        previous = of_model[0]
        for current in of_model[1:]:
            if float(current["energy_per_token_joules"]) < float(previous["energy_per_token_joules"]):
                previous = current
        best.append(previous)
    return sorted(best, key=lambda row: float(row["energy_per_token_joules"]))


def identity(row):
    return row["model_id"], int(row["num_gpus"]), int(row["max_num_seqs"]), float(row["energy_per_token_joules"])


@needs_table
def test_the_leaderboards_own_choices_at_every_deadline():
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    points = read_ml_energy(TABLE)
    asked = 0
    for task in {row["task"] for row in rows}:
        of_task = [row for row in rows if row["task"] == task]
        its = [each for each in points if each.task == task]
        bounds = sorted({float(row["median_itl_ms"]) for row in of_task})[::8]
        for deadline in [*bounds, *(bound - 1e-9 for bound in bounds), 1e6]:
            for budget in (np.inf, float(np.median([float(row["energy_per_token_joules"]) for row in of_task]))):
                wanted = list(map(identity, leaderboards_choice(of_task, deadline, budget, {"H100"})))
                chosen, _ = recommend(
                    its, Bounds(itl_s=deadline / 1e3, energy_per_token_j=None if budget == np.inf else budget)
                )
                found = [
                    (each.point.model, each.point.gpus, each.point.max_running, each.point.energy_per_token_j)
                    for each in chosen
                ]
                assert found == wanted, (task, deadline, budget)
                asked += 1
    assert asked > 200


def test_what_looser_and_tighter_bounds_would_do():
    ways = [point(10, 0.8, batch=1), point(20, 0.5, batch=2), point(40, 0.3, batch=4), point(60, 0.35, batch=8)]
    (chosen,), unmet = recommend(ways, Bounds(itl_s=0.030))
    assert not unmet and chosen.point.max_running == 2 and chosen.kept == 2
    assert chosen.fastest.max_running == 1 and chosen.fastest_cost == 0.8
    assert chosen.looser.latency_s == 0.040 and chosen.looser.saved == pytest.approx(0.4)
    assert chosen.tighter.point.max_running == 1 and chosen.tighter.saved == pytest.approx(-0.6)
    assert chosen.price_per_s == pytest.approx(0.2 / 0.020)
    assert [each.max_running for each in chosen.frontier] == [1, 2, 4]


def test_several_bounds_at_once_and_what_would_do():
    ways = [point(10, 0.8, batch=1, ttft_ms=100), point(20, 0.5, batch=2, ttft_ms=900)]
    (chosen,), _ = recommend(ways, Bounds(itl_s=0.030, ttft_s=0.5))
    assert chosen.point.max_running == 1
    (), (unmet,) = recommend(ways, Bounds(itl_s=0.030, ttft_s=0.05))
    assert unmet.why == "the lowest time to the first token is 100 ms"
    (), (unmet,) = recommend(ways, Bounds(itl_s=0.005))
    assert unmet.why == "the lowest time between tokens is 10 ms (1 × H100, batch 1)"
    (), (unmet,) = recommend(ways, Bounds(end_to_end_s=1.0))
    assert unmet.why == "no configuration has a median time to the last token and an energy on record"


def test_unstable_points_and_points_without_energy_are_not_chosen():
    ways = [point(10, 0.8), point(20, 0.1, why_unstable="the batch was not full")]
    (chosen,), _ = recommend(ways, Bounds(itl_s=0.030))
    assert chosen.cost == 0.8
    with pytest.raises(BadInputError, match="reached a steady state, so none is chosen; batch 8: the batch was not full"):
        recommend(ways[1:], Bounds())
    with pytest.raises(BadInputError, match="no configuration is left"):
        recommend([], Bounds())


def test_where_no_energy_was_measured_latency_alone_is_told():
    ways = [replace(point(ms, 0.5, batch=batch), energy_per_token_j=None) for ms, batch in ((10, 8), (40, 64), (60, 128))]
    (), (unmet,) = recommend(ways, Bounds(itl_s=0.050))
    assert "measure again with serve bench --meter" in unmet.why and "2 of 3 configurations meet the bound" in unmet.why
    (), (unmet,) = recommend(ways, Bounds(itl_s=0.001))
    assert unmet.why.endswith("measure again with serve bench --meter")


def test_money_counts_gpus_by_the_hour():
    slow, fast = point(20, 0.5, batch=2), point(30, 0.4, batch=4)
    (chosen,), _ = recommend([slow, fast], Bounds(), unit="money", prices=Prices(per_kwh=0.36, per_gpu_hour=3.6))
    # 400 W / 0.4 J = 1,000 tokens/s: 1e6 tokens take 1,000 s of a GPU at 3.6 an hour, and 0.4 MJ at 0.36 a kWh
    assert chosen.point.max_running == 4 and chosen.cost == pytest.approx(1.0 + 0.04)
    with pytest.raises(BadInputError, match="gpu_hour -1"):
        Prices(per_gpu_hour=-1.0)


def test_clocks_are_forecast_by_the_profiles_ratios():
    tables = EngineTables(
        (Setting(core_mhz=1000.0), Setting()),
        np.array([1.0, 100.0]), np.array([0.0, 10.0]),
        np.stack([np.full((2, 2), 0.080), np.full((2, 2), 0.050)]), np.ones((2, 2, 2)),
        np.array([1.0, 16.0]), np.array([1.0, 1000.0]),
        np.stack([np.full((2, 2), 0.012), np.full((2, 2), 0.010)]), np.stack([np.full((2, 2), 3.0), np.full((2, 2), 4.0)]),
        np.array([50.0, 60.0]), "kernels", "simulated",
    )  # fmt: skip
    measured = point(20, 0.8, ttft_ms=100)
    measured = replace(measured, itl=replace(measured.itl, p99_s=0.050))
    (forecast,) = with_clocks(measured, Engine(tables, 100, model="m", device="sim:x"), 500.0)
    assert forecast.evidence == "forecast" and forecast.setting == Setting(core_mhz=1000.0)
    assert forecast.itl.p50_s == pytest.approx(0.024) and forecast.energy_per_token_j == pytest.approx(0.6)
    assert forecast.power_w == pytest.approx(400.0 * 0.75 / 1.2)
    # prompts are slowed more than decode steps: 1.6 against 1.2
    assert forecast.ttft.p50_s == pytest.approx(0.160) and forecast.itl.p99_s == pytest.approx(0.080)
    assert forecast.notes == ("clocks forecast with m on sim:x (simulated)",)
    with pytest.raises(OutsideProfileError):
        with_clocks(point(20, 0.8, batch=64), Engine(tables, 100), 500.0)


HEAD = "task,model_id,gpu_model,num_gpus,max_num_seqs,energy_per_token_joules,median_itl_ms,avg_power_watts\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "has no column model_id"),
        (HEAD + "chat,m,H100,1,8,-1,20,400\n", ":2: energy_per_token_joules '-1' is not a positive number"),
        (HEAD + "chat,m,H100,1.5,8,1,20,400\n", ":2: num_gpus '1.5' is not a whole number"),
        (HEAD + "chat,m,H100,1,8\n", ":2: has fewer fields"),
        (HEAD, "holds no configuration"),
        ("{", "is not JSON"),
        ('{"configurations": [{"model_id": "m"}]}', "configuration 1: has no gpu_model"),
        ('{"models": []}', "has no list of configurations"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_ml_energy(path)


def test_the_leaderboards_json(tmp_path: Path):
    row = {"gpu_model": "B200", "num_gpus": 2, "max_num_seqs": 8, "avg_power_watts": 600.0, "median_itl_ms": 5.0}
    document = {
        "model_id": "m/x", "task": "gpqa", "weight_precision": "fp8",
        "configurations": [
            {**row, "energy_per_token_joules": 0.5, "p99_itl_ms": 9.0, "parallelization": {"tensor_parallel": 2}},
        ],
    }  # fmt: skip
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    (read,) = read_ml_energy(path)
    assert (read.model, read.gpu, read.gpus, read.task, read.precision) == ("m/x", "B200", 2, "gpqa", "fp8")
    assert read.tensor_parallel == 2 and read.tokens_per_s == 1200.0
    assert read.itl == Percentiles(p50_s=0.005, p99_s=0.009)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model_id": None}, "configuration 1: model_id None is not a name"),
        ({"gpu_model": " "}, "configuration 1: gpu_model ' ' is not a name"),
        ({"parallelization": "tp"}, "configuration 1: parallelization 'tp' is not a JSON object"),
    ],
)
def test_what_is_wrong_in_the_leaderboards_json_is_named(tmp_path: Path, wrong, says):
    row = {
        "model_id": "m", "gpu_model": "B200", "num_gpus": 2, "max_num_seqs": 8, "avg_power_watts": 600.0,
        "median_itl_ms": 5.0, "energy_per_token_joules": 0.5,
    }  # fmt: skip
    path = tmp_path / "task.json"
    path.write_text(json.dumps([row | wrong]))
    with pytest.raises(BadInputError, match=says):
        read_ml_energy(path)


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(BadInputError, match=r"deep\.json: is not JSON"):
        read_ml_energy(path)
