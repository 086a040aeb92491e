"""Pipelines planned in one call, as ``wn.pipeline`` and the command line do it: measured first where that is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.pipelines.model.profile import PipelineProfile
    from wastenot.pipelines.model.schedule import PipelineSchedule
    from wastenot.pipelines.model.stages import PartitionKind
    from wastenot.pipelines.model.ways import Settings
    from wastenot.pipelines.plan.planner import PlannedPipeline
    from wastenot.study.store import Source, Study
    from wastenot.sweeping.estimate import Announce, Estimate
    from wastenot.workloads.shape import ShapeOptions
    from wastenot.workloads.stages import Recomputation

PathLike = str | os.PathLike[str]


def pipeline(
    source: PathLike | PipelineProfile | None = None,
    *,
    micro_batches: int | None = None,
    stages: int | None = None,
    schedule: PathLike | PipelineSchedule = "1f1b",
    chunks: int | None = None,
    device: str | Device | None = None,
    study: PathLike | Study | None = None,
    workload: str | None = None,
    partition: Sequence[int] | PartitionKind = "balanced",
    granularity: Settings = "instruction",
    recompute: bool = False,
    data_parallel: int = 1,
    waiting_power_w: float | None = None,
    as_measured: bool = False,
    max_slowdown: float = 0.0,
    confidence: float | None = None,
    straggler: float | None = None,
    straggler_s: float | None = None,
    frontier: int = 0,
    switch_time_s: float | None = None,
    time_limit_s: float | None = None,
    allow_clock_control: bool = False,
    seed: int = 0,
    command: str | None = None,
    announce: Announce | None = None,
    progress: Progress | None = None,
    **shape: Unpack[ShapeOptions],
) -> PlannedPipeline:
    """Plan the clocks of a pipeline: of each instruction of each stage, for each micro-batch.

        >>> import wastenot as wn
        >>> made = wn.pipeline("gpt3-175b", stages=8, micro_batches=48, device="sim:h200")   # doctest: +SKIP
        >>> made.plan.write("pipeline.json")                                                # doctest: +SKIP

    Args:
        source: a model, whose kernels are measured on ``device``; a CSV file ``stage,instruction,frequency,time,energy``, as
            Perseus keeps its profiles; or a profile. ``None`` takes the workload of ``study``.
        micro_batches: of an iteration.
        stages: GPUs, or groups of them, after one another (the pipeline-parallel degree).
        schedule: ``gpipe``, ``1f1b``, ``early-recomputation``, ``interleaved``, ``zb-h1``, or a file that has one.
        chunks: stages of the model on each GPU, for ``interleaved``.
        device: to measure a model on, or its name; of a CSV file, the GPU that it is of, such as ``a100``.
        study: keeps what is measured; or was measured before, where no device is given.
        workload: of the study; may be left out where it holds only one.
        partition: layers of each stage of the model; ``balanced`` makes the slowest as fast as can be; ``least-energy``,
            of those that are as fast, takes the one whose plan needs least.
        granularity: what gets clocks of its own: each ``instruction``; or inside it each ``layer``, each ``kernel``, or
            stretches as long as the device needs to switch (``schedule``).
        recompute: the backward runs the forward again first, instead of keeping activations.
        data_parallel: pipelines beside each other.
        waiting_power_w: that a GPU draws while it waits for another one; needed for CSV files.
        as_measured: take the numbers as they stand, not corrected for noise; promises nothing.
        max_slowdown: allowed, of an iteration at the default clocks.
        confidence: with which it is kept despite noise, where the study has repeats or standard errors; 0.95 unless given.
        straggler: another pipeline is slower than this one by this fraction, and all wait for it.
        straggler_s: the same, as the time of its iteration.
        frontier: number of plans, from the fastest to that of least energy, to keep with the plan: stragglers come and go.
        switch_time_s: that the device takes to switch clocks: settings of the plan last at least as long, with a little time
            in reserve. By default as measured (in the study), else as stated by the device, published or assumed of it;
            0 plans as if switching took no time, which bounds what a plan could save.
        time_limit_s: improve the plan for so long, which makes it depend on how fast the machine is, and is written into it.
            By default the work is fixed, about 10 s for one plan.
        allow_clock_control: allow the clocks of a real GPU to be changed, to measure; they are given back.
        seed: of a simulated device that is given by name.
        command: that does the same, for the study to name to whoever finds it unfinished.
        announce: receives what there is to measure and how long that takes, before it begins.
        progress: informed of every measurement.
        shape: how the model is run: ``batch`` (sequences of a micro-batch), ``sequence``, ``tensor_parallel``, ...

    Raises:
        BadInputError: an argument makes no sense, a file breaks a rule, or the schedule deadlocks.
        InfeasibleError: no plan is that fast; names the fastest.
        ClocksRefusedError: the device's clocks may not be set.
        DeviceError: the device failed.
    """
    from wastenot.pipelines.model.profile import PipelineProfile
    from wastenot.pipelines.model.source import is_profile_file, profile_of_file, schedule_for
    from wastenot.pipelines.plan.planner import check_goal, frontier_rungs, plan_pipeline, with_rungs
    from wastenot.pipelines.plan.switched import with_switching
    from wastenot.planning.switching import switch_time

    if source is None and study is None:
        raise BadInputError("what is the pipeline of? name a model such as gpt3-175b, a CSV file, or a study (`study`)")
    for argument, degree in (("data_parallel", data_parallel), ("tensor_parallel", shape.get("tensor_parallel", 1))):
        if degree < 1:
            raise BadInputError(f"`{argument}` {degree}: must be at least 1")
    check_goal(max_slowdown, confidence, time_limit_s)
    given = None if switch_time_s is None else switch_time("", switch_time_s)
    wanted = partial(schedule_for, schedule, micro_batches=micro_batches, chunks=chunks, ranks=stages)
    if isinstance(source, PipelineProfile):
        profile = source
        order = wanted(stages=profile.stages)
    elif source is not None and is_profile_file(source):
        named = device if isinstance(device, str) and ":" not in device else None
        profile = profile_of_file(source, waiting_power_w, device=named, replicas=data_parallel, shape=shape)
        order = wanted(stages=profile.stages)
    else:
        order = wanted()
        measured = _measured_stages(
            source, order, device, study,
            partition=partition, granularity=granularity, recompute=recompute, max_slowdown=max_slowdown, workload=workload,
            allow_clock_control=allow_clock_control, seed=seed, command=command, announce=announce, progress=progress,
            **shape,
        )  # fmt: skip
        profile = _profile_of_stages(
            measured, order,
            partition=partition, granularity=granularity, recompute=recompute, replicas=data_parallel,
            waiting_w=waiting_power_w, workload=workload, as_measured=as_measured, max_slowdown=max_slowdown,
        )  # fmt: skip
    if confidence is not None and as_measured:
        raise BadInputError("`confidence`: has no effect as measured (`as_measured`); leave out one of them")
    made = plan_pipeline(
        profile, order,
        max_slowdown=max_slowdown, straggler=straggler, straggler_s=straggler_s, confidence=confidence,
        time_limit_s=time_limit_s,
    )  # fmt: skip
    if given is None:
        given = profile.switching or switch_time(profile.device)
    made = with_switching(made, given)
    return with_rungs(made, frontier_rungs(made, frontier, progress)) if frontier else made


def pipeline_estimate(
    source: PathLike,
    device: str | Device,
    *,
    micro_batches: int | None = None,
    stages: int | None = None,
    schedule: PathLike | PipelineSchedule = "1f1b",
    chunks: int | None = None,
    partition: Sequence[int] | PartitionKind = "balanced",
    granularity: Settings = "instruction",
    recompute: bool = False,
    **shape: Unpack[ShapeOptions],
) -> Estimate:
    """What :func:`pipeline` measures of a model into a new study, and how long that takes; nothing is measured or set.

    Args:
        source: a model.
        device: to measure on, or its name.
        micro_batches: of an iteration.
        stages: after one another.
        schedule: its name, or a file that has one.
        chunks: stages of the model on each GPU, for ``interleaved``.
        partition: layers of each stage.
        granularity: what gets clocks of its own.
        recompute: the backward runs the forward again first.
        shape: how the model is run.

    Raises:
        BadInputError: an argument makes no sense.
    """
    from wastenot.devices.open import open_device
    from wastenot.pipelines.model.measured_profile import estimate_pipeline, stage_tasks
    from wastenot.pipelines.model.source import schedule_for

    order = schedule_for(schedule, micro_batches=micro_batches, chunks=chunks, ranks=stages)
    tasks = stage_tasks(os.fspath(source), len(order.ranks), **shape)
    target = open_device(device) if isinstance(device, str) else device
    recomputation = _recomputation(order, recompute)
    return estimate_pipeline(target, tasks, order, partition=partition, settings=granularity, recomputation=recomputation)


def _measured_stages(
    name: PathLike | None,
    order: PipelineSchedule,
    device: str | Device | None,
    study: PathLike | Study | None,
    *,
    partition: Sequence[int] | PartitionKind,
    granularity: Settings,
    recompute: bool,
    max_slowdown: float,
    workload: str | None,
    allow_clock_control: bool,
    seed: int,
    command: str | None,
    announce: Announce | None,
    progress: Progress | None,
    **shape: Unpack[ShapeOptions],
) -> Source:
    """What the kernels of a model's stages cost: measured now, or in a study."""
    from wastenot.devices.open import open_device
    from wastenot.pipelines.model.measured_profile import check_cut, estimate_pipeline, measure_pipeline, stage_tasks
    from wastenot.study.store import open_study

    if name is None:
        assert study is not None
        useless = next(iter(shape), None if device is None else "device")
        if useless is not None:
            raise BadInputError(f"`{useless}`: the study was measured already; leave it out, or name a model to measure")
        return study
    if device is None:
        raise BadInputError(f"`device`: where are the kernels of {os.fspath(name)} to be measured? such as sim:h200")
    if workload is not None:
        raise BadInputError(f"`workload` {workload}: has no effect beside {os.fspath(name)}; leave it out")
    tasks = stage_tasks(os.fspath(name), len(order.ranks), **shape)
    check_cut(tasks, order, partition)  # before a study is made
    target = device
    if isinstance(target, str):
        target = open_device(target, seed=seed, allow_clock_control=allow_clock_control)
    recomputation = _recomputation(order, recompute)
    if announce is not None:
        announce(
            estimate_pipeline(target, tasks, order, partition=partition, settings=granularity, recomputation=recomputation)
        )
    kept = open_study(study, create=True) if isinstance(study, str | os.PathLike) else study
    return measure_pipeline(
        target, tasks, order, kept,
        partition=partition, settings=granularity, recomputation=recomputation,
        max_slowdown=max_slowdown, progress=progress, command=command,
    )  # fmt: skip


def _recomputation(order: PipelineSchedule, recompute: bool) -> Recomputation:
    """What recomputes activations: an instruction of the schedule, the backward, or nothing."""
    if any(each.name == "recomputation" for each in order.instructions):
        return "early"
    return "full" if recompute else "none"


def _profile_of_stages(
    measured: Source,
    order: PipelineSchedule,
    *,
    partition: Sequence[int] | PartitionKind,
    granularity: Settings,
    recompute: bool,
    replicas: int,
    waiting_w: float | None,
    workload: str | None,
    as_measured: bool,
    max_slowdown: float,
) -> PipelineProfile:
    """The profile of the stages that a schedule runs, with the instructions that it has."""
    from wastenot.pipelines.model.stages import profile_of_workload

    names = {each.name for each in order.instructions}
    return profile_of_workload(
        measured,
        stages=order.stages,
        partition=partition,
        settings=granularity,
        recomputation=_recomputation(order, recompute),
        split_backward="backward_input" in names,
        replicas=replicas,
        waiting_w=waiting_w,
        workload=workload,
        as_measured=as_measured,
        schedule=order,
        max_slowdown=max_slowdown,
    )
