"""The page of policies: the best that is in time makes the headline, and where numbers come from is said."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from wastenot.core.setting import Setting
from wastenot.pages.figure import export_figures
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.steering import steer
from wastenot.serving.page.steer_page import steer_figures, steer_page, timeline_rows
from wastenot.serving.page.steer_words import effect_text, policies_table, saved_text

pytest.importorskip("altair")
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def found():
    clocks = np.array([1000.0, 1500.0, 2000.0])
    tokens, past = np.array([1.0, 4096.0]), np.array([0.0, 4096.0])
    batches, contexts = np.array([1.0, 64.0]), np.array([1.0, 8192.0])
    prefill = (2000.0 / clocks)[:, None, None] * np.ones((3, 2, 2)) * (0.01 + 5e-5 * tokens)[None, :, None]
    decode = np.ones((3, 2, 2)) * (0.02 + 1e-4 * batches)[None, :, None]
    power = np.array([150.0, 250.0, 400.0])[:, None, None]
    tables = EngineTables(
        tuple(Setting(core_mhz=float(clock)) for clock in clocks),
        tokens, past, prefill, prefill * power, batches, contexts, decode, decode * power,
        np.full(3, 60.0), "fitted", "measured",
    )  # fmt: skip
    engine = Engine(tables, 4000, most_running=64, model="tiny", device="toy")
    trace = poisson(1.5, 120.0, LogNormal(300, 0.8, most=2000), LogNormal(30, 0.5), seed=2)
    return steer(engine, trace, step_tokens=512, deadlines=Deadlines(ttft_s=(0.35,), prompt_below=()))


def test_each_policy_is_a_point_and_a_row(found):
    figure = steer_figures(found)[0]
    bars = next(rows for rows in figure.specification["datasets"].values() if "failed" in rows[0])
    ordered = sorted(found.runs, key=lambda run: -run.result.energy_per_token_j)
    assert [(row["energy"], row["late"]) for row in bars] == [
        (run.result.energy_per_token_j, 100.0 * (1.0 - run.result.attainment)) for run in ordered
    ]
    assert [row["failed"] for row in bars] == [not found.attains(run) for run in ordered]
    names = {run.name: row["policy"] for run, row in zip(ordered, bars, strict=True)}
    assert names["fixed"] == "fixed 1,000\N{NO-BREAK SPACE}MHz, in hindsight" and names["price"] == "price policy"
    (headline,) = (row for row in bars if row["headline"])
    assert headline["against"] == found.runs[0].result.energy_per_token_j and headline["policy"] == names["fixed"]
    assert [row.values[1] for row in policies_table(found).rows[1:]] == [found.saved(run) for run in found.runs[1:]]


def test_time_lines_add_up_to_the_run(found):
    run = found.runs[0]
    rows = timeline_rows(found, run, 0.0, found.duration_s + 60.0)
    timeline = run.served.timeline
    lasted = np.add.reduceat(timeline.lasted_s, np.arange(0, len(timeline.tokens), _together(timeline, rows)))
    watts = np.array([row["watts"] or 0.0 for row in rows])
    assert watts @ lasted[: len(rows)] == pytest.approx(run.served.total_energy_j, rel=1e-6)
    assert max(row["gap_ms"] or 0.0 for row in rows) == pytest.approx(1e3 * timeline.longest_gap_s.max())
    waited = run.served.first_token_s - run.served.requests.arrival_s
    assert max(row["first"] or 0.0 for row in rows) == pytest.approx(100 * waited.max() / 0.35)
    assert [row["mhz"] for row in rows if row["mhz"] is not None] == pytest.approx([2000.0] * len(rows))


def _together(timeline, rows):
    return -(-len(timeline.tokens) // len(rows))


def test_the_headline_is_of_what_saves_most_in_time(found):
    best = found.best
    assert best.result.attainment >= 0.99
    assert all(found.saved(run) <= found.saved(best) for run in found.runs if run.result.attainment >= 0.99)
    assert f"{100 * found.saved(best):.1f}" in effect_text(found)
    seer = replace(best, name="oracle", result=replace(best.result, energy_j=1.0, policy="oracle"))
    assert replace(found, runs=(*found.runs, seer)).best.name == best.name  # what cannot be had is no headline
    none = replace(found, share=1.1)
    assert effect_text(none).startswith("Even at the maximum clock only")


def test_the_page_says_that_it_is_simulated_and_on_what(found):
    page = steer_page(replace(found, trace="requests.csv")).html(made_at=AT)
    assert "simulated numbers" in page and "steps fitted to measured steps" in page and "requests.csv" in page
    kernels = replace(found.engine.tables, source="kernels", evidence="forecast")
    forecast = replace(found, engine=replace(found.engine, tables=kernels))
    page = steer_page(forecast).html(made_at=AT)
    assert "forecast numbers" in page and "steps forecast from kernels" in page


def test_the_first_figure_can_be_drawn_and_the_page_names_the_next_command(found, tmp_path):
    pytest.importorskip("vl_convert")
    assert export_figures(steer_figures(found)[:1], "simulated", tmp_path)
    (command,) = steer_page(replace(found, source="my engine.json")).next_step.commands
    assert command.startswith("wastenot serve bench ") and "--core 1000" in command  # policies do no more than this clock
    late = replace(found, runs=tuple(run for run in found.runs if run.name != "fixed"), source="my engine.json")
    (command,) = steer_page(late).next_step.commands
    assert command == "wastenot serve control 'my engine.json' --instance http://HOST:PORT=DEVICE"
    (command,) = steer_page(replace(late, trace="my.csv")).next_step.commands
    assert command.startswith("wastenot serve simulate 'my engine.json' --trace my.csv") and "by-metrics" in command


def test_runs_with_assumed_clocks_have_bars_and_a_panel(found):
    failed = replace(found, runs=tuple(replace(run, result=replace(run.result, attainment=0.5)) for run in found.runs[1:]))
    more = replace(found, runs=(found.runs[0], *failed.runs))
    page = steer_page(replace(found, with_assumed=more))
    rows = next(rows for rows in page.figures[0].specification["datasets"].values() if "failed" in rows[0])
    assert len(rows) == 2 * len(found.runs) - 1 and all(row["failed"] for row in rows if row["policy"].endswith("assumed"))
    assert page.panels[1].title == "With assumed clocks too" and "50.0" in page.panels[1].lines[-1].text
    (timeline, *_) = steer_figures(replace(found, with_assumed=found))[1:]
    rows = next(rows for rows in timeline.specification["datasets"].values() if rows and "batch" in rows[0])
    assert f"{found.best.result.policy}, assumed" in {row["policy"] for row in rows}
    table = policies_table(replace(found, with_assumed=more))
    columns = [column.title for column in table.columns]
    saved, met = (columns.index(each) for each in ("Saved with assumed clocks", "Deadlines met with those"))
    assert table.rows[1].values[saved] == more.saved(more.runs[1]) and table.rows[1].values[met] == 0.5
    assert saved_text(more, more.runs[1]).endswith(", but 50.0\N{NO-BREAK SPACE}% late")
