"""The page of policies for a cluster: a saving never stands without what became of the deadlines, and all is simulated."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from wastenot.serving.cluster.classes import NAMES
from wastenot.serving.cluster.outcome import compared
from wastenot.serving.cluster.runs import run_scenario
from wastenot.serving.cluster.scenario import parse_scenario
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.page.cluster_page import cluster_figures, cluster_page, timeline_rows
from wastenot.serving.page.cluster_tables import classes_table, policies_table
from wastenot.serving.page.cluster_words import (
    cautions_on,
    effect_text,
    notes_on,
    panels,
    plain_names,
    plan_text,
    replay_command,
    verdict_text,
)

pytest.importorskip("altair")
AT = datetime(2026, 1, 1, tzinfo=UTC)
ENGINE = Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json"
TEXT = f"""
[cluster]
engines = "{ENGINE}"
hosts = 1
gpus_per_host = 4
[[traffic]]
name = "evening"
kind = "poisson"
rate_per_s = 10
duration_s = 40.0
[run]
policies = ["single-pool"]
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    return parse_scenario(TEXT.encode(), tmp_path_factory.mktemp("page") / "mine.toml")


@pytest.fixture(scope="module")
def first(scenario):
    """The record of a run in which all requests of all classes were in time."""
    (record,) = run_scenario(scenario)
    return replace(
        record, by_class=[None if each is None else 1.0 for each in record.by_class], attainment=1.0, failed=False
    )


def _cheaper(record, policy, energy, **changes):
    return replace(record, policy=policy, energy_j=energy * record.energy_j, **changes)


@pytest.fixture(scope="module")
def records(first):
    """With two seeds: ours saves 20 and 30 %, another saves more and fails with one of them, and hindsight saves most."""
    found = []
    for seed, share in ((0, 0.8), (1, 0.7)):
        base = replace(first, seed=seed)
        late = [
            None if each is None else 0.95 if name == "MM" else each for name, each in zip(NAMES, base.by_class, strict=True)
        ]
        fails = {"failed": True, "by_class": late, "attainment": 0.96} if seed else {}
        found += [
            base,
            _cheaper(base, "parking", share),
            _cheaper(base, "dynamollm", 0.6, **fails),
            _cheaper(base, "best-static", 0.5),
        ]
    return found


def test_a_policy_that_fails_has_a_warning_beside_its_saving(records):
    (found,) = compared(records)
    table = policies_table(found)
    assert [row.texts[0] for row in table.rows] == ["single-pool", "parking", "dynamollm", "best-static"]
    saved = {row.texts[0]: row.texts[2].replace("\N{NO-BREAK SPACE}", " ") for row in table.rows}
    assert saved["parking"] == "25.0 % (20.0 to 30.0 %)" and saved["dynamollm"] == "40.0 %, but too many late"
    worst = {row.texts[0]: row.texts[5].replace("\N{NO-BREAK SPACE}", " ") for row in table.rows}
    assert worst["dynamollm"] == "95.00 % MM" and worst["parking"].startswith("100.00 %")


