"""``wastenot serve-sim``: policies for a cluster of LLM servers, simulated beside each other on traffic of a scenario."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.core.errors import BadInputError
from wastenot.terminal.options import FiguresOption, JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from wastenot.serving.cluster.outcome import Comparison, Outcome
    from wastenot.serving.cluster.runs import RunRecord, Share
    from wastenot.serving.cluster.scenario import Scenario

_LESS_IMPORTANT = ("Actions", "Power P50", "GPU-hours", "Power P99", "TBT P99", "Energy", "TTFT P99", "J/token")
"""Columns that a narrow terminal does not show, the least important first."""


def serve_sim(
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="[SCENARIO.toml]", help="Cluster, traffic and policies; see --example."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a scenario with comments, and exit.")] = False,
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            metavar="FILE|URL",
            help="Keep runs in this study, and resume from it; by default SCENARIO.db, beside the scenario.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="Only these of the scenario's policies; may be repeated."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, help="With seeds from 0 to N - 1, not the scenario's.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", metavar="N", min=1, help="Processes that share the work; by default one for each core."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Share the work over this Ray cluster instead; auto: this machine's."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="Write the document of --json to this file.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.html", help="Write a page with time lines to this file.")
    ] = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate policies for a cluster of LLM servers.

    Runs every policy of a scenario on each of its traffics with each seed, and shows the energy of each beside the share of
    requests that keep their deadlines. Runs are kept as they end: what was broken off resumes. Nothing is run or set on a
    GPU.
    """
    from wastenot.serving.cluster.outcome import compared
    from wastenot.serving.cluster.policies import POLICIES
    from wastenot.serving.cluster.scenario import example as scenario_example, read_scenario
    from wastenot.serving.model.compiled import COMPILED
    from wastenot.terminal.output import console, document_of, json_text, print_json, say

    if example:
        if scenario is not None:
            raise BadInputError("--example: prints a scenario and reads none; leave out the file")
        print(scenario_example(), end="")
        return
    if scenario is None:
        raise BadInputError("give a scenario; 'wastenot serve-sim --example > scenario.toml' writes one")
    asked = read_scenario(scenario, tuple(POLICIES))
    chosen = asked.with_run(policies=_chosen(policy, asked), seeds=None if seeds is None else tuple(range(seeds)))
    if not COMPILED:
        say("Numba is not installed, so this takes long: pip install 'wastenot[serve]'")
    records = _run(chosen, str(study or scenario.with_suffix(".db")), _shared(processes, ray))
    found = compared(records, asked.parts.objective.minimise)
    if page is not None or figures is not None:
        from wastenot.serving.page.cluster_page import cluster_page
        from wastenot.terminal.output import typed_command
        from wastenot.terminal.written_page import write_page

        write_page(cluster_page(chosen, found), page, figures, command=typed_command(str(scenario)), word="page")
    document = scenario_document(chosen, found)
    if out is not None:
        from wastenot.core.files import write_text

        write_text(out, json_text(document_of("serve-sim", document)) + "\n")
        say(f"{out}: written")
    if as_json:
        print_json("serve-sim", document)
    else:
        console().print(scenario_text(chosen, found))


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
        say(f"{study}: all runs were kept before")

    def keep(run: Run, record: str) -> None:
        store.keep(StoredClusterRun(run.digest, scenario.name, run.policy, run.label, run.seed, record))

    kept = f"{study}: runs that have ended are kept; resume with the same command"
    with kept_if_interrupted(kept), shown_progress("simulate") as progress:
        return run_scenario(scenario, done=done, keep=keep, share=share, progress=progress)


def scenario_document(scenario: Scenario, found: Sequence[Comparison]) -> dict[str, Any]:
    """What the verb found, as JSON values."""
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
    """What the verb found, for a terminal."""
    from wastenot.serving.page.cluster_words import about_cluster, steps_text
    from wastenot.terminal.tables import Group, Text

    name, rest = about_cluster(scenario)
    parts: list[RenderableType] = [Text.assemble((name, "bold"), f" {rest} (simulated, {steps_text(scenario)})")]
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
