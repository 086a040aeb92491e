"""``wastenot tune``: find a setting for a program while it runs, without a sweep, and hold it with proof."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wastenot.cli.watched_run import (
    AllOption,
    PatienceOption,
    RealTimeOption,
    RestoreClocksOption,
    ShownOptions,
    find_program,
    run_command,
    say_outcome,
    say_wastenot,
    simulated_session,
    write_outcome,
)
from wastenot.core.errors import BadInputError
from wastenot.core.vendors import with_drivers
from wastenot.programs.tune import AFTER
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    JsonOption,
    MaxSlowdownOption,
    ProfilesOption,
    ShapeOptions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from wastenot.control.candidates import Ladder
    from wastenot.control.tuner import Tuner
    from wastenot.devices.protocol import Device
    from wastenot.programs.tune import TunedJob, Watch

_DEVICE = f"{with_drivers()[0].name}:0"


def tune(
    command: Annotated[list[str] | None, argument("The program and its arguments, after --.", "[-- COMMAND]")] = None,
    device: Annotated[
        str | None,
        option(
            f"GPUs of the job, such as nvidia:0,1; {_DEVICE} by default; or sim:NAME to simulate it or rehearse COMMAND.",
            "D,...",
            autocompletion=completing.devices,
        ),
    ] = None,
    every: AllOption = False,
    workload: Annotated[
        str | None,
        option(
            "What a simulated job runs: a model such as gpt3-xl, or a captured workload.",
            "WORKLOAD",
            autocompletion=completing.workloads,
        ),
    ] = None,
    max_slowdown: MaxSlowdownOption = 0.0,
    knobs: Annotated[
        Literal["both", "clocks", "limits"], option("What to try: core clocks, power limits, or both.", flag="--settings")
    ] = "both",
    core: Annotated[
        quantities.Floats | None,
        option("Core clocks to choose from, instead of steps of 1 %.", "MHZ,...", parser=quantities.clocks),
    ] = None,
    power_limit: Annotated[
        quantities.Floats | None, option("Power limits to choose from, likewise.", "W,...", parser=quantities.power_limits)
    ] = None,
    profile: ProfilesOption = None,
    tolerance: Annotated[
        float,
        option(
            "Find the best setting to within this fraction of the energy, such as 0.5%.", "X", parser=quantities.relative
        ),
    ] = 0.005,
    budget: Annotated[
        float,
        option(
            "Time after which the best so far is held; default: 1h.", "TIME", parser=quantities.budget, show_default=False
        ),
    ] = 3600.0,
    out: Annotated[Path | None, option("Write what was found, for wastenot apply.", "PLAN.json")] = None,
    summary: Annotated[Path | None, option("Write a summary of the run to this file, as JSON.", "FILE")] = None,
    *,
    shown: ShownOptions,
    dry_run: Annotated[bool, option("Print what would be tried; run the command, if any, and change no clocks.")] = False,
    restore_clocks: RestoreClocksOption = None,
    patience: PatienceOption = None,
    iterations: Annotated[
        int | None, option(f"Iterations of a simulated job; {AFTER} after the search by default.", "N")
    ] = None,
    real_time: RealTimeOption = False,
    seed: Annotated[int, option("Seed of the order of trials, and of a simulated job.", "N")] = 0,
    shape_options: ShapeOptions,
    as_json: JsonOption = False,
) -> None:
    """Find and hold the best setting for a program while it runs.

    A few core clocks and power limits are tried on the program itself, in random order between iterations at the default
    clocks. Settings that are slower than allowed are abandoned after a few iterations; the search ends once the best is
    known. It is then held as wastenot apply holds a plan: the slowdown limit is guarded, and the saving proved. No sweep
    is needed. The GPU is left as it was, however the program ends; this command exits with the program's exit code.

    With --device sim:NAME the program is rehearsed: it runs here, settings are requested of a simulated GPU, and none is
    found, as nothing is measured. With --workload instead of a program, a job is simulated and tuned.
    """
    from wastenot.control.application import parse_devices
    from wastenot.meters.devices import visible_names
    from wastenot.programs.tune import TuneOptions, job_of, tunable_gpus, tune_simulated, tuning_session
    from wastenot.terminal.options import parse_restore

    if command and not dry_run:
        find_program(command[0])
    names = visible_names() if every else parse_devices(device or _DEVICE)
    on_simulated = all(name.startswith("sim:") for name in names)
    simulated = on_simulated and not command
    _check(command, workload, simulated=on_simulated, dry_run=dry_run)
    restore = parse_restore(restore_clocks)
    gpus = tunable_gpus(names, seed=seed, may_set=not dry_run, restore=restore, program=bool(command))
    options = TuneOptions(knobs, core, power_limit, profile or (), tolerance, budget)
    if dry_run and not (command and as_json):
        _show_ladders(gpus, options.ladders(gpus), as_json=as_json)
    if dry_run and not command:
        return
    make = partial(
        options.tuner, gpus, max_slowdown=max_slowdown, seed=seed, dry_run=dry_run, rehearsal=on_simulated and bool(command)
    )
    if simulated:
        found = tune_simulated(
            make, str(workload), names[0], shape_options.shape(), watching=partial(_watched, gpus, shown=shown),
            iterations=iterations, seed=seed, real_time=real_time,
        )  # fmt: skip
    else:
        tuner = make(shlex.join(command or ()))
        session = tuning_session(tuner, dry_run=dry_run, patience_s=patience)
        summary_, code = run_command(session, command or [], shown, as_json)
        found = job_of(tuner, summary_, exit_code=code, problem=session.problem)
    _tell(found, out, as_json=as_json)
    write_outcome(found.summary, summary, shown)
    if out is not None and found.plan is not None:
        target = f" --device {names[0]}" if simulated else f" -- {shlex.join(command or ())}"
        say_wastenot(f"{out}: plan written; next time: wastenot apply {out}{target}")
    raise typer.Exit(found.exit_code)


def _check(command: Sequence[str] | None, workload: str | None, *, simulated: bool, dry_run: bool) -> None:
    """Refuse what leaves nothing to run."""
    if simulated and not command and workload is None:
        raise BadInputError(
            "what is to run? On a simulated GPU either a workload (wastenot tune --device sim:h200 --workload gpt3-xl), or "
            "your own program, as a rehearsal (wastenot tune --device sim:h200 -- python train.py)"
        )
    if not simulated and workload is not None:
        raise BadInputError(
            "`workload`: only a simulated GPU runs a workload by itself; on a real one give a program, after --"
        )
    if not simulated and not command and not dry_run:
        raise BadInputError("what is to run? wastenot tune -- python train.py (or --dry-run to see what would be tried)")


def _watched(gpus: Sequence[Device], tuner: Tuner, shown: ShownOptions) -> AbstractContextManager[Watch]:
    return simulated_session(gpus, tuner.status(), shown)


def _tell(found: TunedJob, out: Path | None, *, as_json: bool) -> None:
    """Write the plan where it is wanted, and say what was found."""
    if out is not None and found.plan is None:
        say_wastenot(f"{out}: not written: {found.why_no_plan}")
    elif out is not None:
        found.write(out)
    if as_json:
        from wastenot.terminal.output import print_json

        document = None if found.plan is None else found.plan.document()
        print_json("tune", {"run": found.summary.document(), "plan": document})
    else:
        say_outcome(found.summary.status)


def _show_ladders(gpus: Sequence[Device], ladders: Sequence[Ladder], *, as_json: bool) -> None:
    names = [gpu.identity.name for gpu in gpus]
    values: dict[str, Any] = {}
    for ladder in ladders:
        of_knob = [each.core_mhz or each.power_limit_w or each.profile for each in ladder.settings]
        values.setdefault(ladder.knob, []).extend(of_knob)
    if as_json:
        from wastenot.terminal.output import print_json

        print_json("tune", {"schema": "wastenot.tune-settings/1", "devices": names, "settings": values})
        return
    typer.echo(f"{', '.join(names)}: to choose from, of which a few would be tried; nothing is set (--dry-run)")
    for ladder in ladders:
        first, last = ladder.settings[0], ladder.settings[-1]
        typer.echo(f"  {first}" if first == last else f"  {len(ladder.settings)} from {first} to {last}")
    for gpu in gpus:
        refusal = gpu.clocks.refusal()
        if refusal is not None:
            typer.echo(f"  {gpu.identity.name}: this would be refused: {refusal}")
