"""The verbs of serving as functions: what ``wn.serve`` offers, and what the commands of ``wastenot serve`` are built on.

Measuring a server (``wn.serve.bench``) lives in :mod:`wastenot.serving.bench.bench`, and controlling servers in
:mod:`wastenot.serving.control.verbs`. Wherever an engine, a trace, a study or a device is needed, its file or name will do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.serving.cluster.outcome import Comparison
    from wastenot.serving.cluster.runs import Share
    from wastenot.serving.cluster.scenario import Scenario
    from wastenot.serving.cluster.simulated import SimulatedScenario
    from wastenot.serving.model.configurations import Only
    from wastenot.serving.model.deadlines import Deadlines
    from wastenot.serving.model.engine import Engine, Scheduler, SchedulerName
    from wastenot.serving.model.profile_file import EngineProfile
    from wastenot.serving.model.recommend import Bounds, Prices, Recommendation, Unit
    from wastenot.serving.model.requests import Requests
    from wastenot.serving.model.steering import PolicyName, Steering
    from wastenot.serving.page.recommend_words import Recommended
    from wastenot.serving.tables.cluster_store import ClusterStore
    from wastenot.study.store import Study
    from wastenot.sweeping.point import PointOptions

CONTEXT = 1024.0
"""Mean tokens in the cache of a request, where nothing says how many."""


def profile(
    model: str,
    device: str | Device,
    study: PathLike | Study | None = None,
    *,
    degrees: Sequence[int] = (1,),
    core_step_mhz: float | None = 150.0,
    curves: str | None = None,
    memory_bytes: float | None = None,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> EngineProfile:
    """Measure the kernels of a model's steps on a device, and put the profile of an engine together from them.

    A profile from tables of measured steps is :func:`wastenot.profile_of_steps`.

    Args:
        model: such as ``llama-8b``.
        device: or its name.
        study: keeps the kernels, to resume from; created if missing. ``None`` keeps nothing.
        degrees: of tensor parallelism.
        core_step_mhz: between core clocks, from the highest down; ``None`` for the card's own clocks only.
        curves: with those, a simulated GPU to take the other clocks from, a forecast.
        memory_bytes: of one card; by default what is known of it.
        options: warm-up, window and precision of each measurement.
        progress: receives each point.
        command: that does the same, for the study to name to whoever finds it unfinished.

    Raises:
        BadInputError: there is no such model or device, or the model does not fit into its memory.
        ClocksRefusedError: the clocks may not be set.
        DeviceError: the device does not measure.
    """
    from wastenot.devices.open import open_device
    from wastenot.serving.model.engine_kernels import profile_from_kernels
    from wastenot.study.store import open_study

    return profile_from_kernels(
        model,
        open_device(device) if isinstance(device, str) else device,
        open_study(study, create=True) if isinstance(study, str | os.PathLike) else study,
        degrees=degrees,
        core_step_mhz=core_step_mhz,
        curves=curves,
        memory_bytes=memory_bytes,
        options=options,
        progress=progress,
        command=command,
    )


def simulate(
    engine: PathLike | EngineProfile | Engine,
    trace: PathLike | Requests,
    *,
    load: float | None = None,
    rate_per_s: float | None = None,
    step_tokens: int | None = None,
    policies: Sequence[PolicyName] | None = None,
    deadlines: Deadlines | None = None,
    length_error: float = 0.3,
    seed: int = 0,
    assumed_clocks: bool = False,
    scheduler: SchedulerName | None = None,
    progress: Progress | None = None,
) -> Steering:
    """Simulate policies that set the clock of one engine, beside each other on a trace.

    Args:
        engine: whose clock is set; of a profile or its file, that of the lowest parallel degree.
        trace: of requests, or its file.
        load: rescale the trace to this share of the load that the maximum clock sustains.
        rate_per_s: or to this rate, in requests per second; by neither, it is taken as it is.
        step_tokens: most new tokens of a step; by default what sustains the highest load.
        policies: to run; by default all but the one that sees metrics alone, and the oracle, which takes minutes.
        deadlines: and the share of requests that is to meet them.
        length_error: of predicted answer lengths.
        seed: of the prediction errors.
        assumed_clocks: run the policies with clocks that were neither measured nor fitted, too, whose steps' cost is
            assumed (``with_assumed`` of what is found).
        scheduler: of the engine; by default its own, which is first come, first served. By ``deadline``, which no stock
            engine offers, policies are run on a stock engine, too (``stock`` of what is found).
        progress: receives each policy.

    Raises:
        BadInputError: a file or an argument cannot be used, or the requests do not fit the engine.
        OutsideProfileError: a step that the engine's tables do not cover.
    """
    from wastenot.serving.model.deadlines import LITERATURE
    from wastenot.serving.model.profile_file import EngineProfile, read_engine
    from wastenot.serving.model.steering import DEFAULT_POLICIES, POLICY_NAMES, steer
    from wastenot.serving.model.traces import read_trace

    for each in policies or ():
        if each not in POLICY_NAMES:
            raise BadInputError(f"`policies` {each}: is not one of {', '.join(POLICY_NAMES)}")
    if rate_per_s is not None and not 0 < rate_per_s < float("inf"):
        raise BadInputError(f"`rate_per_s` {rate_per_s:g}: must be above 0, and finite")
    if not 0 <= length_error < float("inf"):
        raise BadInputError(f"`length_error` {length_error:g}: must be a number of at least 0")
    profiled = read_engine(engine) if isinstance(engine, str | os.PathLike) else engine
    requests = read_trace(trace).requests if isinstance(trace, str | os.PathLike) else trace
    kept = deadlines or LITERATURE
    of = profiled.engine() if isinstance(profiled, EngineProfile) else profiled
    found = steer(
        of if scheduler is None else replace(of, scheduler=_scheduler(scheduler)),
        requests,
        load=load,
        rate_per_s=rate_per_s,
        step_tokens=step_tokens,
        policies=policies or DEFAULT_POLICIES,
        deadlines=kept,
        share=kept.share,
        length_error=length_error,
        seed=seed,
        assumed_clocks=assumed_clocks,
        progress=progress,
    )
    return replace(found, source=_file(engine), trace=_file(trace))


def _scheduler(given: SchedulerName) -> Scheduler:
    from wastenot.serving.model.engine import Scheduler

    if given not in tuple(Scheduler):
        raise BadInputError(f"`scheduler` {given}: is not one of {', '.join(Scheduler)}")
    return Scheduler(given)


def _file(given: object) -> str:
    return os.fspath(given) if isinstance(given, str | os.PathLike) else ""


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
    from wastenot.serving.cluster.band import varied_runs
    from wastenot.serving.cluster.outcome import compared
    from wastenot.serving.cluster.policies import POLICIES
    from wastenot.serving.cluster.run_record import Run
    from wastenot.serving.cluster.runs import run_scenario, runs_of
    from wastenot.serving.cluster.scenario import read_scenario
    from wastenot.serving.cluster.simulated import SimulatedScenario
    from wastenot.serving.tables.cluster_store import ClusterStore, StoredClusterRun
    from wastenot.study.store import open_study

    if isinstance(scenario, str | os.PathLike):
        asked = None if scheduler is None else _scheduler(scheduler)
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
    kept = open_study(study, create=True) if isinstance(study, str | os.PathLike) else study
    store = None if kept is None else ClusterStore(kept)
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
    from wastenot.core.errors import StudyError
    from wastenot.serving.cluster.run_record import record_of
    from wastenot.study.database import DAMAGED

    done = store.find(digests)
    try:
        for record in done.values():
            record_of(record)
    except ValueError as error:
        raise StudyError(f"{study}: {DAMAGED} ({error})") from error
    return done


def recommend(
    sources: PathLike | Study | Iterable[PathLike | Study],
    bounds: Bounds | None = None,
    *,
    only: Only | None = None,
    unit: Unit = "token",
    prices: Prices | None = None,
    clocks: PathLike | EngineProfile | None = None,
    context: float = CONTEXT,
    assumed_clocks: bool = False,
) -> Recommended:
    """For each model, the configuration (GPUs, batch, clocks) of least energy that keeps bounds on latency.

    Args:
        sources: studies of servers, or tables of ML.ENERGY, InferenceX or AIPerf.
        bounds: on latencies and on the energy of a token; by default none.
        only: configurations to consider.
        unit: what is to be least: the energy of a token or a request, or money.
        prices: for money.
        clocks: forecast other clocks too, by this profile of the same model.
        context: mean tokens in the cache of a request, for ``clocks``.
        assumed_clocks: with ``clocks``, also those that were neither measured nor fitted.

    Returns:
        What is chosen (``chosen``), the cheapest model first; and the models of which no configuration keeps the bounds, and
        why (``unmet``).

    Raises:
        BadInputError: a source or an argument cannot be used, or no configuration is left to choose from.
        StudyError: a study cannot be read.
    """
    from wastenot.serving.model.configurations import Only, at_other_clocks, configurations_of
    from wastenot.serving.model.recommend import Bounds, recommend as recommended
    from wastenot.serving.page.recommend_words import Recommended
    from wastenot.study.address import parse_address
    from wastenot.study.store import Study

    if not 0.0 <= context < float("inf"):
        raise BadInputError(f"`context` {context:g}: must be a number of tokens, at least 0")
    listed = [sources] if isinstance(sources, str | os.PathLike | Study) else list(sources)
    if not listed:
        raise BadInputError("give configurations to choose from: a study of 'wastenot serve bench', or a table of ML.ENERGY")
    bounds = bounds or Bounds()
    measured = (only or Only()).of(configurations_of(listed))
    alone: tuple[Recommendation, ...] = ()
    points, left = measured, ""
    if clocks is not None:
        forecast, left = at_other_clocks(measured, clocks, context, assumed_clocks=assumed_clocks)
        alone, _ = recommended(measured, bounds, unit=unit, prices=prices)
        points += forecast
    chosen, unmet = recommended(points, bounds, unit=unit, prices=prices)
    names = [str(each) if isinstance(each, Study) else parse_address(os.fspath(each)).label for each in listed]
    return Recommended(points, chosen, unmet, bounds, unit, prices, alone, names, left)
