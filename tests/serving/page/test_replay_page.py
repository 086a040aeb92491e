"""The page of a replay: the headline's numbers, clocks beside the load, and what to do next."""

import json
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import wastenot as wn
from testbed.server_history import answering_prometheus, scrapes
from wastenot.serving.cli.serve_control import replay_text
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.page.replay_page import replay_page, timeline_figure
from wastenot.serving.page.replay_words import notes
from wastenot.terminal.output import console

FILE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"


@pytest.fixture(scope="module")
def history():
    engine = read_engine(FILE).within_known_clocks().engine()
    made = scrapes(engine, round(time.time()) - 5.0, 1200.0)
    return [each for number, each in enumerate(made) if not 40 <= number < 55]


@pytest.fixture(scope="module")
def found(history):
    with answering_prometheus({"gpu-1:8000": history}) as url:
        return wn.serve.replay(FILE, url, hours=0.5)


@pytest.fixture(scope="module")
def two(found):
    other = replace(found.servers[0], instance="b<i>:1", gaps=0)
    return replace(found, servers=(*found.servers, other))


def rows(figure):
    return next(iter(figure.specification["datasets"].values()))


def test_the_timeline_adds_up_to_what_is_counted(found):
    (server,) = found.servers
    assert sum(each.lasted_s for each in server.timeline) == pytest.approx(server.covered_s)
    assert sum(each.lasted_s * each.tokens_per_s for each in server.timeline) == pytest.approx(server.output_tokens)
    lasted = dict.fromkeys(server.clocks, 0.0)
    for each in server.timeline:
        lasted["0" if each.core_mhz == 1980.0 and "0" in lasted else f"{each.core_mhz:g}"] += each.lasted_s
    assert lasted == pytest.approx(dict(server.clocks))


def test_long_histories_are_told_in_few_stretches(history):
    engine = read_engine(FILE).within_known_clocks().engine()
    made = scrapes(engine, round(time.time()) - 5.0, 1800.0, every_s=2.0)
    with answering_prometheus({"a": made}) as url:
        (server,) = wn.serve.replay(FILE, url, hours=0.6).servers
    assert server.scrapes > 800 and 200 < len(server.timeline) <= 400
    assert sum(each.lasted_s for each in server.timeline) == pytest.approx(server.covered_s)
    assert sum(each.lasted_s * each.tokens_per_s for each in server.timeline) == pytest.approx(server.output_tokens)


def test_the_headline_is_what_the_terminal_says(found, capsys):
    page = replay_page(found)
    console().print(replay_text(found))
    printed = " ".join(capsys.readouterr().out.split())
    effect, saved, slower, met = (" ".join(each.split()) for each in (page.effect, *(each.value for each in page.panels)))
    assert effect.lower() in printed and saved.removesuffix(" saved") in printed and slower in printed
    assert met.removesuffix(" of the time") in printed
    assert page.origin == "simulated" and "No clock was set" in page.verdict


def test_the_clock_is_drawn_beside_the_load_and_broken_where_there_is_none(found):
    figure = timeline_figure(found)
    drawn = rows(figure)
    assert len(figure.specification["vconcat"]) == 3
    known = [each for each in drawn if each["mhz"] is not None]
    assert {each["mhz"] for each in known} <= {1380.0 + 60.0 * step for step in range(11)}
    assert sum(each["tokens"] is None for each in drawn) == 2  # the gap, and the end
    assert all(before["at"] <= after["at"] for before, after in pairwise(drawn))


def test_a_gap_stands_out_and_what_no_history_tells_stands_at_the_end(found):
    page = replay_page(found)
    assert page.notes == ["Not counted: 1 gap without scrapes."]
    assert len(page.cannot_tell) == 3 and page.cannot_tell[0].startswith("The server was scraped once every 15")
    assert all(any(each.rstrip(".").lower() in note.lower() for note in notes(found)) for each in page.cannot_tell[1:])


def test_a_profile_of_another_engine_is_corrected_first(found):
    off = replace(found, servers=(replace(found.servers[0], measured_tbt_s=0.02),))
    page = replay_page(off)
    assert "correct it by the server's own steps" in page.notes[0]
    assert page.next_step.commands[0].endswith("--from STEPS.jsonl --out corrected.json")
    assert replay_page(found).next_step.commands[0].endswith("--instance http://gpu-1:8000=DEVICE")


def test_servers_are_told_apart(two):
    page = replay_page(two)
    assert page.notes == ["gpu-1:8000: not counted: 1 gap without scrapes."]
    ((_, table),) = page.tables
    assert [row.texts[0] for row in table.rows] == ["gpu-1:8000", "b<i>:1"]
    assert {each["server"] for each in rows(page.figures[1])} == {"gpu-1:8000", "b<i>:1"}
    html = page.html()
    assert "b<i>" not in html and "2 servers" in html


def test_most_servers_of_a_fleet_are_in_the_table_only(found):
    many = replace(found, servers=tuple(replace(found.servers[0], instance=f"gpu-{index}") for index in range(9)))
    page = replay_page(many)
    assert "3 more servers not drawn" in page.figures[1].note and len(page.tables[0][1].rows) == 9


def test_a_history_whose_tokens_are_all_left_out(found):
    server = replace(found.servers[0], tbt_s=None, default_tbt_s=None, output_tokens=0.0, timeline=())
    page = replay_page(replace(found, servers=(server,)))
    assert page.panels[1].value == "not known" and page.figures[0].specification is None
    assert "Clocks and load" in page.html()


def test_as_a_command(wastenot, history, tmp_path):
    control = ("serve", "control", str(FILE), "--hours", "0.5")
    with answering_prometheus({"gpu-1:8000": history}) as url:
        secret = url.replace("http://", "http://me:s3cr3t@")
        ran = wastenot(*control, "--replay", secret, "--page", "r.html", "--figures", "f", "--out", "r.json")
    assert ran.code == 0, ran.err
    html = (tmp_path / "r.html").read_text()
    assert "would have saved" in html and "s3cr3t" not in html and "--page r.html" in html
    assert (tmp_path / "f" / "replay-timeline.svg").exists()
    assert json.loads((tmp_path / "r.json").read_text())["servers"][0]["timeline"]
    assert re.search(r"error: --page: has no effect without --replay", wastenot(*control[:3], "--page", "r.html").err)
