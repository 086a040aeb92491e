"""The tables of a simulated cluster: policies in rows, with what they save and what it costs requests."""

from __future__ import annotations

import math
from collections.abc import Callable

from wastenot.pages.formatting import SPACE, number, percent, percent_met, quantity
from wastenot.pages.table import Column, Listed, Row, Table, listing
from wastenot.planning.objective_kinds import CLUSTERS
from wastenot.serving.cluster.classes import NAMES
from wastenot.serving.cluster.outcome import Comparison, Outcome
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.run_record import RunRecord
from wastenot.serving.page.cluster_words import saved_text, worst_name
from wastenot.serving.page.simulated_words import waits_text


def policies_table(found: Comparison, currency: str = "") -> Table:
    """Each policy in a row; costs where they are known."""
    columns = (*_saving_columns(found, currency), *_running_columns())
    return listing("Policies", found.outcomes, columns, f"{_saving_note(found)} {_RUNNING_NOTE}".lstrip())


def savings_table(found: Comparison, currency: str = "") -> Table:
    """What each policy saves, and whether it met the deadlines: the first columns of :func:`policies_table`."""
    return listing("Policies", found.outcomes, _saving_columns(found, currency), _saving_note(found) or None)


def running_table(found: Comparison) -> Table:
    """How the cluster ran under each policy: the other columns of :func:`policies_table`."""
    name = Listed("Policy", _policy_of, numeric=False)
    return listing("Latency, power and actions", found.outcomes, (name, *_running_columns()), _RUNNING_NOTE)


def about_table(found: Comparison) -> Table:
    """What each policy does."""
    columns: tuple[Listed[Outcome], ...] = (
        Listed("Policy", _policy_of, numeric=False),
        Listed("What it does", lambda each: POLICIES[each.policy].about, numeric=False),
    )
    return listing("What the policies do", found.outcomes, columns)


_RUNNING_NOTE = (
    "P99: 99 % of requests waited, and 99 % of the timeline's bins drew, at most this. First token: by prompt length, "
    "short / medium / long."
)


def _saving_note(found: Comparison) -> str:
    seeds = len(found.outcomes[0].records)
    notes = []
    if any(each.failed for each in found.outcomes):
        notes.append("Too many late: more requests of a class than are allowed to be.")
    if seeds > 1:
        notes.append(f"Means over {seeds} runs (seeds), in brackets the range of savings; deadlines met: the minimum.")
    if found.objective != "energy":
        notes.append(f"Savings are in {CLUSTERS[found.objective].quantity}.")
    notes.append("Classes: length of the prompt, then of the answer: short (S), medium (M), long (L).")
    return " ".join(notes)


def _policy_of(outcome: Outcome) -> str:
    return outcome.policy


def _saving_columns(found: Comparison, currency: str) -> tuple[Listed[Outcome], ...]:
    first = found.outcomes[0]
    assumed: tuple[Listed[Outcome], ...] = ()
    if found.with_assumed is not None:
        of = found.with_assumed.outcome
        assumed = (
            Listed(
                "With assumed clocks",
                lambda each: None if each is first else of(each.policy).saved.mean,
                text_of=lambda each: saved_text(of(each.policy)),
            ),
        )
    return (
        Listed("Policy", _policy_of, numeric=False),
        _mean("Energy", lambda run: run.energy_j, lambda energy_j: quantity(energy_j, "J", 3)),
        *(_mean(title, of, text) for title, of, text in _costs(found, currency)),
        Listed(
            "Saved",
            lambda each: None if each is first else each.saved.mean,
            text_of=saved_text,
            unknown="failed" if first.failed else "–",
        ),
        *assumed,
        _mean("Energy per token", lambda run: run.energy_per_token_j, lambda token_j: quantity(token_j, "J", 3)),
        Listed("Deadlines met", lambda each: each.attainment, percent_met),
        Listed("Worst class", lambda each: each.worst_class, text_of=_worst_text),
    )


def _running_columns() -> tuple[Listed[Outcome], ...]:
    return (
        Listed(
            "First token, P99",
            lambda each: next((wait for wait in each.ttft_p99_s() if wait is not None), None),
            text_of=lambda each: waits_text(each.ttft_p99_s()),
            unknown=lambda each: waits_text(each.ttft_p99_s()),
        ),
        _mean("Between tokens, P99", lambda run: run.tbt_p99_s, lambda gap_s: quantity(gap_s, "s", 2)),
        _mean("Median power", lambda run: run.power_p50_w, lambda power_w: quantity(power_w, "W", 3)),
        _mean("Power, P99", lambda run: run.power_p99_w, lambda power_w: quantity(power_w, "W", 3)),
        _mean("GPU time", lambda run: run.gpu_hours, lambda hours: f"{number(hours, 3)}{SPACE}h"),
        Listed(
            "Actions", lambda each: math.fsum(each.actions().values()), text_of=lambda each: actions_text(each.actions())
        ),
    )


_OfRun = Callable[[RunRecord], float | None]


def _mean(title: str, of: _OfRun, text: Callable[[float], str]) -> Listed[Outcome]:
    """A column of means over seeds."""

    def value(outcome: Outcome) -> float:
        return outcome.over(lambda run: of(run) or 0.0).mean

    return Listed(title, value, text)


def _worst_text(outcome: Outcome) -> str:
    worst = outcome.worst_class
    return percent_met(worst) if worst == 1.0 else f"{percent_met(worst)} {worst_name(outcome)}"


def _costs(found: Comparison, currency: str) -> list[tuple[str, _OfRun, Callable[[float], str]]]:
    """What runs cost, as columns; those that are known of all runs."""

    def text_in(unit: str) -> Callable[[float], str]:
        in_currency = f"{SPACE}{currency}" if currency else ""
        return (lambda taken: quantity(taken, unit, 3)) if unit else (lambda taken: f"{number(taken, 3)}{in_currency}")

    costs: list[tuple[str, _OfRun, Callable[[float], str]]] = [
        (each.column, each.taken, text_in(each.unit)) for each in CLUSTERS.values() if each.per_kwh is not None
    ]
    records = [run for one in found.outcomes for run in one.records]
    return [each for each in costs if all(each[1](run) is not None for run in records)]


def actions_text(actions: dict[str, float]) -> str:
    """How many, clocks apart: they are many and cheap."""
    clocks = actions.get("SetClock", 0.0)
    others = math.fsum(count for name, count in actions.items() if name != "SetClock")
    return f"{others:,.0f}" + (f", {clocks:,.0f} clock changes" if clocks else "")


def classes_table(found: Comparison) -> Table:
    """The least attainment of each class over seeds, by policy."""
    count = [
        sum(sum(row[number] for row in run.timeline.arrivals) for run in found.outcomes[0].records) for number in range(9)
    ]
    there = [number for number in range(len(NAMES)) if count[number]]
    columns = (Column("Policy"), *(Column(NAMES[number], numeric=True) for number in there))
    rows = []
    for outcome in found.outcomes:
        kept = [outcome.by_class()[number] for number in there]
        texts = tuple("–" if each is None else percent_met(each) for each in kept)
        rows.append(Row(None, (outcome.policy, *texts), (outcome.policy, *kept)))
    total = sum(count)
    shares = ", ".join(f"{NAMES[number]} {percent(count[number] / total, 0)}" for number in there)
    note = f"Length of the prompt, then of the answer: short, medium or long. Of all requests: {shares}."
    note += " Minimum over seeds." if len(found.outcomes[0].records) > 1 else ""
    return Table("Deadlines met, by class", columns, tuple(rows), note)
