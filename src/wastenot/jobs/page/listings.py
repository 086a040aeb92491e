"""The tables of a job: what is expected of its batch sizes, its frontier, and its runs."""

from __future__ import annotations

from dataclasses import replace

from wastenot.jobs.model.frontier import Pair, epochs_to_target
from wastenot.jobs.page.words import cost_text, setting_text, time_text
from wastenot.jobs.plan.decision import Outlook
from wastenot.jobs.plan.overview import JobOverview, RunInHistory
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.table import Column, Fold, Row, Table

_SHOWN = 24
_NONE = "–"


def sizes_table(overview: JobOverview) -> Table:
    """Each batch size: what its runs were like, and what is expected of it."""
    columns: tuple[Column, ...] = (
        Column("Batch size"), Column("Runs", numeric=True), Column("Reached", numeric=True),
        Column("Epochs", numeric=True), Column("Chance", numeric=True), Column("Expected cost", numeric=True),
        Column("95 % interval", numeric=True), Column("Best setting", numeric=True), Column("Note"),
    )  # fmt: skip
    outlooks = {each.batch_size: each for each in overview.outlook}
    rows = tuple(_size_row(overview, size, outlooks.get(size)) for size in overview.terms.batch_sizes)
    if not outlooks:
        columns, rows = _without(columns, rows, ("Chance", "Expected cost", "95 % interval"))
    note = (
        "Chance is that of reaching the target. Cost is expected of a run that gets there, for batch sizes without runs "
        "from their neighbours."
        if outlooks
        else None
    )
    return Table("Batch sizes", columns, rows, note)


def _without(
    columns: tuple[Column, ...], rows: tuple[Row, ...], titles: tuple[str, ...]
) -> tuple[tuple[Column, ...], tuple[Row, ...]]:
    """The same without some columns, in which nothing is known."""
    kept = [index for index, column in enumerate(columns) if column.title not in titles]
    return tuple(columns[index] for index in kept), tuple(
        replace(row, texts=tuple(row.texts[index] for index in kept), values=tuple(row.values[index] for index in kept))
        for row in rows
    )


def _size_row(overview: JobOverview, size: int, outlook: Outlook | None) -> Row:
    terms = overview.terms
    runs = [each.run for each in overview.history if each.run.batch_size == size]
    reached = sum(run.outcome == "reached" for run in runs)
    known = epochs_to_target(runs).get(size)
    best = min((pair for pair in overview.pairs if pair.batch_size == size), key=lambda pair: pair.cost(terms), default=None)
    epochs = known.mean if known is not None else None if outlook is None else outlook.epochs
    notes = []
    if size == terms.default:
        notes.append("default")
    if overview.next is not None and size == overview.next.batch_size:
        notes.append("next")
    if overview.no_memory is not None and size >= overview.no_memory:
        notes.append("does not fit into memory")
    texts = (
        f"{size:,}",
        f"{len(runs):,}",
        f"{reached:,}",
        _NONE if epochs is None else f"{epochs:.1f}{'' if known is not None else ' (forecast)'}",
        _NONE if outlook is None else percent(outlook.chance, 0),
        _NONE if outlook is None else cost_text(terms, outlook.cost),
        _NONE if outlook is None else f"{cost_text(terms, outlook.low)} to {cost_text(terms, outlook.high)}",
        _NONE if best is None else setting_text(best.setting),
        ", ".join(notes),
    )
    values = (
        size, len(runs), reached, epochs, None if outlook is None else outlook.chance,
        None if outlook is None else outlook.cost, None if outlook is None else outlook.low,
        None if best is None else setting_text(best.setting), ", ".join(notes),
    )  # fmt: skip
    return Row(None, texts, values)


