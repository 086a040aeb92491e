"""Verbs that measure kernels into a study: sweep, and refine, which measures a plan's finalists again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.pages.formatting import change
from wastenot.sweeping.defaults import CORE_STEP_MHZ, WARM_UP_S, WINDOW_S
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    BudgetOption,
    ClockControlOptions,
    DeviceOption,
    DryRunOption,
    EnergiesOption,
    GranularityOption,
    JsonOption,
    MaxSlowdownOption,
    MeasuredGranularityOption,
    PowerLimitsOption,
    ProfilesOption,
    SeedOption,
    ShapeOptions,
    StudyOption,
    WorkloadOption,
)
from wastenot.workloads.identity import WorkloadKey

if TYPE_CHECKING:
    from wastenot.sweeping.measure import SweepOutcome

_LARGE_DRIFT = 0.03  # change of a baseline from which on a sweep is worth repeating
Search = Literal["grid", "model"]
Clocks = Literal["grid", "auto", "natural"]
CoreStepOption = Annotated[
    float | None,
    option(
        f"Step between core clocks, from the highest down; {CORE_STEP_MHZ:g} by default, 1 for every clock.",
        "MHZ",
        parser=quantities.megahertz,
    ),
]


def sweep(
    workload: Annotated[
        str,
        argument(
            "A model such as gpt3-xl, or a study whose kernels to measure.", "WORKLOAD", autocompletion=completing.workloads
        ),
    ],
    device: DeviceOption,
    study: Annotated[
        str | None, option("The study: an SQLite file or a database URL. Optional only with --dry-run.", "FILE|URL")
    ] = None,
    clocks: Annotated[
        Clocks,
        option(
            "grid: auto and a grid of settings; auto: the default clocks only; natural: the clocks that the GPU "
            "passes through by itself. The last two set no clocks."
        ),
    ] = "grid",
    rounds: Annotated[int, option("Number of times --clocks auto measures every kernel.", "N")] = 1,
    core_step: CoreStepOption = None,
    core: Annotated[
        quantities.Floats | None, option("Core clocks, instead of --core-step.", "MHZ,...", parser=quantities.clocks)
    ] = None,
    memory: Annotated[
        quantities.Floats | None, option("Memory clocks; all by default.", "MHZ,...", parser=quantities.clocks)
    ] = None,
    power_limit: PowerLimitsOption = None,
    profile: ProfilesOption = None,
    search: Annotated[Search, option("grid: every point; model: only points that can still change the plan.")] = "grid",
    share: Annotated[
        float,
        option(
            "Fraction of the grid that --search model may measure, such as 10%. 30% finds nearly all of the saving.",
            "X",
            parser=quantities.share,
        ),
    ] = 0.3,
    max_slowdown: Annotated[
        float,
        option("Slowdown limit of the plans that --search model looks for, such as 2%.", "X", parser=quantities.slowdown),
    ] = 0.0,
    budget: BudgetOption = None,
    seconds_each: Annotated[
        float | None,
        option("Device time per kernel with --clocks natural, in seconds; default: 18.", "S", parser=quantities.seconds),
    ] = None,
    warm_up: Annotated[float, option("Warm-up before each point, in seconds.", "S", parser=quantities.duration)] = WARM_UP_S,
    window: Annotated[float, option("Longest measurement, in seconds.", "S", parser=quantities.budget)] = WINDOW_S,
    relative_error: Annotated[
        float, option("Stop measuring a point early at this standard error, such as 0.5%.", "X", parser=quantities.relative)
    ] = 0.0,
    in_context: Annotated[bool, option("Measure each kernel after the one that precedes it, as well as alone.")] = False,
    at: Annotated[
        Literal["ssp", "sse"],
        option("ssp: back to back, at steady power; sse: the first execution at full speed, from a power profile."),
    ] = "ssp",
    granularity: GranularityOption = "kernel",
    *,
    shape_options: ShapeOptions,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure every kernel of a workload at many settings.

    Results go into a study; the default clocks (auto) are always included. First prints how long it will take. Resumes
    an interrupted sweep.
    """
    from wastenot.kernels.verbs import sweep as measure
    from wastenot.meters.tasks import find_tasks
    from wastenot.sweeping.announce import announce, show_dry_run
    from wastenot.sweeping.grid import AtAuto, AtNatural, Grid, Search as SearchOf
    from wastenot.sweeping.point import PointOptions
    from wastenot.terminal.output import print_json, say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress
    from wastenot.workloads.captured_on import capture_note

    if study is None and not dry_run:
        raise BadInputError("--study is missing: name a file to keep the measurements in, such as --study my.db")
    if in_context and at == "sse":
        raise BadInputError("--in-context, --at sse: use only one of them; kernels in context are measured at steady power")
    grid = Grid(core_step, core, memory, power_limit, profile or ())
    chosen: Grid | SearchOf | AtAuto | AtNatural = grid
    if search == "model":
        chosen = SearchOf(share, max_slowdown, grid)
    elif clocks == "auto":
        chosen = AtAuto(rounds)
    elif clocks == "natural":
        chosen = AtNatural() if seconds_each is None else AtNatural(seconds_each)
    tasks = find_tasks(workload, device, shape_options.shape(), granularity, "context" if in_context else at)
    target = clock_control.open_device(device, seed=seed, workload=tasks.key)
    captured = capture_note(tasks.captured_on)
    if captured is not None:
        say(f"{workload}: {captured}")
    with (
        _named_or_absent(study) as kept_in,
        kept_if_interrupted(resume_with(command := typed_command(kept_in), kept_in)),
        shown_progress(f"sweep of {tasks.key}") as progress,
    ):
        outcome = measure(
            tasks, target, kept_in, clocks=chosen, options=PointOptions(warm_up, window, relative_error),
            budget_s=budget, command=command, announce=announce, dry_run=dry_run,
            progress=progress,
        )  # fmt: skip
    if outcome.estimate is not None:
        show_dry_run(outcome.estimate, as_json=as_json, study=study)
    elif as_json:
        values = outcome_values(outcome)
        print_json("sweep", {"study": str(study), "workload": tasks.name, "state": tasks.state,
                    "granularity": tasks.granularity, "device": target.identity.label,
                    "origin": target.identity.origin} | values)  # fmt: skip
    else:
        for line in outcome_lines(outcome, tasks.key, kept_in):
            say(line)


