"""``wastenot sweep``: measure every kernel of a workload at many settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wastenot.cli.device_options import AllowOption, DeviceOption, RestoreOption, open_target
from wastenot.cli.options import (
    AttentionOption,
    BatchOption,
    DtypeOption,
    GranularityOption,
    JsonOption,
    OptimizerOption,
    PhaseOption,
    SeedOption,
    SequenceOption,
    SequenceParallelOption,
    StudyOption,
    TensorParallelOption,
    chosen_shape,
)

if TYPE_CHECKING:
    from wastenot.setting import Setting
    from wastenot.sweeping.sweep import SweepOutcome
    from wastenot.workloads.identity import WorkloadKey

Search = Literal["grid", "model"]
Clocks = Literal["grid", "auto"]

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def sweep(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="A model such as gpt3-xl, or a study whose kernels are meant.")
    ],
    device: DeviceOption,
    study: StudyOption,
    clocks: Annotated[
        Clocks,
        typer.Option("--clocks", help="grid: auto and settings; auto: the driver's own alone, nothing is set."),
    ] = "grid",
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="How often --clocks auto measures everything.")] = 1,
    core_step: Annotated[
        float | None, typer.Option("--core-step", metavar="MHZ", help="Between core clocks, from the highest down.")
    ] = None,
    core: Annotated[str | None, typer.Option("--core", metavar="MHZ,...", help="Core clocks, instead of a step.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="MHZ,...", help="Memory clocks; all by default.")] = None,
    search: Annotated[
        Search, typer.Option("--search", help="grid: every point; model: few, where they can still change the plan.")
    ] = "grid",
    share: Annotated[
        float, typer.Option("--share", metavar="X", help="Of the grid that --search model may measure; 0.1 is 10 %.")
    ] = 0.3,
    max_slowdown: Annotated[
        float, typer.Option("--max-slowdown", metavar="X", help="Slowdown that --search model looks for plans within.")
    ] = 0.0,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Device time to spend, such as 90s, 45m or 2h.")
    ] = None,
    warm_up: Annotated[float, typer.Option("--warm-up", metavar="S", help="Before each point, in seconds.")] = 5.0,
    window: Annotated[float, typer.Option("--window", metavar="S", help="Longest measurement, in seconds.")] = 5.0,
    relative_error: Annotated[
        float, typer.Option("--relative-error", metavar="X", help="Stop a point early at this error; 0.005 is 0.5 %.")
    ] = 0.0,
    in_context: Annotated[
        bool, typer.Option("--in-context", help="Measure each kernel after the one that runs before it, and alone.")
    ] = False,
    at: Annotated[
        Literal["ssp", "sse"],
        typer.Option(
            "--at", help="ssp: back to back, in steady power; sse: the first execution at full speed, by a profile."
        ),
    ] = "ssp",
    granularity: GranularityOption = "kernel",
    phase: PhaseOption = "training",
    batch: BatchOption = None,
    sequence: SequenceOption = 1024,
    tensor_parallel: TensorParallelOption = 1,
    sequence_parallel: SequenceParallelOption = False,
    dtype: DtypeOption = "bf16",
    attention: AttentionOption = "unfused",
    optimizer: OptimizerOption = "none",
    allow_clock_control: AllowOption = False,
    restore_clocks: RestoreOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure every kernel of a workload at auto and at many settings, into a study. Goes on where it was broken off."""
    from wastenot.cli.output import as_values, print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.errors import BadInputError
    from wastenot.study.store import open_study
    from wastenot.sweeping.grid import Grid, check_measures, settable
    from wastenot.sweeping.point import PointOptions
    from wastenot.sweeping.states import check_state
    from wastenot.sweeping.sweep import BASELINE_ROUNDS, measure_sweep
    from wastenot.tasks import find_tasks

    shape = chosen_shape(phase, batch, sequence, tensor_parallel, sequence_parallel, dtype, attention, optimizer)
    if in_context and at == "sse":
        raise BadInputError("--in-context, --at sse: take one of them; in context is in steady power")
    units = find_tasks(workload, device, shape, granularity, "context" if in_context else at)
    if search == "model" and (in_context or at == "sse"):
        raise BadInputError("--search model: looks for plans of kernels alone in steady power; measure the grid")
    target = open_target(device, seed=seed, workload=units.key, allow=allow_clock_control, restore=restore_clocks)
    check_measures(target)
    check_state(target, units)
    if clocks == "auto":
        settings: tuple[Setting, ...] = ()
    else:
        grid = Grid(core_step, parse_clocks("--core", core), parse_clocks("--memory", memory))
        settings = settable(target, grid.settings(target.clocks.supported_clocks()))
    options = PointOptions(checked_seconds("--warm-up", warm_up), checked_seconds("--window", window), relative_error)
    budget_s = None if budget is None else parse_time(budget)
    kept = open_study(study, create=True)
    with shown_progress(f"sweep of {units.key}") as progress:
        if search == "model":
            from wastenot.tuning.search import search_sweep

            outcome = search_sweep(target, units, kept, settings, share=share, max_slowdown=max_slowdown, options=options,
                                   progress=progress, budget_s=budget_s)  # fmt: skip
        else:
            outcome = measure_sweep(
                target, units, kept, settings, options=options, progress=progress, budget_s=budget_s,
                rounds=rounds if clocks == "auto" else BASELINE_ROUNDS,
            )  # fmt: skip
    if as_json:
        print_json({"study": str(study), "workload": units.name, "state": units.state,
                    "granularity": units.granularity, "device": target.identity.label,
                    "origin": target.identity.origin} | as_values(outcome))  # fmt: skip
    else:
        for line in described_outcome(outcome, units.key, str(study)):
            say(line)


