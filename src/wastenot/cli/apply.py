"""``wastenot apply``: a job at a plan's clocks, with the slowdown guarded and the saving proved while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from wastenot.terminal import completing
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption

if TYPE_CHECKING:
    from wastenot.control.application import Application
    from wastenot.control.session import Session
    from wastenot.control.status import Status, Summary
    from wastenot.pipelines.run.application import PipelineApplication

_SIMULATED_S = 300.0  # that a simulated job lasts, where its iterations are not said
_FEWEST, _MOST = 200, 20_000  # iterations of it
_MOST_ASKED = 1_000_000
_MARKS = "; docs/pipelines-recipes.md says what the program must tell"


def apply(
    plan: Annotated[Path | None, argument("The plan to apply.", "[PLAN.json]")] = None,
    command: Annotated[list[str] | None, argument("The program and its arguments, after --.", "[-- COMMAND]")] = None,
    device: Annotated[
        str | None,
        option(
            "GPUs of the job, such as nvidia:0,1; or sim:NAME to simulate it or rehearse COMMAND. Default: the plan's.",
            "D,...",
            autocompletion=completing.devices,
        ),
    ] = None,
    every: AllOption = False,
    dry_run: Annotated[bool, option("Print what would be set; run the command, if any, and change no clocks.")] = False,
    status: Annotated[bool, option("Show the plans being applied, and do nothing else.")] = False,
    stop: Annotated[bool, option("Stop applying plans; the programs keep running at the default clocks.")] = False,
    restore_clocks: RestoreClocksOption = None,
    patience: PatienceOption = None,
    iterations: Annotated[int | None, option("Iterations of a simulated job; default: five minutes' worth.", "N")] = None,
    real_time: RealTimeOption = False,
    seed: Annotated[int, option("Seed of the order of comparisons, and of a simulated job.", "N")] = 0,
    out: Annotated[Path | None, option("Write a summary of the run to this file, as JSON.", "FILE")] = None,
    *,
    shown: ShownOptions,
    as_json: JsonOption = False,
) -> None:
    """Run a program at a plan's clocks, and prove what is saved.

    Training with PyTorch is followed iteration by iteration, in as many processes as there are GPUs (torchrun). Now and then
    a few iterations run at the default clocks, in random order: that is what savings and slowdown are measured against, with
    95 % intervals, while the program runs. If the slowdown exceeds the limit, faster clocks are set, and finally the default
    ones. The GPU is left as it was, however the program ends; this command exits with the program's exit code.

    With --device sim:NAME the program is rehearsed: it runs here, and clocks are requested of a simulated GPU. Without a
    program, the plan's own workload is simulated.
    """
    if status or stop:
        _others(stop=stop, as_json=as_json)
        return
    if plan is None:
        raise typer.BadParameter("which plan? wastenot apply plan.json -- python train.py")
    from wastenot.control.application import parse_devices, prepare, would_be_set
    from wastenot.control.session import PATIENCE_S
    from wastenot.meters.devices import visible_names
    from wastenot.pipelines.run.plan_kind import is_pipeline_plan
    from wastenot.terminal.options import parse_restore

    if command and not dry_run:
        find_program(command[0])
    _check_iterations(iterations)
    names = visible_names() if every else None if device is None else parse_devices(device)
    prepared: Application | PipelineApplication
    session: Callable[..., Session]
    simulated: Application | None = None
    pipeline, restore = is_pipeline_plan(plan), parse_restore(restore_clocks)
    if pipeline:
        from wastenot.pipelines.run.application import prepare_pipeline, would_be_set_in_pipeline

        _check_command(command, dry_run, "pipeline.json -- torchrun train.py", _MARKS)
        prepared = ranks = prepare_pipeline(plan, names, dry_run=dry_run, restore=restore, seed=seed)
        would, session = would_be_set_in_pipeline(ranks), ranks.session
    else:
        prepared = job = prepare(plan, names, dry_run=dry_run, restore=restore, seed=seed, program=bool(command))
        simulated = _simulated_job(job, command, dry_run)
        would, session = would_be_set(job), partial(job.session, seed=seed)
    for note in prepared.notes:
        say_wastenot(note)
    if dry_run and not as_json:
        for line in would:
            typer.echo(line)
    if simulated is not None:
        summary = _run_simulated(simulated, _iterations(simulated, iterations), seed, dry_run, real_time, shown)
        code = 0
    elif command:
        begun = session(dry_run=dry_run, patience_s=PATIENCE_S if patience is None else patience)
        summary, code = run_command(begun, command, shown, as_json, pipeline=pipeline)
    else:
        if as_json:
            _print_summary(prepared.controller(dry_run=True).end())
        return
    _tell_outcome(summary, out, shown, as_json)
    raise typer.Exit(code)


# ---- before -----------------------------------------------------------------------------------------------------


def _simulated_job(job: Application, command: Sequence[str] | None, dry_run: bool) -> Application | None:
    """The plan's own workload on simulated GPUs, where no program is named; ``None`` where one runs."""
    if not command and all(gpu.identity.name.startswith("sim:") for gpu in job.gpus):
        return job
    _check_command(command, dry_run, "plan.json -- python train.py")
    return None