def test_the_headline_is_the_plan_that_needs_no_control_or_else_a_policy_that_meets_the_deadlines(scenario, records, first):
    (found,) = compared(records)
    plan = plan_text(scenario, found.outcomes[3])
    assert plan.endswith("at 1,980\N{NO-BREAK SPACE}MHz") and "instance" in plan
    assert effect_text(scenario, found) == f"50.0\N{NO-BREAK SPACE}% less energy with {plan}"
    within = "within the limit: 100.00\N{NO-BREAK SPACE}% of the worst class met their deadlines, 99\N{NO-BREAK SPACE}% must"
    against = f"Chosen in hindsight; compared with {plan}, over 2 simulated runs"
    assert verdict_text(scenario, found) == f"{within}. {against}"
    few_late = [replace(each, by_class=[0.99999] * 9) if each.policy == "best-static" else each for each in records]
    assert "99.99\N{NO-BREAK SPACE}% of the worst" in verdict_text(scenario, compared(few_late)[0]), "never rounded up"
    late = [replace(each, failed=True) if each.policy == "best-static" else each for each in records]
    for other in (late, [each for each in records if each.policy != "best-static"]):
        (controlled,) = compared(other)  # dynamollm saves more, and fails
        assert effect_text(scenario, controlled).startswith("Policy instances in reserve saves 25.0")
        assert "hindsight" not in verdict_text(scenario, controlled)
    assert any("fewer than 99" in note and "dynamollm" in note for note in notes_on(scenario, found))
    assert any(
        note == "Chosen in hindsight, with full knowledge of these requests: best-static."
        for note in notes_on(scenario, found)
    )
    (none,) = compared([replace(each, failed=True) for each in records])
    assert effect_text(scenario, none) == "No policy meets the deadlines of every class"
    against_late = [replace(each, failed=True) if each.policy == first.policy else each for each in records]
    (unjudged,) = compared(against_late)
    assert effect_text(scenario, unjudged).endswith("no saving is stated, as single-pool itself misses the deadlines")
    assert not any("saved" in panel.value for panel in panels(scenario, unjudged))
    assert "save" not in verdict_text(scenario, unjudged)
    (alone,) = compared([first])
    assert effect_text(scenario, alone).startswith("No policy saves energy")
    assert any("No policy can use less" in note for note in notes_on(scenario, found))
    (lost,) = compared([replace(first, unanswered=3, failed=True)])
    notes = notes_on(scenario, lost)
    assert "single-pool left 3 requests unanswered." in notes and notes == cautions_on(scenario, lost)
    assert any("which failed itself" in note for note in notes) and not any("No policy can" in note for note in notes)


def test_deadlines_that_were_asked_for_are_asked_of_ones_own_servers():
    assert replay_command(LITERATURE).endswith("http://PROMETHEUS:9090")
    own = Deadlines((1.0, 1.0, 3.0), tbt_s=0.05)
    assert replay_command(own).endswith("9090 --ttft 1s,1s,3s --tbt 0.05s")


def test_classes_are_shown_by_the_seed_that_kept_least(records, first):
    (found,) = compared(records)
    table = classes_table(found)
    there = [name for name, each in zip(NAMES, first.by_class, strict=True) if each is not None]
    assert [column.title for column in table.columns[1:]] == there and "MM" in there
    failed = dict(zip(there, table.rows[2].values[1:], strict=True))
    assert failed["MM"] == 0.95 and min(failed.values()) == 0.95


def test_pictures_show_what_the_records_say(scenario, records):
    (found,) = compared(records)
    energy, timeline = cluster_figures(scenario, [found])
    bars = next(rows for rows in energy.specification["datasets"].values() if "failed" in rows[0])
    tokens = records[0].output_tokens
    assert [row["energy"] for row in bars] == pytest.approx(
        [records[0].energy_j / tokens * share for share in (1.0, 0.75, 0.6, 0.5)]
    )
    assert [row["failed"] for row in bars] == [False, False, True, False]
    assert [row["late"] for row in bars] == pytest.approx([0.0, 0.0, 5.0, 0.0])
    assert found.bound_per_token_j == pytest.approx(records[0].bound_j / tokens)
    rows = timeline_rows(records[0], 1.0)
    assert sum(row["came"] for row in rows) * records[0].timeline.bin_s == pytest.approx(records[0].requests)
    assert np.mean([row["layout0"] for row in rows]) > 0 and rows[0]["mhz"] == pytest.approx(1980.0)
    assert timeline.narrow is not None and "seed 0" in timeline.note


def test_the_page_says_that_it_is_simulated_and_names_each_traffic(scenario, records):
    found = compared([*records, *(replace(each, traffic="night <1>") for each in records)])
    page = cluster_page(scenario, found).html(made_at=AT)
    assert "simulated numbers" in page and "steps estimated from simulated kernels" in page and "mine.toml" in page
    assert all(text in page for text in ("Policies: evening", "Timeline: night", "cluster-energy-2", "evening: Failed"))
    assert "<1>" not in page  # names cannot put marks into the page