@contextmanager
def _named_or_absent(study: str | None) -> Iterator[str]:
    """The study, or inside the context one that is not there, for a dry run that was given none."""
    if study is not None:
        yield study
        return
    with TemporaryDirectory() as folder:
        yield str(Path(folder) / "study.db")


def outcome_values(outcome: SweepOutcome) -> dict[str, Any]:
    """The outcome of a sweep that was made, as JSON values."""
    from wastenot.core.values import as_values

    values: dict[str, Any] = as_values(outcome)
    del values["estimate"]
    return values


def outcome_lines(outcome: SweepOutcome, workload: WorkloadKey, study: str) -> list[str]:
    """The outcome of a sweep, as lines of text."""
    lines = [
        f"{study}: workload '{workload}': {counted(outcome.measured, 'point')} measured, {outcome.found:,} measured before"
    ]
    lines += [f"{counted(count, 'point')} could not be measured: {reason}" for reason, count in outcome.skipped.items()]
    if outcome.drifted:
        lines.append(_drift_line(outcome))
    if outcome.out_of_time:
        lines.append("the budget is used up; run the same command again to resume")
    lines += outcome.notes
    return lines


def _drift_line(outcome: SweepOutcome) -> str:
    """How many baselines changed on the way, and by how much, in one line."""
    parts = []
    for what in ("time", "energy"):
        changes = {drift.kernel: drift.change for drift in outcome.drifted if drift.what == what}
        if changes:
            least, most = min(changes.values()), max(changes.values())
            by = change(least, 1) if len(changes) == 1 else f"{change(least, 1)} to {change(most, 1)}"
            parts.append(f"{what} of {counted(len(changes), 'kernel')} by {by}")
    large = max(abs(drift.change) for drift in outcome.drifted) > _LARGE_DRIFT
    then = "repeat the sweep when the GPU is quiet" if large else "the errors include it; plans correct for temperature"
    return f"the device drifted: at auto, {' and '.join(parts)} since the first round; {then}"


def refine(
    study: StudyOption,
    device: DeviceOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    granularity: MeasuredGranularityOption = None,
    into: Annotated[
        str | None, option("Study of another card of the same model, to measure that card instead.", "FILE|URL")
    ] = None,
    max_slowdown: MaxSlowdownOption = 0.0,
    finalists: Annotated[int, option("Settings to measure for each kernel.", "N")] = 3,
    around: Annotated[
        float,
        option(
            "Also measure core clocks this close to the best, and to the schedule's for every kernel; 0 for none.",
            "MHZ",
            parser=quantities.megahertz,
        ),
    ] = 0.0,
    repeats: Annotated[int, option("Measurements of each.", "N")] = 3,
    budget: BudgetOption = None,
    *,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure the best settings of every kernel again.

    With --around, also clocks near them, and every kernel at and near those of the plan's schedule. The measurements are
    added to the study; wastenot kernel plan --study FILE --out PLAN.json makes a new plan.
    """
    from wastenot.kernels.run.refine import Finalists
    from wastenot.kernels.verbs import refine as measure_again
    from wastenot.study.store import open_study
    from wastenot.sweeping.announce import announce
    from wastenot.terminal.output import print_json, say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, shown_progress

    source = open_study(study)
    key = source.read(workload, energies, granularity).key
    target = clock_control.open_device(device, seed=seed, workload=key)
    kept = f"{into or study}: measurements are kept, as repeats; the same command measures all of them once more"
    with kept_if_interrupted(kept), shown_progress(f"refining {key}") as progress:
        refined = measure_again(
            source, target, workload=key, into=into, max_slowdown=max_slowdown,
            finalists=Finalists(finalists, around, repeats), budget_s=budget,
            command=typed_command(into or study), announce=announce, progress=progress,
        )  # fmt: skip
    outcome, before, after = refined.outcome, refined.before, refined.after
    if as_json:
        print_json(
            "refine",
            outcome_values(outcome) | {"before": before.document()["headline"], "after": after.document()["headline"]},
        )
        return
    for line in outcome_lines(outcome, key, str(into or study)):
        say(line)
    changed = sum(a.setting != b.setting for a, b in zip(before.assignments, after.assignments, strict=True))
    say(
        f"energy {before.headline.energy_change:+.2%} before, {after.headline.energy_change:+.2%} now; "
        f"{changed} of {len(before.assignments)} kernels have new clocks; as clocks can switch today "
        f"{before.today.energy_change:+.2%} before, {after.today.energy_change:+.2%} now"
    )
    which = "" if workload is None else f" --workload {workload}"
    which += "" if key.granularity == "kernel" else f" --granularity {key.granularity}"
    limit = f" --max-slowdown {max_slowdown:.6g}" if max_slowdown else ""
    say(f"to keep the new plan: wastenot kernel plan --study {into or study}{which}{limit} --out plan.json")