def described_outcome(outcome: SweepOutcome, workload: WorkloadKey, study: str) -> list[str]:
    """What became of a sweep, for a person."""
    lines = [f"{study}: workload '{workload}': {outcome.measured:,} points measured, {outcome.found:,} were there before"]
    lines += [f"{count:,} points could not be measured: {reason}" for reason, count in outcome.skipped.items()]
    if outcome.drifted:
        names = list(dict.fromkeys(outcome.drifted))
        lines.append(f"the device drifted: at auto {len(names)} kernels changed on the way, first '{names[0]}'")
    if outcome.out_of_time:
        lines.append("the time allowed is over; go on with the same command")
    return lines


def parse_clocks(flag: str, text: str | None) -> tuple[float, ...] | None:
    """Clocks in MHz from a list such as ``5001,9501``.

    Raises:
        BadInputError: one of them is not a positive number.
    """
    from wastenot.errors import BadInputError

    if text is None:
        return None
    try:
        clocks = tuple(float(part) for part in text.split(","))
    except ValueError:
        clocks = (0.0,)
    if not all(0.0 < clock < float("inf") for clock in clocks):
        raise BadInputError(f"{flag} {text}: write clocks in MHz with commas between them, such as 5001,9501")
    return clocks


def parse_time(text: str) -> float:
    """Seconds from a time such as ``90s``, ``45m`` or ``2h``.

    Raises:
        BadInputError: it is not a time.
    """
    from wastenot.errors import BadInputError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if not match or float(match[1]) <= 0:
        raise BadInputError(f"--budget {text}: write a time such as 90s, 45m or 2h")
    return float(match[1]) * _UNITS_S[match[2] or "s"]


def checked_seconds(flag: str, seconds: float) -> float:
    """Seconds, if they can pass.

    Raises:
        BadInputError: they are negative, not a number, or nothing for a window.
    """
    from wastenot.errors import BadInputError

    if not 0.0 <= seconds < float("inf") or (flag == "--window" and seconds == 0.0):
        raise BadInputError(f"{flag} {seconds}: must be a number of seconds, such as 5")
    return seconds
