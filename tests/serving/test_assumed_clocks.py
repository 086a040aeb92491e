"""Clocks at which steps are assumed: no policy and no headline rests on them unless they are asked for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import wastenot as wn
from testbed.serving_inputs import SCENARIO, SERVERS
from wastenot.core.setting import Setting
from wastenot.devices.simulated.basis import assumed_below_mhz, preset_names
from wastenot.devices.simulated.preset import find_preset
from wastenot.serving.cluster.scenario import parse_scenario
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.operating_points import operating_points, prefill_points
from wastenot.serving.model.profile_file import EngineProfile, read_engine, write_engine
from wastenot.serving.model.steering import steer
from wastenot.serving.page.engine_words import effect_text as profile_text
from wastenot.serving.page.steer_page import steer_page
from wastenot.serving.page.steer_words import effect_text, panels, policies_table, verdict_text

ENGINE = Path(__file__).parents[2] / "data" / "serving" / "llama-8b-sim-h200.json"
DEADLINES = Deadlines(ttft_s=(0.3,), prompt_below=())
TRACE = poisson(1.0, 60.0, LogNormal(300, 0.8, most=2000), LogNormal(30, 0.5), seed=8)


def lowest_mhz(engine: Engine) -> float:
    return min(each.core_mhz for each in engine.tables.settings if each.core_mhz is not None)


@pytest.fixture
def half_known(three_clocks):
    """At 1,000 MHz it is assumed, at 1,500 and 2,000 MHz it is not."""
    return replace(three_clocks, assumed_below_mhz=1500.0)


def test_presets_say_below_which_clock_they_are_assumed():
    for name in preset_names():
        assert assumed_below_mhz(f"sim:{name}") == find_preset(name).clocks.assumed_below_mhz
    assert assumed_below_mhz("sim:h200") == assumed_below_mhz("sim:h100") == 1350.0
    assert assumed_below_mhz("nvidia:0") is assumed_below_mhz("sim:none.toml") is None


def test_an_engine_within_known_clocks(half_known, three_clocks):
    assert half_known.known_settings == (1, 2)
    assert not half_known.assumes(Setting()), "the card's own clocks are high"
    known = half_known.within_known_clocks()
    assert [each.core_mhz for each in known.tables.settings] == [1500.0, 2000.0]
    for place in (0, 1):
        assert known.tables.mixed(place, 256, 0, 8, 500) == three_clocks.tables.mixed(place + 1, 256, 0, 8, 500)
    assert known.within_known_clocks() is known and three_clocks.within_known_clocks() is three_clocks
    with pytest.raises(wn.BadInputError, match=r"all clocks of this profile are below 3000 MHz"):
        replace(three_clocks, assumed_below_mhz=3000.0).within_known_clocks()


def test_a_file_keeps_the_limit_and_files_of_earlier_versions_get_their_devices(half_known, tmp_path):
    write_engine(EngineProfile((half_known,)), tmp_path / "engine.json")
    assert read_engine(tmp_path / "engine.json").assumed_below_mhz == 1500.0
    document = json.loads((tmp_path / "engine.json").read_text())
    del document["engines"][0]["assumed_below_mhz"]
    for device, limit in (("sim:h200", 1350.0), ("card", None)):
        (tmp_path / "engine.json").write_text(json.dumps(document | {"device": device}))
        assert read_engine(tmp_path / "engine.json").assumed_below_mhz == limit


def test_points_of_a_profile(half_known):
    profile = EngineProfile((half_known,))
    points, all_points = operating_points(profile), operating_points(profile, assumed_clocks=True)
    assert {each.setting.core_mhz for each in points} == {1500.0, 2000.0} and not any(each.assumed for each in points)
    assert {each.setting.core_mhz for each in all_points if each.assumed} == {1000.0}
    assert profile_text(points) == profile_text(all_points), "the headline stays where it is known"
    assert "1,500\xa0MHz saves" in profile_text(points)
    assert len(prefill_points(profile, assumed_clocks=True)) == 1.5 * len(prefill_points(profile))


def test_policies_stay_within_known_clocks_and_what_others_would_save_is_told_beside(half_known, three_clocks):
    given = {"step_tokens": 512, "policies": ("fixed", "price"), "deadlines": DEADLINES}
    default = steer(half_known, TRACE, **given)
    assert default.with_assumed is None
    assert all(run.result.mean_core_mhz >= 1500.0 for run in default.runs)
    page = steer_page(default)
    assert page.notes[0].startswith("With idle power 30")
    assert page.notes[1:] == [
        "Only clocks from 1,500\xa0MHz up are used: below, the simulated GPU rests on no measurement (--assumed-clocks adds "
        "those)."
    ]
    more = steer(half_known, TRACE, assumed_clocks=True, **given)
    everywhere = steer(three_clocks, TRACE, **given)
    for run, known, all_clocks in zip(more.runs, default.runs, everywhere.runs, strict=True):
        assert run.result == known.result
        assert more.with_assumed.again(run).result == all_clocks.result
    assert effect_text(more) == effect_text(default), "no headline rests on what is assumed"
    price = everywhere.runs[2]
    assert everywhere.saved(price) > default.saved(default.runs[2]) > 0.0
    saved = f"{100 * everywhere.saved(price):.1f}\xa0%"
    (_, assumed, _) = panels(more)
    assert (
        assumed.title == "With assumed clocks too" and assumed.value == f"{saved} saved" and "price policy" in assumed.text
    )
    assert verdict_text(more).startswith(verdict_text(default)) and verdict_text(more).endswith(
        f"; {saved} with the price policy if clocks below 1,500\xa0MHz behave as assumed"
    )
    table = policies_table(more)
    assert table.columns[3].title == "Saved with assumed clocks" and table.rows[2].texts[3] == saved
    assert steer_page(more).notes[1].startswith("Known clocks are those from 1,500\xa0MHz up")
    assert more.document()["policies"][2]["with_assumed_clocks"]["saved"] == everywhere.saved(price)


def test_where_all_clocks_are_assumed_they_have_to_be_asked_for(three_clocks):
    assumed = replace(three_clocks, assumed_below_mhz=3000.0)
    given = {"step_tokens": 512, "policies": (), "deadlines": DEADLINES}
    with pytest.raises(wn.BadInputError, match="give assumed_clocks"):
        steer(assumed, TRACE, **given)
    profile = EngineProfile((assumed,))
    assert all(each.assumed for each in operating_points(profile) if each.setting.core_mhz) and prefill_points(profile)
    found = steer(assumed, TRACE, assumed_clocks=True, **given)
    assert found.document()["assumed_clocks"] is True
    assert found.with_assumed is None and steer_page(found).notes[0].startswith("All clocks are assumed")


def test_a_scenario(tmp_path):
    default = parse_scenario(SCENARIO.encode(), tmp_path / "mine.toml")
    assert default.with_assumed is None and lowest_mhz(default.cluster.layouts[0]) == 1380.0
    allowed = SCENARIO.replace("hosts = 1", "hosts = 1\nassumed_clocks = true")
    by_key = parse_scenario(allowed.encode(), tmp_path / "mine.toml")
    by_argument = parse_scenario(SCENARIO.encode(), tmp_path / "mine.toml", assumed_clocks=True)
    for each in (by_key, by_argument):
        assert lowest_mhz(each.cluster.layouts[0]) == 1380.0 and each.digest == default.digest
        assert lowest_mhz(each.with_assumed.cluster.layouts[0]) == 660.0 and each.with_assumed.digest != default.digest
        assert each.with_run(seeds=[4]).with_assumed.parts.run.seeds == (4,)


def test_a_scenario_of_measured_engines_has_none(half_known, tmp_path):
    write_engine(EngineProfile((replace(half_known, assumed_below_mhz=None),)), tmp_path / "engine.json")
    text = SCENARIO.replace(str(ENGINE), "engine.json")
    one, other = (parse_scenario(text.encode(), tmp_path / "x.toml", assumed_clocks=each) for each in (False, True))
    assert one.digest == other.digest and other.with_assumed is None


@pytest.mark.slow
def test_a_scenario_is_run_with_assumed_clocks_beside(tmp_path):
    (tmp_path / "mine.toml").write_text(SCENARIO)
    given = {"policies": ["single-pool", "scale-clocks"]}
    default = wn.serve.simulate_scenario(tmp_path / "mine.toml", tmp_path / "kept.db", **given)
    more = wn.serve.simulate_scenario(tmp_path / "mine.toml", tmp_path / "kept.db", assumed_clocks=True, **given)
    assert (default.runs, more.runs, more.kept) == (2, 4, 2)
    (found,), (known,) = more.comparisons, default.comparisons
    assert found.outcomes == known.outcomes
    assumed = found.with_assumed.outcome("scale-clocks")
    assert assumed.saved.mean > known.outcomes[1].saved.mean
    document = more.document()
    assert document["assumed_clocks"] is True and document["assumed_below_mhz"] == 1350.0
    assert document["traffic"][0]["policies"][1]["with_assumed_clocks"]["saved"]["mean"] == assumed.saved.mean
    page = more.drawn()
    assert page.effect == default.drawn().effect, "no headline rests on what is assumed"
    with pytest.raises(wn.BadInputError, match=r"assumed_clocks: applies to a scenario's file"):
        wn.serve.simulate_scenario(default.scenario, assumed_clocks=True)


def test_a_recommendation(tmp_path):
    (tmp_path / "table.csv").write_text(SERVERS)
    given = {"only": wn.serve.Only(model="small"), "clocks": ENGINE}
    found = [wn.serve.recommend(tmp_path / "table.csv", assumed_clocks=each, **given).points for each in (False, True)]
    clocks = [[each.setting.core_mhz for each in points if each.setting.core_mhz] for points in found]
    assert min(clocks[0]) == 1380.0 and min(clocks[1]) == 660.0
    marked = {each.setting.core_mhz for each in found[1] if each.notes and "(assumed)" in each.notes[-1]}
    assert marked == {each for each in clocks[1] if each < 1350.0}


@pytest.mark.parametrize(("asked", "lowest"), [(False, 1380.0), (True, 660.0)])
def test_servers_are_controlled_within_them(monkeypatch, asked, lowest):
    controlled = []
    monkeypatch.setattr("wastenot.serving.control.control.control", lambda instances, *_, **__: controlled.extend(instances))
    wn.serve.control(ENGINE, {"http://127.0.0.1:9": []}, assumed_clocks=asked, tell=lambda event: None)
    assert lowest_mhz(controlled[0].engine) == lowest
