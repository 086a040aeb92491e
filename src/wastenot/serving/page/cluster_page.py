"""The page of policies for a cluster, as HTML and as figure files: energy, attainment by class, and time lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wastenot.pages.figure import Figure, inline, series_color, specification_of, tooltips
from wastenot.pages.formatting import duration, percent, quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Folded, Page
from wastenot.pages.table import Table
from wastenot.planning.tariff import DAY_S, HOUR_S
from wastenot.serving.cluster.outcome import Comparison, Outcome
from wastenot.serving.cluster.run_record import RunRecord
from wastenot.serving.cluster.scenario import Scenario
from wastenot.serving.cluster.simulated import SimulatedScenario
from wastenot.serving.page import cluster_tables, cluster_words
from wastenot.serving.page.over_time import panels_over_time
from wastenot.serving.page.policies_chart import ROLE_COLORS, PolicyBar, Role, policies_chart
from wastenot.serving.page.simulated_words import simulated_origin, steps_text

_UNITS_S = ((3 * DAY_S, DAY_S, "days"), (3 * HOUR_S, HOUR_S, "hours"), (300.0, 60.0, "minutes"))


def cluster_figures(scenario: Scenario, found: Sequence[Comparison]) -> tuple[Figure, ...]:
    """The figures of each traffic, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    figures: list[Figure] = []
    for place, each in enumerate(found):
        suffix = f"-{place + 1}" if len(found) > 1 else ""
        title = f": {each.traffic}" if len(found) > 1 else ""
        figures += [_energy_figure(scenario, each, suffix, title), _timeline_figure(scenario, each, suffix, title)]
    return tuple(figures)


def _role_of(found: Comparison, outcome: Outcome) -> Role:
    """Whether savings are against it, the headline or the second card is of it, or none of these."""
    shown = [each for each in (found.fixed_plan, found.policy_to_add) if each is not None]
    roles: dict[str, Role] = dict(zip((each.policy for each in shown), ("headline", "second"), strict=False))
    return "compared with" if outcome is found.outcomes[0] else roles.get(outcome.policy, "other")


# ---- energy --------------------------------------------------------------------------------------------------------------


def _energy_figure(scenario: Scenario, found: Comparison, suffix: str, title: str) -> Figure:
    seeds, bound = len(found.outcomes[0].records), found.bound_per_token_j
    names = cluster_words.plain_names(scenario, found)
    bars = [_bar(each, names[each.policy], _role_of(found, each)) for each in found.outcomes]
    saves = any(bar.role == "headline" for bar in bars)
    allowed, late = 1.0 - scenario.parts.run.attain, "late in the worst class, %"
    parts = (
        f"Bars: means over {seeds} seeds, with the range; late: the most with any seed." if seeds > 1 else "",
        "" if bound is None else f"Dotted across: {quantity(bound, 'J', 3)}, the least that these tokens need, never idle.",
        "Strong bars: what the cards are of; what the headline saves is dotted beside its bar." if saves else "",
        f"Green: up to {percent(allowed, 0)}, the most of a class that may be late.",
    )
    chart = specification_of(policies_chart(bars, allowed=allowed, late=late, bound_j=found.bound_per_token_j))
    note = " ".join(filter(None, parts))
    return Figure(
        f"cluster-energy{suffix}",
        f"Energy and deadlines by policy{title}",
        cluster_words.about(scenario, found),
        note,
        chart,
    )


def _bar(outcome: Outcome, name: str, role: Role) -> PolicyBar:
    energy = outcome.over(lambda run: run.energy_per_token_j)
    saved = None if role == "compared with" else outcome.saved.mean
    late = 1.0 - outcome.over(lambda run: run.worst_class).least
    return PolicyBar(name, role, energy.mean, energy.least, energy.most, saved, late, not outcome.failed)


# ---- over time -----------------------------------------------------------------------------------------------------------


def _timeline_figure(scenario: Scenario, found: Comparison, suffix: str, title: str) -> Figure:
    run = found.outcomes[0].records[0]
    note = (
        f"The run with seed {run.seed}, in steps of {duration(run.timeline.bin_s)}. Clock: the cap, averaged over GPUs that "
        "serve. Late requests are shown at their arrival."
    )
    chart = specification_of(_timeline_chart(scenario, found))
    return Figure(f"cluster-timeline{suffix}", f"Timeline{title}", cluster_words.about(scenario, found), note, chart)


