"""The tables of a job: what is expected of its batch sizes, its frontier, and its runs."""

from __future__ import annotations

from functools import partial

from wastenot.core.wording import counted
from wastenot.jobs.model.frontier import Pair, epochs_to_target
from wastenot.jobs.page.words import cost_in_column, cost_unit, time_text
from wastenot.jobs.plan.decision import Outlook
from wastenot.jobs.plan.overview import JobOverview, RunInHistory
from wastenot.pages.formatting import percent, quantity, setting_text
from wastenot.pages.table import Listed, Table, listing

_SHOWN = 6
_joules, _watts = (partial(quantity, unit=unit, digits=3) for unit in ("J", "W"))
_UNFIT = "does not fit into memory"


def sizes_table(overview: JobOverview) -> Table:
    """Each batch size: what its runs were like, and what is expected of it."""
    terms = overview.terms
    costs, of = partial(cost_in_column, overview), cost_unit(overview)
    outlooks: dict[int, Outlook] = {each.batch_size: each for each in overview.outlook}
    runs = {size: [each.run for each in overview.history if each.run.batch_size == size] for size in terms.batch_sizes}
    known = {size: found for size in runs if (found := epochs_to_target(runs[size]).get(size)) is not None}

    def epochs(size: int) -> float | None:
        return known[size].mean if size in known else outlooks[size].epochs if size in outlooks else None

    def best(size: int) -> str | None:
        pairs = (pair for pair in overview.pairs if pair.batch_size == size)
        found = min(pairs, key=lambda pair: pair.cost(terms), default=None)
        return None if found is None else setting_text(found.setting)

    def notes(size: int) -> str:
        following = overview.next is not None and size == overview.next.batch_size
        unfit = overview.no_memory is not None and size >= overview.no_memory
        said = (("default size", size == terms.default), ("next", following), (_UNFIT, unfit))
        return ", ".join(name for name, holds in said if holds)

    def interval(size: int) -> str:
        return f"{costs(outlooks[size].low)} to {costs(outlooks[size].high)}"

    def expected(field: str, size: int) -> float | None:
        return getattr(outlooks[size], field) if size in outlooks else None

    columns: tuple[Listed[int], ...] = (
        Listed("Batch size", lambda size: size, "{:,}".format, numeric=False),
        Listed("Runs", lambda size: len(runs[size]), "{:,}".format),
        Listed("Reached", lambda size: sum(run.outcome == "reached" for run in runs[size]), "{:,}".format),
        Listed("Epochs", epochs, text_of=lambda size: f"{epochs(size):.1f}{'' if size in known else ' (forecast)'}"),
        Listed("Chance", partial(expected, "chance"), partial(percent, digits=0), optional=True),
        Listed(f"Expected cost{of}", partial(expected, "cost"), costs, optional=True),
        Listed("95 % interval", partial(expected, "low"), text_of=interval, optional=True),
        Listed("Best setting", best),
        Listed("Note", notes, numeric=False),
    )
    note = (
        "Chance: of reaching the target. Cost: expected for a run that reaches it; for batch sizes without runs, "
        "forecast from their neighbours."
        if outlooks
        else None
    )
    return listing("Batch sizes", terms.batch_sizes, columns, note)


def frontier_table(overview: JobOverview) -> Table | None:
    """The pairs of the frontier, the default and the next one; ``None`` while nothing is known."""
    special = {"default": overview.default, "cheapest": overview.cheapest, "next": overview.next_pair}
    pairs = [*overview.pareto]
    pairs += [pair for pair in dict.fromkeys(special.values()) if pair is not None and pair not in pairs]

    def notes(pair: Pair) -> str:
        said = [name for name, other in special.items() if pair == other]
        if overview.no_memory is not None and pair.batch_size >= overview.no_memory:
            said.append(_UNFIT)
        elif pair not in overview.pareto and not pair.forecast and pair != overview.next_pair:
            said.append("beaten")
        return ", ".join(said)

    columns: tuple[Listed[Pair], ...] = (
        Listed("Batch size", lambda pair: pair.batch_size, "{:,}".format, numeric=False),
        Listed("Setting", lambda pair: setting_text(pair.setting)),
        Listed("Time to target", lambda pair: pair.time_s, time_text),
        Listed("Energy to target", lambda pair: pair.energy_j, _joules, optional=True),
        Listed("Mean power", lambda pair: pair.power_w, _watts, optional=True),
        Listed(f"Cost{cost_unit(overview)}", lambda pair: pair.cost(overview.terms), partial(cost_in_column, overview)),
        Listed(
            "Epochs from", lambda pair: "forecast" if pair.forecast else counted(pair.epochs.reached, "run"), numeric=False
        ),
        Listed("Note", notes, numeric=False),
    )
    note = "No measured pair beats those on the frontier in both time and energy."
    ordered = sorted(pairs, key=lambda pair: pair.time_s)
    return listing("Time and energy to the target: frontier, default and next", ordered, columns, note) if pairs else None


def runs_table(overview: JobOverview, *, most: int | None = None) -> Table:
    """The runs, the latest first.

    Args:
        overview: of the job.
        most: how many are shown; by default all, the older ones folded away.
    """
    unknown_j = all(each.run.energy_j is None for each in overview.history)
    columns: tuple[Listed[RunInHistory], ...] = (
        Listed("Run", lambda each: each.run.number, "{:,}".format),
        Listed("Batch size", lambda each: each.run.batch_size, "{:,}".format),
        Listed("Setting", lambda each: setting_text(each.run.setting)),
        Listed("Outcome", lambda each: each.run.outcome, numeric=False),
        Listed("Epochs", lambda each: each.run.epochs, "{:,}".format),
        Listed("Time", lambda each: each.run.time_s or None, time_text),
        Listed("Energy", lambda each: each.run.energy_j, _joules, optional=unknown_j),
        Listed(f"Cost{cost_unit(overview)}", lambda each: each.cost or None, partial(cost_in_column, overview)),
        Listed("Why this batch size", lambda each: each.why or None, numeric=False),
    )
    latest = overview.history[::-1][:most]
    left = len(overview.history) - len(latest)
    note = None if not left else f"The last {len(latest)} of {len(overview.history):,} runs."
    return listing("Runs", latest, columns, note, shown=_SHOWN, rest="earlier runs")