def test_policies_and_classes_are_explained_and_what_saves_is_to_be_measured_and_run_again(scenario, records):
    (found,) = compared(records)
    page = cluster_page(scenario, [found])
    fixed, policy, load = page.panels
    assert (fixed.value, policy.value) == ("50.0\N{NO-BREAK SPACE}% saved", "25.0\N{NO-BREAK SPACE}% saved")
    assert plan_text(scenario, found.outcomes[3]) in fixed.text and "knowing these requests" in fixed.text
    assert "sleep (parked)" in policy.text
    assert load.lines[0].text == plan_text(scenario, found.outcomes[0])
    assert "GPUs at 1,980" in policy.lines[5].text.replace("\xa0", " ")
    lines = {line.label: line.text for line in policy.lines}
    assert lines["Saved in each of 2 runs"] == "20.0 to 30.0\N{NO-BREAK SPACE}%"
    assert lines["Worst class"] == "100.00\N{NO-BREAK SPACE}%"  # all classes are alike then
    replay, bench, simulate = page.next_step.commands
    assert "--replay http" in replay and "--allow-clock-control" not in replay
    assert bench.startswith("wastenot serve bench ") and "--core 1980 " in bench
    assert "--policy single-pool --policy best-static --policy parking --seeds" in simulate
    assert max(len(table.columns) for _, table in page.folded.tables if table is not None) <= 10
    (controlled,) = compared([each for each in records if each.policy != "best-static"])
    page = cluster_page(scenario, [controlled])
    assert "sleep (parked)" in page.panels[0].text and "maximum clock" in page.panels[1].text
    assert "--policy single-pool --policy parking --seeds" in page.next_step.commands[0]
    assert "GPUs at 1,980" in verdict_text(scenario, controlled).replace("\N{NO-BREAK SPACE}", " ")
    (alone,) = compared([replace(each, failed=True) for each in records])
    assert cluster_page(scenario, [alone]).next_step is None


def test_a_plan_with_room_leads_and_pages_call_policies_by_what_they_are(scenario, first):
    records = [first, _cheaper(first, "best-static", 0.6), _cheaper(first, "best-static-with-room", 0.7)]
    (found,) = compared([*records, _cheaper(first, "parking", 0.5)])
    page = cluster_page(scenario, [found])
    assert found.fixed_plan is found.outcomes[2] and page.panels[0].value == "30.0\N{NO-BREAK SPACE}% saved"
    assert page.effect.endswith(
        f"{plan_text(scenario, found.fixed_plan)}, 50.0\N{NO-BREAK SPACE}% with instances in reserve"
    )
    fewest, room = plan_text(scenario, found.outcomes[1]), round(100 * scenario.parts.run.head_room)
    more = f"and {room}\N{NO-BREAK SPACE}% more for safety, rounded up."
    assert page.panels[0].text.endswith(f" throughout: {fewest} would have done, {more}")
    names, plan = plain_names(scenario, found), plan_text(scenario, found.outcomes[0])
    assert names["single-pool"] == plan and names["best-static"] == f"{plan} (best-static)"  # these serve alike here
    assert names["parking"] == "instances in reserve" and len(set(names.values())) == 4
    tables = dict(page.folded.tables)
    assert [row.texts[0] for row in tables["policies"].rows] == list(names.values())
    assert tables["meanings"].rows[3].texts[0] == "instances in reserve (parking)"


def test_plans_that_rest_on_the_best_static_one_have_its_instances_and_perhaps_more(tmp_path):
    policies = '"best-static", "best-static-full-clock", "best-static-with-room"'
    runs = run_scenario(parse_scenario(TEXT.replace('"single-pool"', policies).encode(), tmp_path / "plans.toml"))
    counts, clocks = ([max(getattr(run.timeline, name)) for run in runs] for name in ("instances", "clock_mhz"))
    assert counts[0] == counts[1] and counts[2][0] == counts[0][0] + 1
    assert clocks[1] == 1980.0 >= clocks[0] == clocks[2]
