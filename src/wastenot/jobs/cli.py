"""``wastenot job list`` and ``wastenot job show``: recurring training jobs, as a study knows them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from wastenot.core.errors import StudyError
from wastenot.core.wording import counted
from wastenot.pages.formatting import change, quantity
from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption, PageOptions, StudyOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.jobs.model.frontier import Pair
    from wastenot.jobs.plan.overview import JobOverview
    from wastenot.study.store import Study

_SHOWN = 10  # runs of a job


def jobs(study: StudyOption, as_json: JsonOption = False) -> None:
    """List the recurring training jobs of a study.

    Each with its runs, what choosing its batch size has saved so far, and what it would run next.
    """
    from wastenot.jobs.documents import listed
    from wastenot.jobs.plan.overview import job_overview
    from wastenot.jobs.tables.store import JobStore
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json

    source = open_study(study)
    _deliver(source)
    overviews = [job_overview(source, name) for name in JobStore(source).names()]
    if as_json:
        print_json("jobs", {"study": str(source), "jobs": [listed(each) for each in overviews]})
    else:
        console().print(_jobs_text(str(source), overviews))


def job(
    name: Annotated[str, argument("The job.", "NAME")],
    study: StudyOption,
    device: Annotated[
        str | None, option("Which device, if the job has run on several; default: the latest.", "LABEL")
    ] = None,
    within: Annotated[
        float | None, option("Query: lowest energy of runs that take at most this long.", "TIME", parser=quantities.seconds)
    ] = None,
    power_budget: Annotated[
        float | None, option("Query: shortest time of runs with at most this mean power.", "W", parser=quantities.watts)
    ] = None,
    runs: Annotated[int, option("Number of runs to list, latest first.", "N", min=0)] = _SHOWN,
    retry_memory: Annotated[bool, option("Retry batch sizes that did not fit into the device's memory.")] = False,
    *,
    shown: PageOptions,
    as_json: JsonOption = False,
) -> None:
    """Show a recurring training job: runs, cost, what is next.

    Its frontier has every batch size and setting, by time and energy to the target; --within and --power-budget query it.
    """
    from wastenot.jobs.plan.overview import job_overview
    from wastenot.jobs.tables.store import JobStore
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json, say, typed_command

    source = open_study(study)
    if retry_memory:
        forgotten = JobStore(source).forget_memory(name, device)
        say(f"{name}: {_retried(forgotten)}")
    overview = job_overview(source, name, device=device)
    answers = _answers(overview, within, power_budget)
    shown.write(overview.drawn, typed_command(study))
    if as_json:
        print_json("job", overview.document() | {"study": str(source), "answers": [_answer(*each) for each in answers]})
    else:
        console().print(job_text(overview, runs=runs, answers=answers))


def _retried(sizes: tuple[int, ...]) -> str:
    if not sizes:
        return "no batch size is ruled out"
    which = ", ".join(f"{size:,}" for size in sizes)
    return f"batch size {which} and larger ones may be tried again; the runs that did not fit now count as failed"


def _answers(overview: JobOverview, within: float | None, power_budget: float | None) -> list[tuple[str, float, Pair]]:
    """What the frontier answers to what was asked."""
    from wastenot.jobs.model.frontier import least_energy, least_time

    answers = []
    if within is not None:
        answers.append(("within_s", within, least_energy(overview.known, within)))
    if power_budget is not None:
        answers.append(("power_budget_w", power_budget, least_time(overview.known, power_budget)))
    return answers


def _deliver(study: Study) -> None:
    """Store what this machine has kept of runs that ended while the study did not answer."""
    from wastenot.jobs.tables.store import JobStore
    from wastenot.terminal.output import say

    delivered = 0
    with suppress(StudyError):
        delivered = JobStore(study).deliver()
    if delivered:
        say(f"{study}: {counted(delivered, 'run')} stored that ended while the study did not answer")


# ---- as text -------------------------------------------------------------------------------------------------


def _jobs_text(study: str, overviews: list[JobOverview]) -> RenderableType:
    from wastenot.jobs.page.words import pair_text
    from wastenot.terminal.tables import Text, plain_table

    if not overviews:
        return Text(f"{study}: no jobs yet; a program adds one by running: with wn.job(NAME, study={study!r}, ...) as run:")
    table = plain_table(
        ("job", "device", "next"),
        ("runs", "reached", "regret", "cost against default"),
        less_important=("device", "reached"),
    )
    for each in overviews:
        pair, decision = each.next_pair, each.next
        what = "-" if decision is None else f"batch size {decision.batch_size:,}" if pair is None else pair_text(pair)
        against = each.against_default
        table.add_row(
            Text(each.terms.name),
            Text(each.device),
            Text(what),
            f"{len(each.history):,}",
            f"{each.reached:,}",
            "-" if each.regret is None else f"{each.regret:.2f}",
            "-" if against is None else change(against.ratio - 1.0, 1),
        )
    return table


def job_text(overview: JobOverview, *, runs: int, answers: list[tuple[str, float, Pair]]) -> RenderableType:
    """The whole, for a terminal."""
    from wastenot.jobs.page.listings import frontier_table, runs_table, sizes_table
    from wastenot.jobs.page.words import effect_text, next_text
    from wastenot.terminal.tables import Group, Paragraph, Text, headline, named_rows, rich_table

    terms, following = overview.terms, next_text(overview)
    head = headline(terms.name, overview.device, overview.origin, counted(len(overview.history), "run"))
    parts: list[RenderableType] = [
        Paragraph(head),
        Paragraph(Text(f"{effect_text(overview)}.", style="bold")),
        Paragraph(Text(f"Next: {following[:1].lower()}{following[1:]}.", style="bold green")),
        "",
        named_rows(
            _named(overview) + [(_QUESTIONS[name], _answer_text(limit, name, pair)) for name, limit, pair in answers]
        ),
    ]
    tables = [sizes_table(overview), frontier_table(overview), runs_table(overview, most=runs) if runs else None]
    for table in tables:
        if table is not None and table.rows:
            less = ("Chance", "Epochs from", "Mean power", "Best setting", "Reached", "95 % interval", "Why this batch size")
            there = tuple(name for name in less if name in {column.title for column in table.columns})
            parts += ["", Text(table.title, style="bold"), rich_table(table, there)]
    return Group(*parts, *(Text(f"note: {note}", style="yellow") for note in overview.notes))


_QUESTIONS = {"within_s": "Within the time", "power_budget_w": "Within the power"}


def _named(overview: JobOverview) -> list[tuple[str, str]]:
    from wastenot.jobs.page.words import (
        asked_text,
        cost_text,
        learning_text,
        next_effect_text,
        outcomes_text,
        regret_text,
        target_text,
    )

    terms = overview.terms
    rows = [("Target", target_text(terms)), ("Objective", asked_text(terms)), ("Runs", outcomes_text(overview))]
    if overview.total_cost > 0.0:
        rows.append(("Cost so far", cost_text(terms, overview.total_cost)))
    regret, effect, learning = regret_text(overview), next_effect_text(overview), learning_text(overview)
    if learning is not None:
        rows.append(("Price of learning", learning))
    if regret is not None:
        rows.append(("Regret so far", regret))
    if effect is not None:
        rows.append(("Against the default", f"{effect}, for each run"))
    if overview.elsewhere:
        others = ", ".join(each for each in overview.devices if each != overview.device)
        rows.append(("Elsewhere", f"{counted(overview.elsewhere, 'run')} on {others}"))
    return rows


def _answer_text(limit: float, name: str, pair: Pair) -> str:
    from wastenot.jobs.page.words import pair_text, time_text

    asked = f"of at most {time_text(limit)}" if name == "within_s" else f"of at most {quantity(limit, 'W', 3)}"
    energy = "" if pair.energy_j is None else f", {quantity(pair.energy_j, 'J', 3)}"
    return f"{asked}: {pair_text(pair)}: {time_text(pair.time_s)}{energy}"


def _answer(name: str, limit: float, pair: Pair) -> dict[str, Any]:
    from wastenot.jobs.documents import measured

    return {name: limit, **measured(pair)}
