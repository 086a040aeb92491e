"""What a scenario's runs cost, and the decisions that a curve of prices changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from testbed.cluster_loads import load_of
from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import HOUR_S, Tariff
from wastenot.serving.cluster.controllers.parking import Parking
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.model import Cluster, Start, Stop
from wastenot.serving.cluster.outcome import compared
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.runs import run_scenario
from wastenot.serving.cluster.scenario import Scenario, parse_scenario
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.cluster.tariffs import AHEAD_S, read_tariff, start_outweighed_s
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests
from wastenot.serving.page.cluster_tables import policies_table
from wastenot.serving.page.cluster_words import effect_text

ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
DAY = tuple([1.0] * 18 + [5.0] * 3 + [1.0] * 3)
TEXT = f"""
[cluster]
engines = "{ENGINE}"
hosts = 1
gpus_per_host = 4
[objective]
minimise = "price"
price_per_kwh = "prices.csv"
currency = "EUR"
carbon_g_per_kwh = {list(range(100, 124))}
begin_hour = 23
[[traffic]]
kind = "poisson"
rate_per_s = 10
duration_s = 60.0
[run]
policies = ["single-pool", "scale-clocks"]
"""


@given(
    price=st.floats(0.01, 1e3), kept_w=st.floats(1.0, 200.0), start_w=st.floats(0.0, 400.0), start_s=st.floats(1.0, 600.0)
)
def test_at_one_price_a_start_is_outweighed_when_as_much_energy_was_drawn(price, kept_w, start_w, start_s):
    found = start_outweighed_s(Tariff.hourly(price), 1234.0, kept_w, start_w, start_s)
    assert found == pytest.approx(start_s * start_w / kept_w, rel=1e-9, abs=1e-6)


@given(now_s=st.floats(0.0, 2e5), values=st.lists(st.floats(0.0, 9.0), min_size=24, max_size=24))
def test_beyond_the_time_a_start_is_outweighed_it_always_is(now_s, values):
    tariff, kept_w, start_w, start_s = Tariff.hourly(tuple(values)), 60.0, 120.0, 420.0

    def beyond(after_s: float) -> float:
        def energy(power_w: float, from_s: float, until_s: float) -> float:
            return power_w * (until_s - from_s) * float(tariff.mean(np.array([from_s]), np.array([until_s]))[0])

        return energy(kept_w, now_s, now_s + after_s) - energy(start_w, now_s + after_s, now_s + after_s + start_s)

    found = start_outweighed_s(tariff, now_s, kept_w, start_w, start_s)
    if found < AHEAD_S:
        assert beyond(found + 1e-6) == pytest.approx(0.0, abs=1.0)
        assert all(beyond(found + more) >= -1.0 for more in np.geomspace(1.0, AHEAD_S - found, 50))
    else:
        assert beyond(AHEAD_S) <= 1.0


def test_a_start_at_a_dearer_hour_is_avoided_for_longer_and_one_at_a_cheaper_hour_sooner():
    day = Tariff.hourly(DAY)
    even, before_it_rises, before_it_falls = (start_outweighed_s(day, at * HOUR_S, 60, 120, 420) for at in (3, 17.9, 20.9))
    assert before_it_rises > even == pytest.approx(840.0) and before_it_falls < even
    paid = Tariff.hourly((-1.0,) * 24)
    assert start_outweighed_s(paid, 0.0, 60, 120, 420) == AHEAD_S  # nothing is lost by either


@pytest.fixture
def load() -> Requests:
    """Twenty requests a second, but one a second for 1,200 s from 600 s on."""
    whole = poisson(20.0, 2400.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=21)
    quiet = (whole.arrival_s > 600.0) & (whole.arrival_s < 1800.0)
    some = ~quiet | (np.arange(len(whole)) % 20 == 0)
    return Requests(whole.arrival_s[some], whole.prompt_tokens[some], whole.output_tokens[some])


def test_a_curve_of_prices_decides_whether_instances_are_stopped_until_they_are_needed_again(
    load: Requests, small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    rates = np.bincount((load.arrival_s / 300.0).astype(int))[:, None] / 300.0 * blend
    dear = Tariff(np.array([0.0, 1485.0]), np.array([1.0, 40.0]))  # when they are to start again

    def served(tariff: Tariff | None):
        controller = Parking(profiles, Demand(rates, 300.0, follows=False), tariff=tariff)
        run = simulate_cluster(load, small_cluster, controller)
        done = [type(each.action) for each in run.log if each.at_s >= 600.0 and not each.refused]
        return run, done.count(Stop), done.count(Start)

    even, stops, starts = served(None)
    assert stops > 0 and starts > 0  # twenty minutes are worth a start
    avoided, fewer_stops, fewer_starts = served(dear)
    assert fewer_stops < stops and fewer_starts < starts  # not at forty times the price
    assert avoided.total_energy_j > even.total_energy_j  # it takes more energy
    bin_s = even.timeline.bin_s
    quiet = int(1800.0 / bin_s)  # bins until the load is back, and with it starts that both need
    costs = [dear.cost(run.timeline.energy_j[:quiet], bin_s, quiet * bin_s) for run in (even, avoided)]
    assert costs[1] < costs[0]  # and costs less
    alike, same_stops, _ = served(Tariff.hourly(0.3))
    assert same_stops == stops and alike.total_energy_j == even.total_energy_j


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "prices.csv").write_text("at,price\n2026-01-01T00:00,0.2\n2026-01-02T00:00,0.4\n")
    return parse_scenario(TEXT.encode(), tmp_path / "x.toml", tuple(POLICIES))


def test_records_have_what_their_energy_costs_and_savings_are_of_it(scenario):
    texts: list[str] = []
    records = run_scenario(scenario, keep=lambda run, text: texts.append(text))
    kwh = [each.energy_j / 3.6e6 for each in records]
    assert [each.cost for each in records] == pytest.approx([0.2 * each for each in kwh])  # from 23:00, for a minute
    assert [each.carbon_g for each in records] == pytest.approx([123 * each for each in kwh])
    assert json.loads(texts[0])["carbon_g"] == records[0].carbon_g
    (found,) = compared(records, scenario.parts.objective.minimise)
    assert found.outcomes[1].saved.mean == pytest.approx(1 - records[1].cost / records[0].cost)
    table = policies_table(found, "EUR")
    assert [column.title for column in table.columns[:4]] == ["Policy", "Energy", "Cost", "CO2e"]
    assert table.rows[0].texts[2].endswith("EUR") and table.rows[0].values[3] == records[0].carbon_g
    assert "cost" in effect_text(scenario, found) or "No policy meets" in effect_text(scenario, found)


def test_without_costs_nothing_is_shown_of_them(tmp_path):
    text = TEXT[: TEXT.index("[objective]")] + TEXT[TEXT.index("[[traffic]]") :]
    text = text.replace(', "scale-clocks"', "")  # one policy shows it
    plain = parse_scenario(text.encode(), tmp_path / "x.toml", tuple(POLICIES))
    records = run_scenario(plain)
    assert {each.cost for each in records} == {each.carbon_g for each in records} == {None}
    assert not {"Cost", "CO2e"} & {column.title for column in policies_table(compared(records)[0]).columns}


def test_runs_depend_on_what_energy_costs_and_hours_count_from_the_beginning_of_a_file(scenario, tmp_path):
    (tmp_path / "prices.csv").write_text("at,price\n0,0.2\n86400,0.5\n")
    assert parse_scenario(TEXT.encode(), tmp_path / "x.toml").digest != scenario.digest
    lines = ["arrival_s,prompt_tokens,output_tokens", *(f"{10.0 * at},100,10" for at in range(60))]
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    text = TEXT.replace('kind = "poisson"\nrate_per_s = 10\nduration_s = 60.0', 'kind = "trace"\nfile = "trace.csv"')
    traced = parse_scenario(text.replace("[run]", "history_s = 120.0\n[run]").encode(), tmp_path / "x.toml")
    assert load_of(traced, traced.parts.traffic[0], 0).begin_s == 120.0
    assert traced.tariffs["carbon"].begin_s == 23 * HOUR_S


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('price_per_kwh = "prices.csv"', "", "objective: minimise: give price_per_kwh for the price to be minimised"),
        ('"prices.csv"', "[1.0, 2.0]", "objective: price_per_kwh: 2 values; give one, 24 by hour of the day"),
        ('"prices.csv"', '"none.csv"', "objective.price_per_kwh: "),
        ('"prices.csv"', f'"{ENGINE.name}"', "objective.price_per_kwh: "),
        ('minimise = "price"', 'minimise = "money"', "objective.minimise: Input should be 'energy', 'price' or 'carbon'"),
        ("begin_hour = 23", "begin_hour = -1", "objective.begin_hour"),
        ("[100, ", "[-100, ", "objective.carbon_g_per_kwh"),
    ],
)  # fmt: skip
def test_costs_that_are_wrong_are_said_by_file_and_key(scenario, tmp_path, old, new, says):
    assert old in TEXT
    (tmp_path / ENGINE.name).write_text("at,price\n0,1\n0,2\n")
    with pytest.raises(BadInputError) as caught:
        parse_scenario(TEXT.replace(old, new).encode(), tmp_path / "x.toml")
    assert "x.toml: " in str(caught.value) and says in str(caught.value), caught.value


def test_a_file_of_costs_is_read_by_lines(tmp_path):
    file = tmp_path / "costs.csv"
    file.write_text("at,price\n0,1\n900,-0.5\n")
    assert read_tariff(file).mean(np.zeros(1), np.array([1800.0])) == 0.25
    for text, says in (("at,price\n0,1\n900\n", "costs.csv:3: must be a time"), ("at,price\n", "at least one"),
                       ("at,price\n9,1\n0,1\n", "must be ascending")):  # fmt: skip
        file.write_text(text)
        with pytest.raises(BadInputError, match=says):
            read_tariff(file)
