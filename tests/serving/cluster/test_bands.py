"""What a headline's saving becomes with other assumptions, and what a policy says before a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from wastenot.serving.cluster.band import RIGHT, band_of, variations, varied_runs
from wastenot.serving.cluster.beforehand import beforehand
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import ChangeTimes, Cluster
from wastenot.serving.cluster.outcome import Comparison, compared
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.runs import run_scenario
from wastenot.serving.cluster.scenario import Scenario, parse_scenario
from wastenot.serving.cluster.scenario_load import Known
from wastenot.serving.model.band import Varied, band, idle_varied
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.page.cluster_words import cautions_on
from wastenot.serving.page.simulated_words import band_text

ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
TEXT = f"""
[cluster]
engines = "{ENGINE}"
hosts = 1
gpus_per_host = 1
idle_power_w = 120.0
[[traffic]]
name = "steady"
kind = "poisson"
rate_per_s = 5
duration_s = 30.0
[run]
policies = ["single-pool", "parking"]
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return parse_scenario(TEXT.encode(), tmp_path_factory.mktemp("bands") / "mine.toml", tuple(POLICIES))


def beside(scenario: Scenario) -> Sequence[Comparison]:
    return compared(run_scenario(scenario), "energy")


def test_more_idle_power_favours_who_idles_less() -> None:
    lower, higher = idle_varied((1000.0, 10.0), (800.0, 4.0))
    assert lower.saved == pytest.approx(1 - (800 - 120) / (1000 - 300))
    assert higher.saved == pytest.approx(1 - (800 + 120) / (1000 + 300))


def test_a_band_reaches_from_the_least_to_the_most_that_meets_the_deadlines() -> None:
    found = band("mine", 0.2, [Varied("a", 0.1), Varied("b", 0.3), Varied("c", 0.4, failed=True), Varied("d", None, True)])
    assert (found.low, found.high) == (0.1, 0.3)
    text = band_text(found).replace("\u00a0", " ")
    assert text.endswith("mine saves 10.0 % to 30.0 %; too many requests are late with c and d")


def test_idle_power_of_a_scenario_is_that_of_its_gpus_and_of_parked_ones(scenario: Scenario) -> None:
    assert set(scenario.cluster.layouts[0].tables.idle_power_w) == {120.0}
    assert scenario.cluster.changes.parked_power_w == 120.0


@pytest.mark.slow
def test_changes_are_run_again_and_idle_power_is_not(scenario: Scenario) -> None:
    (found,) = beside(scenario)
    within = band_of(scenario, found)
    assert within is not None and within.low <= found.outcomes[1].saved.mean <= within.high
    assert len(within.varied) == 2
    changed = variations(scenario)
    assert list(changed) == ["start-up twice as long", "deadlines halved", "70 % of lengths predicted"]
    assert len({each.digest for each in (scenario, *changed.values())}) == 4
    assert changed["70 % of lengths predicted"].parts.predictor.right == RIGHT
    varied = varied_runs(scenario, ("single-pool", "parking"), beside)
    assert [each["steady", "parking"].what for each in varied] == list(changed)
    assert varied[0]["steady", "parking"].saved == pytest.approx(found.outcomes[1].saved.mean)  # nothing starts


def test_parking_says_beforehand_what_it_keeps(scenario: Scenario) -> None:
    (found,) = beside(scenario)
    said = found.outcomes[1].records[0].beforehand
    assert said is not None and said.keeps_per_s > 5 and said.bursty_per_s is not None and not said.warns
    assert said.keeps_per_s / 2 < said.bursty_per_s <= said.keeps_per_s  # independent requests are known
    assert found.outcomes[0].records[0].beforehand is None
    assert any(note.startswith("Before the run parking said") for note in cautions_on(scenario, found))


def test_bursts_that_not_even_all_gpus_take_are_warned_of() -> None:
    """Sixty requests at a time, with a prompt of 2,000 tokens each, on one GPU."""
    engine = read_engine(ENGINE).engine()
    cluster, count = Cluster((engine,), 1, ChangeTimes((35.0,)), gpus_per_host=1), 1200
    evenly = np.arange(count) / 2
    tokens = np.full(count, 2000), np.full(count, 50)
    rate = np.zeros(COUNT)
    rate[6] = 2.0
    calm, bursty = (
        beforehand(cluster, 0, 8.0, Known(Requests(arrival_s, *tokens), rate, rate, rate, rate[None]))
        for arrival_s in (evenly, np.floor(evenly / 30) * 30)
    )
    assert calm.bursty_per_s is not None and calm.bursty_per_s > 4.0 and not calm.warns
    assert bursty.bursty_per_s is not None and bursty.bursty_per_s < 1.0 and bursty.warns