def _check_command(command: Sequence[str] | None, dry_run: bool, such_as: str, more: str = "") -> None:
    if not command and not dry_run:
        raise BadInputError(f"what is to run? wastenot apply {such_as} (or --dry-run to see what is set){more}")


def _check_iterations(asked: int | None) -> None:
    if asked is not None and not 1 <= asked <= _MOST_ASKED:
        raise BadInputError(f"`iterations` {asked}: must be from 1 to {_MOST_ASKED:,}")


# ---- running ----------------------------------------------------------------------------------------------------


def _iterations(application: Application, asked: int | None) -> int:
    """Of a simulated job."""
    enough = round(_SIMULATED_S / application.schedule.rungs[-1].time_s)
    return min(max(enough, _FEWEST), _MOST) if asked is None else asked


def _run_simulated(
    application: Application, iterations: int, seed: int, dry_run: bool, real_time: bool, shown: ShownOptions
) -> Summary:
    from wastenot.control.simulated_job import run_simulated
    from wastenot.core.errors import CannotRunError
    from wastenot.devices.simulated.device import SimulatedDevice

    with simulated_session(application.gpus, application.controller(dry_run=True).status(), shown) as watch:
        gpus = [gpu for gpu in application.gpus if isinstance(gpu, SimulatedDevice)]
        try:
            return run_simulated(
                application.plan, gpus, iterations, seed=seed, path=application.path, dry_run=dry_run,
                real_time=real_time, watch=lambda controller: watch(controller.status()),
            )  # fmt: skip
        except CannotRunError as error:
            if not dry_run:
                raise
            raise CannotRunError(f"what is set stands above; the job is not simulated: {error}") from error


# ---- afterwards -------------------------------------------------------------------------------------------------


def _tell_outcome(summary: Summary, out: Path | None, shown: ShownOptions, as_json: bool) -> None:
    """The final line, the summary and the page."""
    if as_json:
        _print_summary(summary)
    else:
        say_outcome(summary.status)
    write_outcome(summary, out, shown)


def _print_summary(summary: Summary) -> None:
    from wastenot.terminal.output import print_json

    print_json("apply", summary.document())


# ---- those of others --------------------------------------------------------------------------------------------


def _others(*, stop: bool, as_json: bool) -> None:
    """Show or end the sessions of this user."""
    from wastenot.control.page.line import live_text
    from wastenot.control.places import socket_paths
    from wastenot.control.status import Status
    from wastenot.control.wire import ask
    from wastenot.terminal.output import print_json

    found: list[dict[str, Any]] = []
    for path in socket_paths():
        try:
            answer = ask(path, "status")
            if answer is not None and stop:
                ask(path, "stop")
        except (OSError, ValueError) as error:
            say_wastenot(f"{path}: does not answer: {error}")
            continue
        if answer is not None and "status" in answer:
            found.append(answer["status"])
    if as_json:
        print_json("apply", {"schema": "wastenot.apply-statuses/1", "stopped": stop, "sessions": found})
        return
    if not found:
        say_wastenot("no plan is being applied")
    for one in found:
        state = Status.model_validate(one)
        gpus = ", ".join(gpu.device for gpu in state.gpus)
        typer.echo(f"{'stopped  ' if stop else ''}{state.plan} on {gpus}, process {state.process}: {live_text(state)}")
        if not stop:
            for line in _gpu_lines(state):
                typer.echo(f"  {line}")


def _gpu_lines(status: Status) -> Iterator[str]:
    for gpu in status.gpus:
        target = "auto" if gpu.target_core_mhz is None else f"{gpu.target_core_mhz:.0f} MHz"
        known = [
            f"core asked for {target}" + ("" if gpu.core_mhz is None else f", at {gpu.core_mhz:.0f} MHz"),
            "" if gpu.power_w is None else f"{gpu.power_w:.0f} W",
            "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        ]
        yield f"{gpu.device} ({gpu.model}): " + ", ".join(part for part in known if part)
    at = "" if status.iteration is None else f"iteration {status.iteration:,}, {status.marker}; "
    yield f"{at}rung {status.rung} of {status.rungs - 1}{', comparing at the default clocks' if status.at_default else ''}"
