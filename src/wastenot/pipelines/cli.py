"""``wastenot pipeline plan``: clocks for each instruction of a pipeline-parallel training."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from wastenot.core.errors import BadInputError
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    AsMeasuredOption,
    ClockControlOptions,
    ConfidenceOption,
    DryRunOption,
    JsonOption,
    MaxSlowdownOption,
    PageOptions,
    SeedOption,
    WorkloadOption,
)
from wastenot.workloads.models import MODELS

if TYPE_CHECKING:
    from wastenot.pipelines.model.stages import StageOptions
    from wastenot.pipelines.model.ways import Settings
    from wastenot.workloads.shape import ShapeOptions as Shape


_SHORTER = "--study FILE keeps what was measured, to resume later"
_SHOWN = 20  # plans of the frontier on a page


def _partition(text: str) -> str | quantities.Counts:
    """A kind of partition by its name, or the layers of each stage."""
    return text if text[:1].isalpha() else quantities.counts(text)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is cut into a pipeline, where it is not the default of its family."""

    partition: Annotated[
        Any,
        option(
            "Layers of each stage; or balanced: the slowest stage is as fast as possible; or least-energy.",
            "N,N,...|KIND",
            parser=_partition,
        ),
    ] = "balanced"
    tensor_parallel: Annotated[
        int | None, option("GPUs that share a stage; default: the fewest that can hold the model.", "N")
    ] = None
    data_parallel: Annotated[int, option("Number of pipeline replicas.", "N")] = 1
    micro_batch: Annotated[int | None, option("Sequences per micro-batch; default: 1.", "N")] = None
    sequence: Annotated[int | None, option("Tokens per sequence; default: those that the model was trained with.", "N")] = (
        None
    )
    recompute: Annotated[bool, option("Recompute activations in the backward pass instead of keeping them.")] = False
    overlap: Annotated[
        float,
        option(
            "Where a forward and a backward run at once (dualpipe) and that was not measured: of the shorter one, the "
            "fraction that takes no time.",
            "X",
        ),
    ] = 0.5

    def cut(self, granularity: Settings, waiting_power_w: float | None, as_measured: bool) -> StageOptions:
        """How the model becomes stages."""
        from wastenot.pipelines.model.stages import StageOptions

        return StageOptions(
            self.partition,
            granularity,
            "full" if self.recompute else "none",
            replicas=self.data_parallel,
            waiting_w=waiting_power_w,
            as_measured=as_measured,
            overlap=self.overlap,
        )

    def shape(self) -> Shape:
        """What was given of the model's shape."""
        given: dict[str, Any] = {
            "tensor_parallel": self.tensor_parallel, "batch": self.micro_batch, "sequence": self.sequence,
        }  # fmt: skip
        return cast("Shape", {name: value for name, value in given.items() if value is not None})


def _pipelines(incomplete: str) -> list[str]:
    """Models, and files here that may hold a pipeline's profile."""
    return [*completing.one_of(*MODELS)(incomplete), *completing.files_here(incomplete, (".csv",))]


def _schedules(incomplete: str) -> list[str]:
    """Schedules of a pipeline, and files here that may hold one."""
    from wastenot.pipelines.model.schedules import SCHEDULES

    return [*completing.one_of(*SCHEDULES)(incomplete), *completing.files_here(incomplete, (".json", ".txt", ".csv"))]


