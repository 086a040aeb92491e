"""The page of a job: what its figures and its words are of."""

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pytest import approx

from testbed.recurring_jobs import recurred
from wastenot.jobs.page.page import job_figures, job_page
from wastenot.jobs.page.words import choice_text
from wastenot.jobs.plan.overview import overview_of
from wastenot.pages.formatting import setting_text

pytest.importorskip("altair")


def rows_of(figure):
    return [row for rows in figure.specification["datasets"].values() for row in rows]


@pytest.fixture(scope="module")
def overview():
    return overview_of(recurred(recurrences=12))


def test_figures_show_every_pair_and_every_run(overview):
    frontier, sizes, regret = job_figures(overview)
    shown = {(row["size"], row["setting"]) for row in rows_of(frontier)}
    marked = {overview.default.batch_size, overview.next_pair.batch_size}
    assert len(shown) == sum(not pair.forecast or pair.batch_size in marked for pair in overview.pairs)
    labels = {row["label"] for row in rows_of(frontier) if "label" in row}
    assert f"batch {overview.next.batch_size:,} at {setting_text(overview.next_pair.setting)}, next" in labels
    runs = [row for row in rows_of(sizes) if "run" in row]
    assert [(row["run"], row["size"]) for row in runs] == [
        (each.run.number, each.run.batch_size) for each in overview.history
    ]
    assert sum("outcome" in row for row in rows_of(sizes)) == len(overview.history)
    expected = {
        row["size"]: (row["low"] / row["cost"], row["high"] / row["cost"]) for row in rows_of(sizes) if "interval" in row
    }
    assert expected == {each.batch_size: approx((each.low / each.cost, each.high / each.cost)) for each in overview.outlook}
    ours = [row["regret"] for row in rows_of(regret) if row["series"] == "this job"]
    assert ours[-1] == approx(overview.regret)


def test_the_page_says_where_its_numbers_come_from(overview):
    page = job_page(overview).html(made_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert "simulated numbers" in page and "not a real one" in page
    assert f"batch size {overview.next.batch_size:,}" in page.lower()


def test_jobs_of_which_little_is_known_have_pages():
    job = recurred(recurrences=1)
    never = overview_of(replace(job, runs=(), speeds=(), why=()))
    (figure,) = job_figures(never)
    assert figure.specification is None and "no run has reached the target" in figure.note
    assert "Has not run yet" in job_page(never).html(made_at=datetime(2026, 1, 1, tzinfo=UTC))
    slow = overview_of(replace(job, speeds=()))
    assert [figure.name for figure in job_figures(slow)] == ["job-sizes"]
    assert "1 run reached the target" in job_page(slow).html(made_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_a_page_of_time_alone():
    overview = overview_of(recurred(recurrences=5, energy=False, device="cpu:A"))
    assert [figure.name for figure in job_figures(overview)] == ["job-sizes", "job-regret"]
    page = job_page(overview).html(made_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert "shortest time" in page.lower() and "Energy to target" not in page


def test_runs_before_a_change_are_faint(overview):
    changed = overview.history[4].run.number
    sizes = job_figures(replace(overview, changed_at=(changed,)))[1]
    before = [row["run"] for row in rows_of(sizes) if row.get("before")]
    assert before == list(range(1, changed))


def test_names_from_a_study_cannot_end_the_page(overview):
    terms = replace(overview.terms, name="</script><b>x")
    page = job_page(replace(overview, terms=terms)).html(made_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert "</script><b>x" not in page


def test_a_choice_that_many_runs_know_makes_the_headline(overview):
    assert overview.default is not None
    twice = replace(overview, default=replace(overview.default, epochs=replace(overview.default.epochs, reached=2)))
    assert choice_text(twice) is None and job_page(twice).effect.startswith("Has cost")
    known = replace(overview.default, epochs=replace(overview.default.epochs, reached=5))
    half = replace(known, batch_size=24, time_s=known.time_s / 2, energy_j=known.energy_j / 2)
    page = job_page(replace(overview, default=known, next_pair=half))
    effect = page.effect.replace("\N{NO-BREAK SPACE}", " ")
    assert effect.startswith("From now on, use batch size 24") and effect.endswith(
        "50.0 % less energy and 50.0 % less time per run than the default, estimated"
    )
    reached = overview.against_default.reached
    verdict = page.verdict.replace("\N{NO-BREAK SPACE}", " ")
    used_j, time_s = (math.fsum(getattr(each.run, name) for each in overview.history) for name in ("energy_j", "time_s"))
    energy, time = used_j / (reached * known.energy_j) - 1.0, time_s / (reached * known.time_s) - 1.0
    words = [f"{abs(100.0 * each):.1f} % {'more' if each > 0.0 else 'less'}" for each in (energy, time)]
    runs = f"the {len(overview.history)} runs so far, trials included"
    assert verdict == f"{runs}: {words[0]} energy, {words[1]} time than by default"
    lines = {line.label.replace("\N{NO-BREAK SPACE}", " "): line.text for line in page.panels[1].lines}
    (compared,) = (text for label, text in lines.items() if label.startswith(f"By default (batch size {known.batch_size:,}"))
    assert compared.startswith(f"the same {reached:,} results would have taken ")
    assert compared.endswith(f", estimated from 5 runs of batch size {known.batch_size:,}")
    weighted = next(text for label, text in lines.items() if label.startswith("Half energy, half time")).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    assert weighted.endswith(" so far, 50.0 % less per run from now on")
    shown = page.next_step.filled("wastenot job show any --study mine.db --page any.html").commands[1]
    assert shown == f"wastenot job show {overview.terms.name} --study mine.db --page {overview.terms.name}.html"
    assert choice_text(replace(overview, default=half, next_pair=known)) is None
