"""``wastenot serve simulate`` of a scenario: policies for a cluster of LLM servers, beside each other on its traffic."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wastenot.core.errors import BadInputError
from wastenot.serving.cli.simulate_engine import Simulated
from wastenot.terminal.option import option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from wastenot.pages.page import Page
    from wastenot.serving.cluster.outcome import Comparison, Outcome
    from wastenot.serving.cluster.runs import RunRecord, Share
    from wastenot.serving.cluster.scenario import Scenario

_LESS_IMPORTANT = ("Actions", "Power P50", "GPU-hours", "Power P99", "TBT P99", "Energy", "TTFT P99", "J/token")
"""Columns that a narrow terminal does not show, the least important first."""


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """How the runs of a scenario are shared out and kept."""

    study: Annotated[
        str | None,
        option("Keep runs in this study, and resume from it; by default SCENARIO.db, beside the scenario.", "FILE|URL"),
    ] = None
    seeds: Annotated[int | None, option("Use seeds 0 to N - 1, not the scenario's.", "N", min=1)] = None
    processes: Annotated[int | None, option("Processes that share the work; by default one per core.", "N", min=1)] = None
    ray: Annotated[str | None, option("Share the work over this Ray cluster instead; auto: this machine's.", "ADDRESS")] = (
        None
    )


def simulate_cluster(scenario: Path, asked: ScenarioOptions, policies: list[str] | None) -> Simulated:
    """Policies beside each other on a scenario's cluster and traffic; runs are kept as they end.

    Raises:
        BadInputError: the scenario or an option cannot be used.
    """
    from wastenot.serving.cluster.outcome import compared
    from wastenot.serving.cluster.policies import POLICIES
    from wastenot.serving.cluster.scenario import read_scenario
    from wastenot.serving.model.compiled import COMPILED
    from wastenot.terminal.output import say

    read = read_scenario(scenario, tuple(POLICIES))
    seeds = None if asked.seeds is None else tuple(range(asked.seeds))
    chosen = read.with_run(policies=_chosen(policies, read), seeds=seeds)
    if not COMPILED:
        say("Numba is not installed, so this takes long: pip install 'wastenot[serve]'")
    records = _run(chosen, str(asked.study or scenario.with_suffix(".db")), _shared(asked.processes, asked.ray))
    found = compared(records, read.parts.objective.minimise)

    def page() -> Page:
        from wastenot.serving.page.cluster_page import cluster_page

        return cluster_page(chosen, found)

    return Simulated("serve-sim", scenario_document(chosen, found), lambda: scenario_text(chosen, found), page)


def _chosen(asked: list[str] | None, scenario: Scenario) -> tuple[str, ...] | None:
    if not asked:
        return None
    known = scenario.parts.run.policies
    for each in asked:
        if each not in known:
            raise BadInputError(f"--policy {each}: {scenario.path} has {', '.join(known)}; choose one of them")
    return tuple(each for each in known if each in asked)


def _shared(processes: int | None, ray: str | None) -> Share:
    if ray is not None:
        from wastenot.serving.cluster.over_machines import over_machines

        return over_machines(ray)
    from wastenot.serving.cluster.runs import over_processes

    return over_processes(processes or os.cpu_count() or 1)


def _run(scenario: Scenario, study: str, share: Share) -> tuple[RunRecord, ...]:
    """All runs, those that were kept read from the study."""
    from wastenot.core.errors import StudyError
    from wastenot.serving.cluster.runs import Run, record_of, run_scenario, runs_of
    from wastenot.serving.tables.cluster_store import ClusterStore, StoredClusterRun
    from wastenot.study.database import DAMAGED
    from wastenot.study.store import open_study
    from wastenot.terminal.output import say
    from wastenot.terminal.progress import kept_if_interrupted, shown_progress

    store = ClusterStore(open_study(study, create=True))
    runs = runs_of(scenario)
    done = store.find(run.digest for run in runs)
    try:
        for record in done.values():
            record_of(record)
    except ValueError as error:
        raise StudyError(f"{study}: {DAMAGED} ({error})") from error
    if len(done) == len(runs):
        say(f"{study}: all runs were already in the study")

    def keep(run: Run, record: str) -> None:
        store.keep(StoredClusterRun(run.digest, scenario.name, run.policy, run.label, run.seed, record))

    kept = f"{study}: finished runs are kept; resume with the same command"
    with kept_if_interrupted(kept), shown_progress("simulate") as progress:
        return run_scenario(scenario, done=done, keep=keep, share=share, progress=progress)


def scenario_document(scenario: Scenario, found: Sequence[Comparison]) -> dict[str, Any]:
    """What was found, as JSON values."""
    from wastenot.serving.cluster.classes import NAMES
    from wastenot.terminal.output import as_values

    cluster = scenario.cluster
    return {
        "scenario": str(scenario.path),
        "name": scenario.name,
        "evidence": "simulated",
        "model": cluster.layouts[0].model,
        "device": cluster.layouts[0].device,
        "engines": [
            {"gpus": each.gpus, "evidence": each.tables.evidence, "source": each.tables.source} for each in cluster.layouts
        ],
        "hosts": cluster.hosts,
        "gpus_per_host": cluster.gpus_per_host,
        "deadlines": as_values(cluster.deadlines),
        "attain": scenario.parts.run.attain,
        "router": scenario.parts.run.router,
        "objective": as_values(scenario.parts.objective.model_dump(mode="json")),
        "classes": list(NAMES),
        "traffic": [
            {
                "name": each.traffic,
                "kind": next(part.kind for part in scenario.parts.traffic if part.label == each.traffic),
                "bound_per_token_j": each.bound_per_token_j,
                "best": None if each.best is None else each.best.policy,
                "policies": [_policy_document(outcome) for outcome in each.outcomes],
            }
            for each in found
        ],
    }


def _policy_document(outcome: Outcome) -> dict[str, Any]:
    from wastenot.terminal.output import as_values

    return {
        "policy": outcome.policy,
        "failed": outcome.failed,
        "hindsight": outcome.hindsight,
        "saved": as_values(outcome.saved),
        "energy_j": as_values(outcome.over(lambda run: run.energy_j)),
        "cost": _known(outcome, lambda run: run.cost),
        "carbon_g": _known(outcome, lambda run: run.carbon_g),
        "energy_per_token_j": as_values(outcome.over(lambda run: run.energy_per_token_j)),
        "attainment": as_values(outcome.over(lambda run: run.attainment)),
        "worst_class": as_values(outcome.over(lambda run: run.worst_class)),
        "runs": [
            {**as_values(each), "energy_per_token_j": each.energy_per_token_j, "worst_class": each.worst_class}
            for each in outcome.records
        ],
    }


def _known(outcome: Outcome, of: Callable[[RunRecord], float | None]) -> dict[str, float] | None:
    """Over seeds; ``None`` where it is not known of them."""
    from wastenot.terminal.output import as_values

    if any(of(run) is None for run in outcome.records):
        return None
    values: dict[str, float] = as_values(outcome.over(lambda run: of(run) or 0.0))
    return values


def scenario_text(scenario: Scenario, found: Sequence[Comparison]) -> RenderableType:
    """What was found, for a terminal."""
    from wastenot.serving.page.cluster_words import about_cluster
    from wastenot.serving.page.engine_words import steps_text
    from wastenot.terminal.tables import Group, Text

    name, rest = about_cluster(scenario)
    parts: list[RenderableType] = [
        Text.assemble((name, "bold"), f" {rest} (simulated, {steps_text(scenario.cluster.layouts)})")
    ]
    for each in found:
        parts += ["", *_comparison_text(scenario, each)]
    return Group(*parts)


def _comparison_text(scenario: Scenario, found: Comparison) -> Sequence[RenderableType]:
    from wastenot.serving.page.cluster_words import failure_note, notes_on, policies_table, traffic_text
    from wastenot.terminal.tables import Text, rich_table

    failure = failure_note(scenario, found)
    notes = [Text(note, style="yellow" if note == failure else "") for note in notes_on(scenario, found)]
    return [
        Text.assemble((found.traffic, "bold"), f": {traffic_text(scenario, found)}"),
        "",
        rich_table(policies_table(found, scenario.parts.objective.currency), _LESS_IMPORTANT),
        *notes,
    ]
