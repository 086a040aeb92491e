"""A scenario that was run: its policies beside each other on each traffic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress
from wastenot.core.result import HasDocument, HasPage
from wastenot.serving.cluster.band import varied_runs
from wastenot.serving.cluster.outcome import Comparison, compared
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.run_record import Run, record_of
from wastenot.serving.cluster.runs import Share, run_scenario, runs_of
from wastenot.serving.cluster.scenario import Scenario, read_scenario
from wastenot.serving.model.engine import Scheduler, SchedulerName
from wastenot.serving.tables.cluster_store import ClusterStore, StoredClusterRun
from wastenot.study.database import DAMAGED
from wastenot.study.store import Study, open_study


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedScenario(HasDocument, HasPage):
    """Policies for a cluster, beside each other.

    Attributes:
        scenario: as it was run.
        comparisons: of the policies, on each of its traffics.
        runs: how many there were.
        kept: how many of these the study held already.
    """

    drawn_by: ClassVar[str] = "wastenot.serving.page.cluster_page:scenario_page"
    told_by: ClassVar[str] = "wastenot.serving.documents:scenario_document"

    scenario: Scenario
    comparisons: tuple[Comparison, ...]
    runs: int
    kept: int = 0


def simulate_scenario(
    scenario: PathLike | Scenario,
    study: PathLike | Study | None = None,
    *,
    policies: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    share: Share | None = None,
    assumed_clocks: bool = False,
    scheduler: SchedulerName | None = None,
    band: bool = False,
    progress: Progress | None = None,
) -> SimulatedScenario:
    """Simulate policies for a cluster of servers, beside each other on a scenario's traffic.

    Args:
        scenario: the cluster, its traffic and policies, or its file (``wastenot serve simulate --example`` prints one).
        study: keeps runs as they end, to resume from; created if missing. ``None`` keeps nothing.
        policies: only these of the scenario's.
        seeds: in place of the scenario's.
        share: who shares the work; by default this process does it all.
        assumed_clocks: run the policies with clocks that were neither measured nor fitted, too, whatever the scenario's
            file says (``with_assumed`` of each comparison).
        scheduler: of the engines, whatever the scenario's file says. By ``deadline``, which no stock engine offers, policies
            are run on stock engines, too (``stock`` of each comparison).
        band: also run the headline's policy, and the first, with other start-up, deadlines and predicted lengths
            (``varied`` of each comparison): six more runs of each traffic, with one seed.
        progress: receives each run.

    Raises:
        BadInputError: the scenario or an argument cannot be used.
        StudyError: the study cannot be written, or holds a run that is damaged.
    """
    if isinstance(scenario, str | os.PathLike):
        asked = None if scheduler is None else Scheduler.named(scheduler)
        read = read_scenario(scenario, tuple(POLICIES), assumed_clocks=assumed_clocks, scheduler=asked)
    else:
        read = scenario
        if scheduler is not None and scheduler != read.cluster.layouts[0].scheduler:
            raise BadInputError("`scheduler`: applies to a scenario's file; pass it to `read_scenario` instead")
        cut = any(each.assumed_below_mhz is not None for each in read.cluster.layouts)
        if assumed_clocks and cut and read.with_assumed is None:
            raise BadInputError("`assumed_clocks`: applies to a scenario's file; pass it to `read_scenario` instead")
    known = read.parts.run.policies
    for each in policies or ():
        if each not in known:
            raise BadInputError(
                f"`policies` {each}: {read.path} has {', '.join(known)}; choose one of them, or add it under [run]"
            )
    chosen = read.with_run(policies=[each for each in known if each in policies] if policies else None, seeds=seeds)
    store = None if study is None else ClusterStore(open_study(study, create=True))
    runs: list[Run] = []
    done: dict[str, str] = {}

    def keep(run: Run, record: str) -> None:
        if store is not None:
            store.keep(StoredClusterRun(run.digest, chosen.name, run.policy, run.label, run.seed, record))

    def beside(scenario: Scenario) -> tuple[Comparison, ...]:
        own = runs_of(scenario)
        runs.extend(own)
        if store is not None:
            done.update(_done(store, str(study), [run.digest for run in own]))
        records = run_scenario(scenario, done=done, keep=keep, share=share, progress=progress)
        return compared(records, scenario.parts.objective.minimise)

    found = beside(replace(chosen, with_assumed=None, stock=None))
    if chosen.with_assumed is not None:
        assumed = beside(chosen.with_assumed)
        found = tuple(replace(each, with_assumed=more) for each, more in zip(found, assumed, strict=True))
    if chosen.stock is not None:
        stock = beside(chosen.stock)
        found = tuple(replace(each, stock=more) for each, more in zip(found, stock, strict=True))
    if band:
        heads = {each.traffic: head.policy for each in found if (head := each.headline) is not None}
        policies = tuple(dict.fromkeys([found[0].outcomes[0].policy, *heads.values()]))
        varied = varied_runs(replace(chosen, with_assumed=None, stock=None), policies, beside) if heads else []
        found = tuple(
            replace(each, varied=tuple(one[each.traffic, heads[each.traffic]] for one in varied if each.traffic in heads))
            for each in found
        )
    return SimulatedScenario(chosen, found, len(runs), len(done))


def _done(store: ClusterStore, study: str, digests: Sequence[str]) -> dict[str, str]:
    """Records of runs that a study holds."""
    done = store.find(digests)
    try:
        for record in done.values():
            record_of(record)
    except ValueError as error:
        raise StudyError(f"{study}: {DAMAGED} ({error})") from error
    return done