def frontier_table(overview: JobOverview) -> Table | None:
    """The pairs of the frontier, the default and the next one; ``None`` while nothing is known."""
    listed: list[tuple[Pair, str]] = [(pair, "") for pair in overview.pareto]
    for special in (overview.default, overview.cheapest, overview.next_pair):
        if special is not None and special not in (pair for pair, _ in listed):
            listed.append((special, ""))
    if not listed:
        return None
    columns: tuple[Column, ...] = (
        Column("Batch size"), Column("Setting", numeric=True), Column("Time to target", numeric=True),
        Column("Energy to target", numeric=True), Column("Mean power", numeric=True), Column("Cost", numeric=True),
        Column("Epochs from"), Column("Note"),
    )  # fmt: skip
    rows = [_pair_row(overview, pair) for pair, _ in sorted(listed, key=lambda each: each[0].time_s)]
    if all(pair.energy_j is None for pair, _ in listed):
        columns, found = _without(columns, tuple(rows), ("Energy to target", "Mean power"))
        rows = list(found)
    note = "No pair that was measured beats those on the frontier in both time and energy."
    return Table("Frontier: time and energy to the target", columns, tuple(rows), note)


def _pair_row(overview: JobOverview, pair: Pair) -> Row:
    terms = overview.terms
    notes = [
        name
        for name, other in (("default", overview.default), ("cheapest", overview.cheapest), ("next", overview.next_pair))
        if pair == other
    ]
    if overview.no_memory is not None and pair.batch_size >= overview.no_memory:
        notes.append("does not fit into memory")
    elif pair not in overview.pareto and not pair.forecast and pair != overview.next_pair:
        notes.append("beaten")
    runs = "forecast" if pair.forecast else f"{pair.epochs.reached:,} run{'' if pair.epochs.reached == 1 else 's'}"
    cost = pair.cost(terms)
    texts = (
        f"{pair.batch_size:,}",
        setting_text(pair.setting),
        time_text(pair.time_s),
        _NONE if pair.energy_j is None else quantity(pair.energy_j, "J", 3),
        _NONE if pair.power_w is None else quantity(pair.power_w, "W", 3),
        cost_text(terms, cost),
        runs,
        ", ".join(notes),
    )
    values = (
        pair.batch_size, setting_text(pair.setting), pair.time_s, pair.energy_j, pair.power_w, cost, runs, ", ".join(notes)
    )  # fmt: skip
    return Row(None, texts, values)


def runs_table(overview: JobOverview, *, most: int | None = None) -> Table:
    """The runs, the latest first.

    Args:
        overview: of the job.
        most: how many are shown; by default all, the older ones folded away.
    """
    columns: tuple[Column, ...] = (
        Column("Run", numeric=True), Column("Batch size", numeric=True), Column("Setting", numeric=True), Column("Outcome"),
        Column("Epochs", numeric=True), Column("Time", numeric=True), Column("Energy", numeric=True),
        Column("Cost", numeric=True), Column("Why this batch size"),
    )  # fmt: skip
    latest = overview.history[::-1][:most]
    rows = [_run_row(overview, each) for each in latest]
    left = len(overview.history) - len(rows)
    if all(each.run.energy_j is None for each in overview.history):
        columns, found = _without(columns, tuple(rows), ("Energy",))
        rows = list(found)
    note = None if not left else f"The last {len(rows)} of {len(overview.history):,} runs."
    fold = Fold(_SHOWN, f"{len(rows) - _SHOWN:,} earlier runs") if len(rows) > _SHOWN else None
    return Table("Runs", columns, tuple(rows), note, fold)


def _run_row(overview: JobOverview, each: RunInHistory) -> Row:
    run = each.run
    texts = (
        f"{run.number:,}",
        f"{run.batch_size:,}",
        setting_text(run.setting),
        run.outcome,
        f"{run.epochs:,}",
        time_text(run.time_s) if run.time_s > 0.0 else _NONE,
        _NONE if run.energy_j is None else quantity(run.energy_j, "J", 3),
        _NONE if not each.cost else cost_text(overview.terms, each.cost),
        each.why or _NONE,
    )
    values = (
        run.number, run.batch_size, setting_text(run.setting), run.outcome, run.epochs, run.time_s, run.energy_j, each.cost,
        each.why,
    )  # fmt: skip
    return Row(None, texts, values)
