"""Pipelines planned in one call, and the server of their stragglers, as in Python and on the command line."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Unpack

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.pipelines.model.profile import PipelineProfile
    from wastenot.pipelines.model.schedule import PipelineSchedule
    from wastenot.pipelines.model.stages import StageOptions
    from wastenot.pipelines.plan.plan import PipelinePlan
    from wastenot.pipelines.plan.planner import PipelineGoal, PlannedPipeline
    from wastenot.pipelines.run.straggler_server import StragglerServer
    from wastenot.study.store import Source, Study
    from wastenot.sweeping.estimate import Estimate
    from wastenot.workloads.shape import ShapeOptions


def pipeline(
    source: PathLike | PipelineProfile | None = None,
    goal: PipelineGoal | None = None,
    *,
    stages: int | None = None,
    micro_batches: int | None = None,
    schedule: PathLike | PipelineSchedule = "1f1b",
    chunks: int | None = None,
    device: str | Device | None = None,
    study: PathLike | Study | None = None,
    workload: str | None = None,
    cut: StageOptions | None = None,
    switch_time_s: float | None = None,
    frontier: int = 0,
    command: str | None = None,
    progress: Progress | None = None,
    **shape: Unpack[ShapeOptions],
) -> PlannedPipeline:
    """Plan the clocks of a pipeline: of each instruction of each stage, for each micro-batch.

        >>> import wastenot as wn
        >>> made = wn.pipeline("gpt3-175b", stages=8, micro_batches=48, device="sim:h200")   # doctest: +SKIP
        >>> made.plan.write("pipeline.json")                                                # doctest: +SKIP
        >>> slower = wn.pipeline("profile.csv", wn.PipelineGoal(max_slowdown=0.02), ...)    # doctest: +SKIP

    Args:
        source: a model, whose kernels are measured on ``device``; a CSV file ``stage,instruction,frequency,time,energy``, as
            Perseus keeps its profiles; or a profile. ``None`` takes the workload of ``study``.
        goal: the slowdown allowed and with which confidence it is kept, or the straggler that all wait for; by default no
            slowdown.
        stages: GPUs, or groups of them, after one another (the pipeline-parallel degree).
        micro_batches: of an iteration.
        schedule: ``gpipe``, ``1f1b``, ``early-recomputation``, ``interleaved``, ``zb-h1``, ``dualpipe``, or a file that
            has one.
        chunks: stages of the model on each GPU, for ``interleaved``.
        device: to measure a model on (:func:`wastenot.open_device`, which also says whether its clocks may be set), or its
            name; of a CSV file, the GPU that it is of, such as ``a100``.
        study: keeps what is measured; or was measured before, where no device is given.
        workload: of the study; may be left out where it holds only one.
        cut: layers of each stage, what gets clocks of its own, recomputation, pipelines beside each other (``replicas``),
            what a GPU draws while it waits (``waiting_w``), which CSV files need, and how much of a forward and a backward
            at once overlaps.
        switch_time_s: that the device takes to switch clocks: settings of the plan last at least as long, with a little time
            in reserve. By default as measured (in the study), else as stated by the device, published or assumed of it;
            0 plans as if switching took no time, which bounds what a plan could save.
        frontier: number of plans, from the fastest to that of least energy, to keep with the plan: stragglers come and go.
        command: that does the same, for the study to name to whoever finds it unfinished.
        progress: informed of every measurement.
        shape: how the model is run: ``batch`` (sequences of a micro-batch), ``sequence``, ``tensor_parallel``, ...

    Raises:
        BadInputError: an argument makes no sense, a file breaks a rule, or the schedule deadlocks.
        InfeasibleError: no plan is that fast; names the fastest.
        ClocksRefusedError: the device's clocks may not be set.
        DeviceError: the device failed.
    """
    from wastenot.pipelines.model.derived import suited
    from wastenot.pipelines.model.profile import PipelineProfile
    from wastenot.pipelines.model.source import check_there, is_profile_file, profile_of_file, schedule_for
    from wastenot.pipelines.model.stages import StageOptions, profile_of_workload
    from wastenot.pipelines.plan.planner import PipelineGoal, frontier_rungs, plan_pipeline, with_rungs
    from wastenot.pipelines.plan.switched import with_lasting, with_switching
    from wastenot.planning.switching import switch_time
    from wastenot.study.store import open_study
    from wastenot.workloads.shape import check_options

    check_options(
        shape, settled="a profile, which holds times and energies" if isinstance(source, PipelineProfile) else None
    )
    if source is None and study is None:
        raise BadInputError("what does the pipeline run? name a model such as gpt3-175b, a CSV file, or a study (`study`)")
    goal, cut = goal or PipelineGoal(), cut or StageOptions()
    for argument, degree in (("data_parallel", cut.replicas), ("tensor_parallel", shape.get("tensor_parallel", 1))):
        if degree < 1:
            raise BadInputError(f"`{argument}` {degree}: must be at least 1")
    given = None if switch_time_s is None else switch_time("", switch_time_s)
    wanted = partial(schedule_for, schedule, micro_batches=micro_batches, chunks=chunks, ranks=stages)
    if isinstance(source, PipelineProfile):
        profile = source
        order = wanted(stages=profile.stages)
    elif source is not None and is_profile_file(source):
        named = device if isinstance(device, str) and ":" not in device else None
        profile = profile_of_file(source, cut.waiting_w, device=named, replicas=cut.replicas, shape=shape)
        order = wanted(stages=profile.stages)
    else:
        check_there(source)
        if source is None and isinstance(study, str | os.PathLike):
            study = open_study(study)
        order = wanted()
        cut = cut.run_by(order)
        if source is None:
            useless = next(iter(shape), None if device is None else "device")
            if useless is not None:
                raise BadInputError(f"`{useless}`: the study has been measured; leave it out, or name a model to measure")
            assert study is not None
            measured: Source = study
        else:
            if workload is not None:
                raise BadInputError(f"`workload` {workload}: has no effect beside {os.fspath(source)}; leave it out")
            measured = _measured(source, order, device, study, cut, goal.max_slowdown, command, progress, **shape)
        profile = profile_of_workload(
            measured, cut, stages=order.stages, workload=workload, schedule=order, max_slowdown=goal.max_slowdown
        )
    if goal.confidence is not None and cut.as_measured:
        raise BadInputError("`confidence`: has no effect as measured (`as_measured`); leave out one of them")
    profile = suited(profile, order, cut.overlap)
    made = with_switching(plan_pipeline(profile, order, goal), given or profile.switching or switch_time(profile.device))
    return with_rungs(made, with_lasting(made, frontier_rungs(made, frontier, progress))) if frontier else made


def straggler(
    plan: PathLike | PipelinePlan, *, replicas: int | None = None, at: str | None = None, token_file: PathLike | None = None
) -> StragglerServer:
    """A server that slows pipelines down while they wait for a slower one; it serves while its context is open.

        >>> import wastenot as wn
        >>> with wn.straggler("pipeline.json", replicas=4) as server:       # doctest: +SKIP
        ...     wn.StragglerClient(server.address).tell(1, slower=0.2)
        ...     server.wait(3600.0)

    Ranks under a plan report their iterations where ``WASTENOT_STRAGGLER`` names the server's ``address``.

    Args:
        plan: with plans along its frontier (``frontier`` of :func:`pipeline`), or its file.
        replicas: pipelines beside each other; by default as the plan says.
        at: where it listens, a path or HOST:PORT; by default a socket of the user's.
        token_file: file of the token that ranks must know, for HOST:PORT.

    Raises:
        BadInputError: the plan has no frontier, or the server cannot listen there.
    """
    from wastenot.pipelines.plan.plan_file import read_pipeline_plan
    from wastenot.pipelines.plan.straggler import Rungs
    from wastenot.pipelines.run.straggler_client import default_address, token_in
    from wastenot.pipelines.run.straggler_server import StragglerServer
    from wastenot.pipelines.run.stragglers import Stragglers

    made = read_pipeline_plan(plan) if isinstance(plan, str | os.PathLike) else plan
    stragglers = Stragglers(Rungs(made), made.replicas if replicas is None else replicas, made.gpus)
    return StragglerServer(stragglers, at or default_address(), token=token_in(token_file), digest=made.digest)


def pipeline_estimate(
    source: PathLike,
    device: str | Device,
    *,
    stages: int | None = None,
    micro_batches: int | None = None,
    schedule: PathLike | PipelineSchedule = "1f1b",
    chunks: int | None = None,
    cut: StageOptions | None = None,
    **shape: Unpack[ShapeOptions],
) -> Estimate:
    """What :func:`pipeline` measures of a model into a new study, and how long that takes; nothing is measured or set.

    Arguments are those of :func:`pipeline`.

    Raises:
        BadInputError: an argument makes no sense.
    """
    from wastenot.devices.open import open_device
    from wastenot.pipelines.model.measured_profile import estimate_pipeline, stage_tasks
    from wastenot.pipelines.model.source import check_there, schedule_for

    check_there(source)
    order = schedule_for(schedule, micro_batches=micro_batches, chunks=chunks, ranks=stages)
    tasks = stage_tasks(os.fspath(source), len(order.ranks), **shape)
    return estimate_pipeline(open_device(device) if isinstance(device, str) else device, tasks, order, cut)


def _measured(
    name: PathLike,
    order: PipelineSchedule,
    device: str | Device | None,
    study: PathLike | Study | None,
    cut: StageOptions,
    max_slowdown: float,
    command: str | None,
    progress: Progress | None,
    **shape: Unpack[ShapeOptions],
) -> Source:
    """What the kernels of a model's stages cost, measured now."""
    from wastenot.devices.open import open_device
    from wastenot.pipelines.model.measured_profile import check_cut, measure_pipeline, stage_tasks
    from wastenot.study.store import open_study

    if device is None:
        raise BadInputError(
            f"`device`: on which device are the kernels of {os.fspath(name)} to be measured? such as sim:h200"
        )
    tasks = stage_tasks(os.fspath(name), len(order.ranks), **shape)
    check_cut(tasks, order, cut.partition)  # before a study is made
    target = open_device(device) if isinstance(device, str) else device
    kept = None if study is None else open_study(study, create=True)
    return measure_pipeline(target, tasks, order, kept, cut, max_slowdown=max_slowdown, progress=progress, command=command)
