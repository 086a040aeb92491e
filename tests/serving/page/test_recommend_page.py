"""The page of recommendations: what is drawn and said is what was chosen, and forecasts are marked."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.serving.model.configurations import Recommended, at_other_clocks
from wastenot.serving.model.recommend import Bounds, Prices, recommend
from wastenot.serving.page.recommend_page import recommend_figure, recommend_page
from wastenot.serving.page.recommend_words import chosen_table, effect_text, notes, origin_of, tail_text
from wastenot.serving.tables.records import Percentiles, ServingPoint

pytest.importorskip("altair")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def point(model, itl_ms, energy_j, batch, **other):
    return ServingPoint(
        model, "H100", 1, "chat", batch, float(batch), energy_j, 400.0, 400.0 / energy_j, 100.0,
        Percentiles(p50_s=itl_ms / 1e3), **other,
    )  # fmt: skip


MEASURED = [point("a", 10, 0.8, 1), point("a", 20, 0.5, 2), point("a", 60, 0.3, 4), point("b", 90, 1.0, 1)]
FORECAST = replace(
    MEASURED[1],
    setting=Setting(core_mhz=1200.0),
    energy_per_token_j=0.4,
    evidence="forecast",
    notes=("clocks forecast with x",),
)


def recommended(points, **other):
    bounds = Bounds(itl_s=0.050)
    chosen, unmet = recommend(points, bounds, **other)
    return Recommended(points, chosen, unmet, bounds, **other)


def drawn(found, key):
    specification = recommend_figure(found).specification
    return [row for rows in specification["datasets"].values() for row in rows if key in row]


def test_every_configuration_is_drawn_and_the_choice_is_ringed():
    found = recommended(MEASURED)
    rows = drawn(found, "cost")
    assert {(row["model"], row["cost"]) for row in rows} == {(each.model, each.energy_per_token_j) for each in MEASURED}
    assert sum(row["cost"] == 0.5 for row in rows) == 4  # as a point, on the line, as the ring, and in words beside it
    labels = sorted(row["label"] for row in drawn(found, "label"))
    assert labels == ["batch 1: 800\N{NO-BREAK SPACE}mJ", "batch 2: 500\N{NO-BREAK SPACE}mJ"]  # in the unit of the cards
    assert [row["ms"] for row in drawn(found, "ms") if "cost" not in row] == [50.0]
    assert chosen_table(found).rows[0].values[2:4] == (0.5, 0.020)
    words = effect_text(found)
    least = "500\N{NO-BREAK SPACE}mJ per token, the lowest within a median of 50.0\N{NO-BREAK SPACE}ms between tokens"
    assert words == f"1 × H100, batch 2: {least}; median time between tokens 20.0\N{NO-BREAK SPACE}ms"


def test_forecasts_are_marked_and_stand_beside_what_was_measured(tmp_path):
    points = [*MEASURED, FORECAST]
    found = replace(recommended(points), without_clocks=recommend(MEASURED, Bounds(itl_s=0.050))[0])
    assert origin_of(found) == "forecast" and origin_of(recommended(MEASURED)) == "measured"
    (row,) = chosen_table(found).rows
    assert row.values[2] == "forecast" and row.values[-1] == 0.5
    assert any(each["evidence"] == "forecast" for each in drawn(found, "evidence"))
    recommend_page(replace(found, sources=["table.csv"])).write(tmp_path / "page.html", made_at=AT)
    page = (tmp_path / "page.html").read_text()
    assert "Clocks forecast with x." in page and "table.csv" in page and "lowest time between tokens is 90 ms" in page
    assert "saves nothing" not in page


def test_the_bound_is_on_one_statistic_and_the_page_shows_another_beside_it():
    points = [replace(each, itl=replace(each.itl, p99_s=3 * each.itl.p50_s)) for each in MEASURED]
    found = recommended(points)
    assert tail_text(found) == "one token in a hundred takes longer than (P99) 60.0\N{NO-BREAK SPACE}ms, above the bound"
    assert recommend_page(found).notes[0] == f"O{tail_text(found)[1:]} (--percentile p99 bounds that instead)."
    lines = {each.label: each for each in recommend_page(found).panels[0].lines}
    tail = "60.0\N{NO-BREAK SPACE}ms, above 50.0\N{NO-BREAK SPACE}ms"
    assert lines["P99 time between tokens"].text == tail and lines["P99 time between tokens"].warns
    assert not lines["Median time between tokens"].warns and f'class="warns">{tail}' in recommend_page(found).html(
        made_at=AT
    )
    assert chosen_table(found).rows[0].values[2:5] == (0.5, 0.020, 0.060)
    tail = replace(found, bounds=replace(found.bounds, percentile="p99"))
    assert tail.also == "p50" and recommended(MEASURED).also is None
    assert not tail_text(recommended(MEASURED))


def test_what_others_published_is_marked_and_served_with_the_flags_it_was_measured_with():
    points = [replace(each, model="org/a", source="ML.ENERGY: t.csv", tensor_parallel=2, gpus=2) for each in MEASURED[:3]]
    page = recommend_page(recommended(points))
    assert not any("t.csv" in note for note in page.notes)  # the badge says it
    assert page.verdict.endswith("3 configurations measured by others") and "by others: t.csv" in page.html(made_at=AT)
    assert page.next_step.commands[0] == "vllm serve org/a --tensor-parallel-size 2 --max-num-seqs 2"
    assert page.html(made_at=AT).count('<div class="command">') == len(page.next_step.commands) == 2  # the first never ends
    assert not any("others" in each for each in recommend_page(recommended(MEASURED)).notes)


def test_money_and_nothing_that_fits():
    found = recommended(MEASURED, unit="money", prices=Prices(per_gpu_hour=2.0, currency="EUR"))
    assert "EUR per million tokens" in chosen_table(found).rows[0].texts[2]
    nothing = recommended(MEASURED[3:])
    assert not nothing.chosen and effect_text(nothing) == "No configuration meets the bounds"


def test_each_of_several_models_has_a_panel_and_the_first_is_to_be_measured():
    found = recommended([*MEASURED[:3], point("org/c", 10, 2.0, 1), point("org/c", 30, 1.0, 8)])
    page = recommend_page(found)
    shown = [(panel.title, panel.value) for panel in page.panels]
    assert shown == [("a", "500\N{NO-BREAK SPACE}mJ per token"), ("c", "1.00\N{NO-BREAK SPACE}J per token")]
    assert page.panels[1].text == "with 1 × H100, batch 8."
    fastest = {line.label: line.text for line in page.panels[1].lines}["Fastest"]
    assert fastest == "1 × H100, batch 1: 10.0\N{NO-BREAK SPACE}ms, 2.00\N{NO-BREAK SPACE}J per token"
    within = "Within a median of 50.0\N{NO-BREAK SPACE}ms between tokens"
    assert effect_text(found) == f"{within}, energy per token is lowest at batch 2 (a) and 8 (c)"
    more = recommended([*MEASURED[:3], point("org/c", 10, 2.0, 1), replace(point("org/c", 30, 1.0, 8), gpus=2)])
    assert effect_text(more) == f"{within}, 2 models use 500\N{NO-BREAK SPACE}mJ to 1.00\N{NO-BREAK SPACE}J per token"
    assert "--batch 2 " in page.next_step.commands[-1]
    nothing = recommend_page(recommended(MEASURED[3:]))
    assert nothing.next_step is None and not nothing.panels


def test_the_power_of_an_idle_simulated_gpu_saves_nothing_and_is_forecast_at_no_clock():
    points = [point("a", 10.0, 1.0, 1, evidence="simulated"), point("a", 20.0, 0.5, 2, evidence="simulated")]
    found = recommended(points)
    (row,) = chosen_table(found).rows
    assert row.texts[-1] == "–" and "no saving follows from it" in notes(found)[0]
    with pytest.raises(BadInputError, match="idle simulated GPU"):
        at_other_clocks(points, "never-read.json", 600.0)
