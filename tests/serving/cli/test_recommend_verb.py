"""``wastenot serve recommend``."""

from __future__ import annotations

import json

import pytest

from testbed.serving_inputs import SERVERS


@pytest.fixture
def table(wastenot):
    (wastenot.folder / "table.csv").write_text(SERVERS)
    return wastenot


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_least_energy_within_a_bound(table):
    text = plain(table("serve", "recommend", "table.csv", "--itl", "50ms").out)
    assert "org/small  1 × H100, batch 64" in text and "75.0 %" in text
    assert "org/large  4 × B200, batch 64" in text
    document = json.loads(table("serve", "recommend", "table.csv", "--itl", "50ms", "--model", "small", "--json").out)
    (found,) = document["recommendations"]
    assert document["schema"] == "wastenot.recommend/1" and found["batch"] == 64 and found["evidence"] == "measured"
    assert found["looser"] == {"latency_s": 0.07, "saved": pytest.approx(0.2), "point": found["frontier"][-1]}
    one = plain(table("serve", "recommend", "table.csv", "--itl", "50ms", "--model", "small").out)
    assert "With 70.0 ms: 20.0 % less" in one and "Below 20.0 ms: 300.0 % more" in one


def test_a_percentile_and_money(table):
    document = json.loads(table("serve", "recommend", "table.csv", "--itl", "50ms", "--percentile", "p99", "--json").out)
    assert [each["batch"] for each in document["recommendations"]] == [8, 64]
    text = table(
        "serve", "recommend", "table.csv", "--itl", "50ms", "--unit", "money", "--gpu-hour", "2", "--currency", "EUR"
    ).out
    assert "EUR per million tokens" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--itl", "5ms"), "the lowest time between tokens is 8 ms (1 × H100, batch 8)"),
        (("--model", "huge"), "--model huge: not one of org/small, org/large"),
        (("--itl", "0"), "--itl 0: must be a positive number"),
        (("--unit", "money", "--price-per-kwh", "-1"), "--price-per-kwh -1.0: must be a number of at least 0"),
        (("--clocks", "none.json"), "--clocks: a profile is of one model"),
        (("--gpus", "0"), "--gpus 0: the smallest configuration has 1"),
        (("--e2e", "-1"), "--e2e -1: must be a positive number"),
        (("--gpu-hour", "2"), "--gpu-hour: has no effect without --unit money"),
        (("--context", "512"), "--context: has no effect without --clocks"),
        (("--context", "-1", "--clocks", "none.json"), "--context -1: must be a number of tokens, at least 0"),
    ],
)
def test_what_cannot_be(table, options, message):
    result = table("serve", "recommend", "table.csv", *options)
    assert result.code == 2 and message in result.err and not result.out


def test_sources_that_hold_nothing(table):
    assert "does not exist" in table("serve", "recommend", "none.db").err
    assert "cannot be read" in table("serve", "recommend", "none.csv").err


def test_when_nothing_fits_the_nearest_models_are_named_first(table):
    many = [f"chat,org/m{index:02},H100,1,8,0.4,{40 - index},50,400" for index in range(12)]
    (table.folder / "many.csv").write_text("\n".join([SERVERS.splitlines()[0], *many]))
    said = table("serve", "recommend", "many.csv", "--itl", "5ms").err
    assert said.startswith("error: no configuration fits: org/m11: the lowest time between tokens is 29 ms")
    assert said.rstrip().endswith("; and 9 more models") and said.count("org/") == 3
    same = table("serve", "recommend", "many.csv", "--itl", "50ms", "--ttft", "1s").err
    assert same == "error: no configuration fits: of 12 models, no median time to the first token is on record\n"


def test_without_a_bound_more_time_is_worth_nothing(table):
    assert "Each extra millisecond" not in table("serve", "recommend", "table.csv", "--model", "small").out


def test_a_table_that_is_empty_or_another_one(table):
    (table.folder / "empty.csv").write_text("")
    (table.folder / "other.csv").write_text("model,batch\n1,2\n")
    assert "empty.csv:1: has no column model_id; give a table" in table("serve", "recommend", "empty.csv").err
    other = table("serve", "recommend", "other.csv").err
    assert "other.csv:1: has no column model_id (did you mean 'model'? There are: model, batch); give a table" in other


def test_large_energies_have_no_exponent_and_bounds_have_their_names(table):
    (table.folder / "large.csv").write_text(SERVERS + "chat,org/huge,H100,8,8,13.97,33,40,4000\n")
    text = table("serve", "recommend", "large.csv", "--itl", "50ms").out
    assert (
        "14.0 J" in text.replace("\N{NO-BREAK SPACE}", " ")
        and "e+" not in text
        and "ITL within 50 ms (median; measured)" in text
    )


def test_a_row_that_is_cut_off(table):
    (table.folder / "cut.csv").write_text(SERVERS[:-8])
    assert (
        "cut.csv:6: has fewer fields than there are columns; is it truncated?" in table("serve", "recommend", "cut.csv").err
    )


def test_a_page_does_not_replace_a_table(table):
    pytest.importorskip("altair")
    result = table("serve", "recommend", "table.csv", "--itl", "50ms", "--page", "table.csv")
    assert result.code == 2 and "--page table.csv: is read; give another file" in result.err
    assert (table.folder / "table.csv").read_text() == SERVERS


def test_a_page(table):
    pytest.importorskip("altair")
    result = table("serve", "recommend", "table.csv", "--itl", "50ms", "--page", "choice.html")
    page = (table.folder / "choice.html").read_text()
    assert result.code == 0 and "choice.html: page written" in result.err
    assert "org/large" in page and "wastenot serve recommend table.csv --itl 50ms" in page
    assert table("serve", "recommend", "table.csv", "--itl", "5ms", "--page", "none.html").code == 2
    assert not (table.folder / "none.html").exists()