def pipeline(
    source: Annotated[
        str | None,
        argument(
            "A model such as gpt3-175b, or times and energies in columns stage,instruction,frequency,time,energy.",
            "[MODEL|PROFILE.csv]",
            autocompletion=_pipelines,
        ),
    ] = None,
    stages: Annotated[int | None, option("Pipeline stages: GPUs, or groups of them.", "N")] = None,
    micro_batches: Annotated[int | None, option("Micro-batches per iteration.", "N")] = None,
    schedule: Annotated[
        str,
        option(
            "gpipe, 1f1b, early-recomputation, interleaved, zb-h1, dualpipe, or a file with the order of instructions "
            "on each rank.",
            "NAME|FILE",
            autocompletion=_schedules,
        ),
    ] = "1f1b",
    chunks: Annotated[int | None, option("Model stages on each GPU, for the interleaved schedule; default: 2.", "N")] = None,
    device: Annotated[
        str | None,
        option(
            "Where to measure a model's kernels: sim:NAME, sim:FILE.toml or nvidia:INDEX; for a CSV file, the GPU "
            "it was measured on, such as a100.",
            "D",
            autocompletion=completing.devices,
        ),
    ] = None,
    study: Annotated[
        str | None, option("Study to keep measurements in; without MODEL, plan from what it holds.", "FILE|URL")
    ] = None,
    workload: WorkloadOption = None,
    granularity: Annotated[
        Literal["instruction", "layer", "kernel", "schedule"],
        option(
            "What gets its own clocks: each instruction; or within it each layer, each kernel, or stretches "
            "as long as the device needs to switch."
        ),
    ] = "instruction",
    max_slowdown: MaxSlowdownOption = 0.0,
    confidence: ConfidenceOption = None,
    as_measured: AsMeasuredOption = False,
    straggler: Annotated[
        str | None, option("Another pipeline is slower, and all wait for it: 1.2 (times as long), 20% or 3.4s.", "X|TIME")
    ] = None,
    frontier: Annotated[
        int | None, option("List N plans from the fastest to the lowest-energy one, with bounds.", "N")
    ] = None,
    switch_time: Annotated[
        str | None,
        option(
            "How long the device takes to switch clocks, such as 30ms: settings last at least as long; 0: as "
            "if switching were instant. Default (auto): as measured by 'wastenot device latency', else stated or assumed.",
            "TIME|auto",
        ),
    ] = None,
    waiting_power: Annotated[
        float | None,
        option(
            "Power that a GPU draws while it waits for another; default: the value known for the device.",
            "W",
            parser=quantities.watts,
        ),
    ] = None,
    *,
    model: ModelOptions,
    out: Annotated[Path | None, option("Write the plan for the ranks to this file.", "PLAN.json")] = None,
    csv: Annotated[Path | None, option("Write the plans of --frontier as a table.", "FILE")] = None,
    shown: PageOptions,
    clock_control: ClockControlOptions,
    time_limit: Annotated[
        float | None,
        option(
            "Improve the plan for this long, such as 30s; the result then depends on the speed of this machine. By "
            "default the amount of work is fixed, about 10 s per plan.",
            "TIME",
            parser=quantities.budget,
        ),
    ] = None,
    seed: SeedOption = 0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the clocks of pipeline-parallel training.

    Most stages of a pipeline wait for others. Instructions off the critical path run at lower clocks, as low as costs no
    time. The plan has the lowest energy within the slowdown limit, for each instruction of each micro-batch, with a
    lower bound.
    """
    from wastenot.core.files import write_text
    from wastenot.pipelines.plan.frontier_table import frontier_csv
    from wastenot.pipelines.plan.planner import MOST_PLANS, PipelineGoal
    from wastenot.pipelines.text import pipeline_text
    from wastenot.pipelines.verbs import pipeline as plan_pipeline, pipeline_estimate
    from wastenot.sweeping.announce import announce, show_dry_run
    from wastenot.terminal.output import console, print_json, say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress

    later, later_s = parse_straggler(straggler)
    goal = PipelineGoal(max_slowdown, confidence, later, later_s, time_limit)
    if frontier is not None and frontier < 2:
        raise BadInputError(f"--frontier {frontier}: must be at least 2")
    if frontier is not None and frontier > MOST_PLANS:
        raise BadInputError(f"--frontier {frontier}: must be at most {MOST_PLANS:,}")
    given: dict[str, Any] = {
        "stages": stages, "micro_batches": micro_batches, "schedule": schedule, "chunks": chunks,
        "cut": model.cut(granularity, waiting_power, as_measured), **model.shape(),
    }  # fmt: skip
    of_a_file = source is not None and source.lower().endswith(".csv")
    target: Any = device
    if source is not None and device is not None and not of_a_file:
        target = clock_control.open_device(device, seed=seed, workload=None)
    if dry_run and (source is None or device is None):
        raise BadInputError(
            "--dry-run: shows what would be measured of a model on a device; give both: gpt3-175b --device sim:h200"
        )
    if dry_run or target is not device:
        estimate = pipeline_estimate(str(source), target, **given)
        if dry_run:
            show_dry_run(estimate, as_json=as_json, shorter=_SHORTER)
            return
        if not estimate.virtual:  # a simulated GPU takes seconds
            announce(estimate, shorter=_SHORTER)
    command = typed_command(study)
    unkept = "nothing was kept" if of_a_file else "nothing was kept; --study FILE keeps what is measured"
    kept = unkept if study is None else resume_with(command, study)
    with kept_if_interrupted(kept), shown_progress(f"pipeline of {source or study}") as progress:
        made = plan_pipeline(
            source, goal, device=target, study=study, workload=workload, switch_time_s=parse_switch_time(switch_time),
            frontier=frontier or (_SHOWN if shown.page or shown.figures else 0), command=command, progress=progress, **given,
        )  # fmt: skip
    if out is not None:
        made.write(out)
        say(f"{out}: plan written")
    if csv is not None:
        write_text(csv, frontier_csv(made.plan))
        say(f"{csv}: frontier written")
    shown.write(made.drawn, command)
    if as_json:
        print_json("pipeline", made.plan.document())
    else:
        console().print(pipeline_text(made.plan, out, frontier=frontier is not None))


def parse_switch_time(text: str | None) -> float | None:
    """How long switching takes, in s; ``None`` for what is known of the device.

    Raises:
        BadInputError: it is no time.
    """
    if text is None or text.strip() == "auto":
        return None
    try:
        return quantities.seconds(text)
    except typer.BadParameter as error:
        raise BadInputError(f"--switch-time: {error.message}") from error


def parse_straggler(text: str | None) -> tuple[float | None, float | None]:
    """How much slower another pipeline is, as a fraction, or the time of its iteration in s; ``None`` for the other.

    Raises:
        BadInputError: it is neither.
    """
    if text is None:
        return None, None
    plain = text.strip()
    with suppress(typer.BadParameter):
        if plain.endswith("%"):
            return quantities.slowdown(plain), None
        try:
            times = float(plain.removesuffix("x"))
        except ValueError:
            return None, quantities.seconds(plain)
        if 1.0 <= times < float("inf"):
            return times - 1.0, None
    raise BadInputError(
        f"--straggler {text}: write 1.2 (times as long as this pipeline), 20% (longer), or a time such as 3.4s"
    )
