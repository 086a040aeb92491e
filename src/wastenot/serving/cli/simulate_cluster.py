"""``wastenot serve simulate`` of a scenario: policies for a cluster of LLM servers, beside each other on its traffic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.terminal.option import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from wastenot.serving.cluster.outcome import Comparison
    from wastenot.serving.cluster.runs import Share
    from wastenot.serving.cluster.scenario import Scenario
    from wastenot.serving.cluster.simulated import SimulatedScenario
    from wastenot.serving.model.engine import SchedulerName

_LESS_IMPORTANT = (
    "Actions", "Median power", "GPU time", "Power, P99", "Between tokens, P99", "Energy", "First token, P99",
    "Energy per token",
)  # fmt: skip
"""Columns that a narrow terminal does not show, the least important first."""


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """How the runs of a scenario are shared out and kept."""

    study: Annotated[
        str | None,
        option("Keep runs in this study, and resume from it; by default SCENARIO.db, beside the scenario.", "FILE|URL"),
    ] = None
    seeds: Annotated[int | None, option("Use seeds 0 to N - 1, not the scenario's.", "N", min=1)] = None
    processes: Annotated[
        int | None, option("Processes that share the work; by default one per core, fewer for short runs.", "N", min=1)
    ] = None
    band: Annotated[
        bool,
        option(
            "Also show what the headline becomes with start-up twice as long, deadlines halved and 70 % of lengths "
            "predicted: two more runs for each."
        ),
    ] = False
    ray: Annotated[str | None, option("Share the work over this Ray cluster instead; auto: this machine's.", "ADDRESS")] = (
        None
    )


def simulate_cluster(
    scenario: Path,
    asked: ScenarioOptions,
    policies: list[str] | None,
    *,
    assumed_clocks: bool = False,
    scheduler: SchedulerName | None = None,
) -> SimulatedScenario:
    """Policies beside each other on a scenario's cluster and traffic; runs are kept as they end.

    Raises:
        BadInputError: the scenario or an option cannot be used.
    """
    from wastenot.core.install import install_line
    from wastenot.serving.cluster.simulated import simulate_scenario
    from wastenot.serving.model.compiled import COMPILED
    from wastenot.terminal.output import say
    from wastenot.terminal.progress import kept_if_interrupted, shown_progress

    if not COMPILED:
        say(f"Numba is not installed, so this takes much longer; interrupt it, runs are kept: {install_line('serve')}")
    study = str(asked.study or scenario.with_suffix(".db"))
    seeds = None if asked.seeds is None else range(asked.seeds)
    kept = f"{study}: finished runs are kept; resume with the same command"
    with kept_if_interrupted(kept), shown_progress("simulate") as progress:
        found = simulate_scenario(
            scenario,
            study,
            policies=policies,
            seeds=seeds,
            share=_shared(asked.processes, asked.ray),
            assumed_clocks=assumed_clocks,
            scheduler=scheduler,
            band=asked.band,
            progress=progress,
        )
    if found.kept == found.runs:
        say(f"{study}: all runs were already in the study")
    return found


def _shared(processes: int | None, ray: str | None) -> Share:
    if ray is not None:
        from wastenot.serving.cluster.over_machines import over_machines

        return over_machines(ray)
    from wastenot.serving.cluster.runs import over_processes

    return over_processes(processes)


def scenario_text(found: SimulatedScenario) -> RenderableType:
    """What was found, for a terminal."""
    from wastenot.serving.page.cluster_words import about_cluster, replay_command
    from wastenot.serving.page.simulated_words import steps_text
    from wastenot.terminal.tables import Group, Paragraph, Text

    scenario = found.scenario
    name, rest = about_cluster(scenario)
    replay = replay_command(scenario.cluster.deadlines)
    parts: list[RenderableType] = [
        Text.assemble((name, "bold"), f" {rest} (simulated, {steps_text(scenario.cluster.layouts)})")
    ]
    for each in found.comparisons:
        parts += ["", *_comparison_text(scenario, each)]
    return Group(*parts, "", Paragraph(Text(f"Your own servers, from their last hour: {replay}")))


def _comparison_text(scenario: Scenario, found: Comparison) -> Sequence[RenderableType]:
    from wastenot.serving.page.cluster_tables import policies_table
    from wastenot.serving.page.cluster_words import effect_text, failure_note, notes_on, traffic_text, verdict_text
    from wastenot.terminal.tables import Paragraph, Text, rich_table

    failure = failure_note(scenario, found)
    notes = [Text(note, style="yellow" if note == failure else "") for note in notes_on(scenario, found)]
    return [
        Text.assemble((found.traffic, "bold"), f": {traffic_text(scenario, found)}"),
        "",
        rich_table(policies_table(found, scenario.parts.objective.currency), _LESS_IMPORTANT),
        *notes,
        "",
        Paragraph(Text(f"{effect_text(scenario, found)} (simulated); {verdict_text(scenario, found)}", style="bold")),
    ]
