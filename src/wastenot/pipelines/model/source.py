"""What a pipeline is planned from as people give it: files of profiles, names of schedules, numbers of stages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.wording import counted
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.schedule_file import read_schedule
from wastenot.pipelines.model.schedules import SCHEDULES, build_schedule
from wastenot.study.plausible import MOST_W
from wastenot.workloads.named import unknown_workload

_CHUNKS = 2  # of an interleaved schedule, unless said otherwise


def is_profile_file(source: object) -> bool:
    """Whether a source is a file with times and energies of instructions."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).lower().endswith(".csv")


def check_there(source: object) -> None:
    """Refuse the name of a file that is not there, before more is asked about it.

    Raises:
        BadInputError: it is not there.
    """
    if isinstance(source, str | os.PathLike) and os.fspath(source).endswith((".json", ".db")) and not os.path.exists(source):
        raise unknown_workload(os.fspath(source))


def profile_of_file(
    path: PathLike,
    waiting_power_w: float | None,
    *,
    device: str | None = None,
    replicas: int = 1,
    shape: Mapping[str, object],
) -> PipelineProfile:
    """The profile in a CSV file.

    Args:
        path: of the file.
        waiting_power_w: that a GPU draws while it waits, which the file does not say.
        device: the GPU, where it is known.
        replicas: pipelines beside each other.
        shape: of it only the tensor-parallel degree says something that is not in the file: how many GPUs share a stage.

    Raises:
        BadInputError: the file breaks a rule, the power is missing, or the shape has more.
    """
    profile = read_perseus_csv(path, waiting_w=waiting_power_w or 0.0, device=device or "unknown GPU")
    if waiting_power_w is None:
        raise BadInputError(
            f"`waiting_power_w`: {path} does not say what a GPU draws while it waits for another; about 70 W on "
            "an A100, 120 W on an H200"
        )
    if waiting_power_w > MOST_W:
        raise BadInputError(
            f"`waiting_power_w` {waiting_power_w:,g} W: no GPU draws that; give the power of a waiting GPU in watts"
        )
    more = sorted(set(shape) - {"tensor_parallel"})
    if more:
        raise BadInputError(f"`{more[0]}`: has no effect on {path}, whose times are given; leave it out")
    gpus = shape.get("tensor_parallel", 1)
    assert isinstance(gpus, int)
    return replace(profile, gpus_per_stage=gpus, replicas=replicas)


def schedule_for(
    schedule: PathLike | PipelineSchedule,
    *,
    micro_batches: int | None,
    chunks: int | None = None,
    ranks: int | None = None,
    stages: int | None = None,
) -> PipelineSchedule:
    """The schedule that is meant.

    Args:
        schedule: its name, a file that has one, or itself.
        micro_batches: of an iteration; a schedule in a file has its own.
        chunks: stages of the model on each rank, where the schedule is interleaved.
        ranks: of the pipeline; may be left out where the schedule or ``stages`` says it.
        stages: of the model, where its profile says it.

    Raises:
        BadInputError: something is missing, unknown or contradicts another, or the schedule deadlocks.
    """
    found = _written(schedule)
    if found is not None:
        for name, stated, own in (
            ("stages", ranks, len(found.ranks)),
            ("micro_batches", micro_batches, found.micro_batches),
        ):
            if stated not in (None, own):
                raise BadInputError(f"`{name}` {stated}: schedule {found.name} has {own}; leave it out")
        if chunks is not None:
            raise BadInputError(f"`chunks` {chunks}: schedule {found.name} sets it; leave it out")
        return found
    if micro_batches is None:
        raise BadInputError("`micro_batches`: how many micro-batches does an iteration have? such as 48")
    name = os.fspath(schedule) if not isinstance(schedule, PipelineSchedule) else schedule.name
    each = (_CHUNKS if chunks is None else chunks) if name == "interleaved" else 1
    if stages is not None:
        if each < 1 or stages % each:
            raise BadInputError(
                f"`chunks` {each}: the profile has {counted(stages, 'stage')}, which is not a multiple of it"
            )
        if ranks is not None and ranks * each != stages:
            ask = "leave it out" if each == 1 else f"with {each} on each rank these are {stages // each} ranks"
            raise BadInputError(f"`stages` {ranks}: the profile has {counted(stages, 'stage')}; {ask}")
        ranks = stages // each
    if ranks is None:
        raise BadInputError("`stages`: how many pipeline stages (GPUs, or groups of them) are there? such as 8")
    if ranks < 1:
        raise BadInputError(f"`stages` {ranks}: must be at least 1")
    try:
        return build_schedule(name, ranks=ranks, micro_batches=micro_batches, chunks=chunks)
    except BadInputError as error:
        raise BadInputError(error.text(lambda argument: f"`{'stages' if argument == 'ranks' else argument}`")) from error


def _written(schedule: PathLike | PipelineSchedule) -> PipelineSchedule | None:
    """A schedule that is given or stands in a file; ``None`` for a name."""
    if isinstance(schedule, PipelineSchedule):
        return schedule
    path = Path(schedule)
    if os.fspath(schedule) in SCHEDULES or not (path.suffix or len(path.parts) > 1 or path.is_file()):
        return None
    return read_schedule(path)
