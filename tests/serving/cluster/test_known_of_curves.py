"""What policies know of synthetic traffic: its past, made up or real, and never what they are judged on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.cluster_loads import load_of
from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import DAY_S, WEEK_S
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.scenario import Scenario, parse_scenario
from wastenot.serving.cluster.scenario_file import CurvePart
from wastenot.serving.cluster.scenario_load import LENGTHS, load_parts_of, past_of
from wastenot.serving.cluster.traffic import RateCurve

ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
SHARES = np.full(COUNT, 1 / COUNT)
SLOTS = 7 * 24


def scenario_of(folder: Path, weeks: int = 1, more: str = "", predictor: str = "") -> Scenario:
    """Weeks from Wednesday's 6 o'clock on by the hour, each busier than the one before."""
    begin = datetime(2024, 5, 15, 6)
    rates = [60 * (1 + week + (slot % 24) / 6) for week in range(weeks) for slot in range(SLOTS)]
    lines = [f"{(begin + timedelta(hours=hour)).isoformat()},{rate}" for hour, rate in enumerate(rates)]
    (folder / "rates.csv").write_text("\n".join(["at,per_minute", *lines]))
    points = [f"chat,{field},{percent},{tokens}" for field, least in (("ContextTokens", 20), ("GeneratedTokens", 5))
              for percent, tokens in ((0, least), (50, 10 * least), (100, 90 * least))]  # fmt: skip
    (folder / "lengths.csv").write_text("\n".join(["service,field,cdf_percent,tokens", *points]))
    text = f"""
    [cluster]
    engines = "{ENGINE}"
    hosts = 1
    [predictor]
    {predictor}
    [[traffic]]
    kind = "curve"
    rates = "rates.csv"
    lengths = "lengths.csv"
    service = "chat"
    {more}
    [run]
    policies = ["single-pool"]
    """
    return parse_scenario(text.encode(), folder / "x.toml")


def parts_of(scenario: Scenario, seed: int = 3) -> Any:
    return load_parts_of(scenario, scenario.parts.traffic[0], seed)


def past(scenario: Scenario, seed: int = 3) -> Any:
    traffic = scenario.parts.traffic[0]
    assert isinstance(traffic, CurvePart)
    return past_of(scenario.curves[0], traffic, SHARES, seed)


def hourly(scenario: Scenario) -> np.ndarray:
    return np.asarray(scenario.curves[0].whole.rate_per_s)


def test_weeks_before_a_curve_are_made_up_from_it(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, more="history_weeks = 3")
    found = past(scenario)
    assert len(found.counts) == 3 * SLOTS * 12
    assert found.since_monday_s == 2 * DAY_S + 6 * 3600.0
    rates = np.repeat(hourly(scenario), 12)
    ratio = found.rate_per_s.sum(axis=1).reshape(3, -1) / rates
    days = ratio[:, 18 * 12 :][:, : 6 * 288].reshape(3 * 6, 288)  # from midnight on
    assert 0.05 < np.log(days.mean(axis=1)).std() < 0.17
    assert not np.array_equal(found.counts, past(scenario, 4).counts)
    still = past(scenario_of(tmp_path, more="day_sigma = 0\nslot_sigma = 0")).rate_per_s.sum(axis=1).reshape(2, -1)
    assert np.abs(still / rates - 1).mean() < 2 / np.sqrt(300 * rates.mean())


def test_what_comes_before_the_judged_stretch_is_known_as_it_was(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, more="begin_s = 176400.0")
    found, real = past(scenario), np.repeat(hourly(scenario)[:49], 12)
    assert len(found.counts) == (2 * SLOTS + 49) * 12
    assert np.abs(found.rate_per_s.sum(axis=1)[-len(real) :] / real - 1).mean() < 2 / np.sqrt(300 * real.mean())
    later = past(scenario_of(tmp_path, weeks=3, more=f"begin_s = {2 * WEEK_S}"))
    assert len(later.counts) == 2 * SLOTS * 12  # real weeks, and none made up
    totals = later.rate_per_s.sum(axis=1).reshape(2, -1)
    assert (totals[1] - totals[0]).mean() == pytest.approx(1.0, rel=0.05)


def test_past_weeks_are_those_of_the_weekday(tmp_path: Path) -> None:
    """Real weeks of one, two and three: the median of two is known, and the third is judged."""
    known = parts_of(scenario_of(tmp_path, weeks=3, more=f"begin_s = {2 * WEEK_S}\nduration_s = 90000.0")).known
    assert known.forecast_per_s.shape == (25 * 12, COUNT)
    expected = np.repeat(1.5 + np.arange(25) % 24 / 6, 12)
    assert known.forecast_per_s.sum(axis=1) == pytest.approx(expected, rel=0.2)
    assert known.forecast_per_s.sum(axis=1).mean() == pytest.approx(expected.mean(), rel=0.02)


def test_of_a_curve_of_hours_only_these_hours_are_known(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    whole = RateCurve(600.0, np.arange(1.0, 13.0))  # two hours
    curve = replace(scenario.curves[0], whole=whole, rates=whole.part(3, 12), first=3)
    traffic = scenario.parts.traffic[0]
    assert isinstance(traffic, CurvePart)
    found = past_of(curve, traffic, SHARES, 0)
    known = np.isfinite(found.counts).all(axis=1)
    assert known.sum() == 14 * 24 + 6 and known[-6:].all() and not known[-60:-6].any()


def test_few_requests_are_drawn_for_what_is_known_of_millions(tmp_path: Path) -> None:
    parts = parts_of(scenario_of(tmp_path, more="rate_per_s = 4000.0"))
    assert len(parts.known.lengths) == pytest.approx(LENGTHS, rel=0.03)
    assert parts.known.mean_per_s.sum() == pytest.approx(4000.0, rel=0.1)
    first = next(iter(parts.parts(60.0)))[0]
    assert 0 < len(first) < 4000 * 60 * 3


@pytest.mark.parametrize("part_s", [600.0, 4000.0, 1e6])
def test_a_load_is_the_same_however_it_is_cut(tmp_path: Path, part_s: float) -> None:
    scenario = scenario_of(tmp_path, more="duration_s = 7200.0\nrate_per_s = 2.0", predictor="right = 0.7")
    whole = load_of(scenario, scenario.parts.traffic[0], 3)
    parts = list(parts_of(scenario).parts(part_s))
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        cut = np.concatenate([getattr(each, name) for each, _ in parts])
        np.testing.assert_array_equal(cut, getattr(whole.requests, name))
    assert whole.predicted_tokens is not None
    np.testing.assert_array_equal(np.concatenate([told for _, told in parts]), whole.predicted_tokens)
    assert parts_of(scenario).duration_s == whole.duration_s == 7200.0


def test_a_load_without_requests_is_said_so(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, more="duration_s = 3600.0\nrate_per_s = 1e-7")
    with pytest.raises(BadInputError, match=r"traffic 'curve': has no requests to serve"):
        load_of(scenario, scenario.parts.traffic[0], 3)


def test_poisson_loads_come_in_parts_as_well(tmp_path: Path) -> None:
    text = f"""
    [cluster]
    engines = "{ENGINE}"
    hosts = 1
    [[traffic]]
    kind = "poisson"
    rate_per_s = 2.0
    duration_s = 600.0
    [run]
    policies = ["single-pool"]
    """
    scenario = parse_scenario(text.encode(), tmp_path / "x.toml")
    whole = load_of(scenario, scenario.parts.traffic[0], 3).requests
    parts = [each for each, told in parts_of(scenario).parts(50.0) if told is None]
    assert 10 <= len(parts) <= 12
    np.testing.assert_array_equal(np.concatenate([each.arrival_s for each in parts]), whole.arrival_s)
    assert all(each.arrival_s[-1] < 50.0 * (place + 1) for place, each in enumerate(parts) if len(each))


@pytest.mark.parametrize(
    ("predictor", "says"),
    [
        ("confusion = [[1.0, 0.0, 0.0], [0.5, 0.4, 0.0], [0.0, 0.0, 1.0]]", "row 2 sums to 0.9"),
        ("right = 0.9\nconfusion = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]", "give only one of them"),
        ("confusion = [[1.0, 0.0], [0.0, 1.0]]", "confusion"),
        ("confusion = [[1.0, 0.5, -0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]", "confusion"),
    ],
)
def test_a_confusion_that_is_none_is_said_so(tmp_path: Path, predictor: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        scenario_of(tmp_path, predictor=predictor)


def test_a_confusion_is_followed(tmp_path: Path) -> None:
    rows = "[[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]"
    scenario = scenario_of(tmp_path, more="duration_s = 3600.0", predictor=f"confusion = {rows}")
    load = load_of(scenario, scenario.parts.traffic[0], 3)
    assert load.predicted_tokens is not None and (load.predicted_tokens >= 350).all()