def _timeline_chart(scenario: Scenario, found: Comparison) -> Any:
    alt = load("altair")
    wanted = [found.outcomes[0], found.fixed_plan, found.policy_to_add]  # what panels are of; all would hide each other
    runs = [each.records[0] for each in found.outcomes if any(each is one for one in wanted)]
    lasts_s = max(run.duration_s for run in runs)
    unit_s, unit = next(((unit_s, name) for least_s, unit_s, name in _UNITS_S if lasts_s >= least_s), (1.0, "seconds"))
    panels = {"came": "requests/s", "watts": "power, W"}
    degrees = [each.gpus for each in scenario.cluster.layouts]
    for layout, degree in enumerate(degrees):
        panels[f"layout{layout}"] = f"instances of {degree} GPU{'' if degree == 1 else 's'} that serve"
    panels |= {"mhz": "core clock, MHz", "late": "late, %"}
    rows = [row for run in runs for row in timeline_rows(run, unit_s)]
    shown = {field: title for field, title in panels.items() if any(row.get(field) for row in rows)}
    names = cluster_words.plain_names(scenario, found)
    data = inline([{**row, "policy": names[row["policy"]]} for row in rows])
    drawn_of = {each.policy: ROLE_COLORS[_role_of(found, each)] for each in found.outcomes}
    colors = {names[run.policy]: drawn_of[run.policy] for run in runs}
    tip = tooltips({"policy:N": "policy", "at:Q": unit})

    def draw(field: str, x: Any, y: Any) -> list[Any]:
        if field == "came":  # the same for all
            one = inline([row for row in timeline_rows(runs[0], unit_s) if row["at"] < lasts_s / unit_s])
            return [alt.Chart(one).mark_line(style="curve", clip=True, interpolate="step-after").encode(x=x, y=y)]
        color = series_color("policy:N", colors, symbolType="stroke", symbolStrokeWidth=3, labelLimit=300)
        line = alt.Chart(data).mark_line(strokeWidth=1.4, opacity=0.9, clip=True, interpolate="step-after")
        return [line.encode(x=x, y=y, color=color, tooltip=tip)]

    return panels_over_time(shown, f"{unit} since the start", (0.0, lasts_s / unit_s), draw)


def timeline_rows(run: RunRecord, unit_s: float) -> list[dict[str, Any]]:
    """A run in bins, each as a row; ``None`` where nothing is known."""
    timeline = run.timeline
    came, missed = (np.array(each).sum(axis=1) for each in (timeline.arrivals, timeline.missed))
    return [
        {
            "policy": run.policy,
            "at": place * timeline.bin_s / unit_s,
            "came": came[place] / timeline.bin_s,
            "watts": timeline.power_w[place],
            **{f"layout{layout}": count for layout, count in enumerate(timeline.instances[place])},
            "mhz": timeline.clock_mhz[place],
            "late": 100.0 * missed[place] / came[place] if came[place] else None,
        }
        for place in range(len(timeline.power_w))
    ]


def scenario_page(found: SimulatedScenario) -> Page:
    """The page of a scenario that was run; errors are those of :func:`cluster_page`."""
    return cluster_page(found.scenario, found.comparisons)


def cluster_page(scenario: Scenario, found: Sequence[Comparison]) -> Page:
    """The page of policies for a cluster.

    Args:
        scenario: that was run.
        found: policies on each of its traffics; the headline is of the first.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    name, rest = cluster_words.about_cluster(scenario)
    first = found[0]
    tables = [table for place, each in enumerate(found) for table in _tables(scenario, each, place, several=len(found) > 1)]
    return Page(
        verb="serving",
        brand="serving",
        title=(name, rest),
        origin=simulated_origin(scenario.cluster.layouts),
        effect=cluster_words.effect_text(scenario, first),
        verdict=cluster_words.verdict_text(scenario, first),
        tone="neutral" if first.fixed_plan is None else "promised",
        panels=cluster_words.panels(scenario, first),
        next_step=cluster_words.next_step(scenario, first),
        figures=cluster_figures(scenario, found),
        tables=[],
        folded=Folded("All policies", "what each does, its numbers, and which requests were late", tables=tables),
        notes=[
            f"{each.traffic}: {note}" if len(found) > 1 else note
            for each in found
            for note in cluster_words.cautions_on(scenario, each)
        ],
        about=cluster_words.about(scenario, first),
        device=scenario.cluster.layouts[0].device,
        made_from=(("Scenario", str(scenario.path)), ("Engines", steps_text(scenario.cluster.layouts))),
    )


def _renamed(table: Table, names: Mapping[str, str], *, beside: bool) -> Table:
    """A table with plain names of policies; with those that scenarios use beside them where a policy is explained."""

    def name(policy: str) -> str:
        return f"{names[policy]} ({policy})" if beside and names[policy] != policy else names[policy]

    rows = tuple(replace(row, texts=(name(row.texts[0]), *row.texts[1:])) for row in table.rows)
    return replace(table, rows=rows)


def _tables(scenario: Scenario, found: Comparison, place: int, *, several: bool) -> list[tuple[str, Table]]:
    tables = [
        ("meanings", cluster_tables.about_table(found)),
        ("policies", cluster_tables.savings_table(found, scenario.parts.objective.currency)),
        ("classes", cluster_tables.classes_table(found)),
        ("running", cluster_tables.running_table(found)),
    ]
    names = cluster_words.plain_names(scenario, found)
    tables = [(name, _renamed(table, names, beside=name == "meanings")) for name, table in tables]
    if not several:
        return tables
    return [(f"{name}-{place + 1}", replace(table, title=f"{table.title}: {found.traffic}")) for name, table in tables]
