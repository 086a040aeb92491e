"""``wastenot apply``: a job at a plan's clocks, with the slowdown guarded and the saving proved while it runs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.cli.child_program import Child, exit_code, running_program
from wastenot.terminal import completing, quantities
from wastenot.terminal.options import JsonOption

if TYPE_CHECKING:
    from wastenot.cli.bottom_lines import BottomLines
    from wastenot.control.application import Application
    from wastenot.control.controller import Controller
    from wastenot.control.session import Session
    from wastenot.control.status import Status, Summary

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_INTERVAL_S = 1.0  # between live lines in a terminal
_PLAIN_INTERVAL_S = 60.0  # and elsewhere
_SIMULATED_S = 300.0  # that a simulated job lasts, where its iterations are not said
_FEWEST, _MOST = 200, 20_000  # iterations of it
_MOST_ASKED = 1_000_000


@dataclass(frozen=True, slots=True)
class ShownOptions:
    """What is shown and written of a run."""

    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write a summary of the run to this file, as JSON.")
    ] = None
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page of the run to this file.")
    ] = None
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="PORT", help="Serve metrics to Prometheus on this port; 0 takes a free one."),
    ] = None
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            metavar="S",
            parser=quantities.seconds,
            help="Time between lines shown; by default 1 s in a terminal, 60 s elsewhere.",
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing while the program runs.")] = False


def apply(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN.json]", help="The plan to put to work.")] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="The program and its arguments, after --.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="D,...",
            autocompletion=completing.devices,
            help="GPUs of the job, such as nvidia:0,1; or sim:NAME for a simulated job. Default: the plan's card.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All NVIDIA GPUs, or those of CUDA_VISIBLE_DEVICES.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be set; run the command, if any, and change no clocks.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show the plans that are at work, and do nothing else.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the plans that are at work; the programs run on at the default clocks.")
    ] = False,
    restore_clocks: Annotated[
        str | None,
        typer.Option(
            "--restore-clocks",
            metavar="MIN-MAX[,MIN-MAX]",
            help="Core (and memory) clocks that GPUs are locked to afterwards, instead of the driver's defaults.",
        ),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            "--patience",
            metavar="S",
            parser=quantities.seconds,
            help="Time to wait for the first iteration; then a plan of one setting is kept without any. Default: 120 s.",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", metavar="N", help="Iterations of a simulated job; by default five minutes of them."),
    ] = None,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Let a simulated job take as long as a real one would.")
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the order of comparisons, and of a simulated job.")
    ] = 0,
    *,
    shown: ShownOptions,
    as_json: JsonOption = False,
) -> None:
    """Run a program at a plan's clocks, and prove what is saved.

    Training with PyTorch is followed iteration by iteration, in as many processes as there are GPUs (torchrun). Now and then
    a few iterations run at the default clocks, in random order: that is what savings and slowdown are measured against, with
    95 % intervals, while the program runs. Where the slowdown allowed is exceeded, faster clocks are set, at last the
    default ones. The GPU is left as it was, however the program ends; its exit code is this command's.
    """
    if status or stop:
        _others(stop=stop, as_json=as_json)
        return
    if plan is None:
        raise typer.BadParameter("which plan? wastenot apply plan.json -- python train.py")
    from wastenot.control.application import parse_devices, prepare
    from wastenot.control.session import PATIENCE_S
    from wastenot.meters.devices import visible_names
    from wastenot.pipelines.run.plan_kind import is_pipeline_plan
    from wastenot.terminal.options import parse_restore

    if command and not dry_run:
        find_program(command[0])
    _check_iterations(iterations)
    names = visible_names() if every else None if device is None else parse_devices(device)
    if is_pipeline_plan(plan):
        from wastenot.cli.apply_pipeline import apply_pipeline

        ran = apply_pipeline(
            plan, command, names, dry_run=dry_run, seed=seed, patience_s=patience, shown=shown, as_json=as_json
        )
        if ran is not None:
            _tell_outcome(ran[0], shown, as_json)
            raise typer.Exit(ran[1])
        return
    application = prepare(plan, names, dry_run=dry_run, restore=parse_restore(restore_clocks), seed=seed)
    simulated = all(gpu.identity.name.startswith("sim:") for gpu in application.gpus)
    _check(simulated, command, dry_run)
    for note in application.notes:
        say_wastenot(note)
    if dry_run and not as_json:
        _print_what_would_be_set(application)
    if simulated:
        summary = _run_simulated(application, _iterations(application, iterations), seed, dry_run, real_time, shown, as_json)
        code = 0
    elif command:
        session = application.session(dry_run=dry_run, seed=seed, patience_s=PATIENCE_S if patience is None else patience)
        summary, code = run_command(session, command, shown, as_json)
    else:
        if as_json:
            from wastenot.terminal.output import print_json

            print_json("apply", application.controller(dry_run=True).end().model_dump(mode="json", by_alias=True))
        return
    _tell_outcome(summary, shown, as_json)
    raise typer.Exit(code)


# ---- before -----------------------------------------------------------------------------------------------------


def find_program(program: str) -> None:
    """End as a shell does where there is no such command, before anything is touched."""
    if shutil.which(program) is not None:
        return
    there = os.path.exists(program) if os.sep in program else False
    _cannot_run(program, "it is not executable" if there else "there is no such command", found=there)


def _cannot_run(program: str, why: str, *, found: bool) -> None:
    from wastenot.terminal.output import say

    say(f"error: {program}: cannot run this command: {why}; no clock was set")
    raise typer.Exit(NOT_EXECUTABLE if found else NOT_FOUND)


def _check(simulated: bool, command: Sequence[str] | None, dry_run: bool) -> None:
    from wastenot.core.errors import BadInputError

    if simulated and command:
        raise BadInputError(
            "`device`: a simulated GPU runs the plan's own workload, and no program: leave out -- COMMAND (and say how many "
            "--iterations)"
        )
    if not simulated and not command and not dry_run:
        raise BadInputError("what is to run? wastenot apply plan.json -- python train.py (or --dry-run to see what is set)")


def _check_iterations(asked: int | None) -> None:
    from wastenot.core.errors import BadInputError

    if asked is not None and not 1 <= asked <= _MOST_ASKED:
        raise BadInputError(f"`iterations` {asked}: must be from 1 to {_MOST_ASKED:,}")


def _print_what_would_be_set(application: Application) -> None:
    from wastenot.control.application import would_be_set

    for line in would_be_set(application):
        typer.echo(line)


# ---- running ----------------------------------------------------------------------------------------------------


def run_command(
    session: Session, command: list[str], shown: ShownOptions, as_json: bool, *, pipeline: bool = False
) -> tuple[Summary, int]:
    """Run a program while a session drives the clocks; what became of it, and its exit code."""
    from wastenot.programs.environment import socket_of

    with ExitStack() as stack:
        stack.enter_context(session)
        serve_metrics_of(stack, shown, session)
        try:
            child = stack.enter_context(
                running_program(command, to_stderr=as_json, environment=socket_of(session, pipeline=pipeline))
            )
        except OSError as error:
            session.end("failed")
            missing = isinstance(error, FileNotFoundError)
            _cannot_run(command[0], error.strerror or str(error), found=not missing)
        _watch(child, session, shown)
        code = exit_code(child)
        summary = session.end("job ended", code)
    if session.problem is not None:
        say_wastenot(f"the plan ended early, and the program ran on at the default clocks: {session.problem}")
    elif not session.ranks and pipeline:
        say_wastenot(
            "no instructions were seen: the program does not use torch.distributed.pipelining, or its Python ignores "
            "PYTHONPATH; mark them with applied.instruction() in the program (docs/pipelines-recipes.md)"
        )
    elif not session.ranks:
        say_wastenot(
            "no iterations were seen: the program does not train with PyTorch, or its Python ignores PYTHONPATH; mark them "
            "with wastenot.apply in the program"
        )
    return summary, code


def _iterations(application: Application, asked: int | None) -> int:
    """Of a simulated job."""
    enough = round(_SIMULATED_S / application.schedule.rungs[-1].time_s)
    return min(max(enough, _FEWEST), _MOST) if asked is None else asked


def serve_metrics_of(stack: ExitStack, shown: ShownOptions, session: Session) -> None:
    """Serve metrics of a session, where they are wanted."""
    if shown.metrics_port is not None:
        from wastenot.control.metrics import LOCALHOST, serve_metrics

        port = stack.enter_context(serve_metrics(shown.metrics_port, session.status))
        say_wastenot(f"metrics: http://{LOCALHOST}:{port}/metrics")


def _watch(child: Child, session: Session, shown: ShownOptions) -> None:
    """Show what is saved until the program ends."""
    with Live(shown) as live:
        while True:
            try:
                child.wait(live.interval_s)
                return
            except subprocess.TimeoutExpired:
                live.show(session.status())


class Live:
    """The live line: at the bottom of a terminal, now and then elsewhere; events once."""

    def __init__(self, shown: ShownOptions) -> None:
        from wastenot.cli.bottom_lines import BottomLines

        self._quiet = shown.quiet
        self._bottom: BottomLines | None = None
        if not shown.quiet and sys.stderr.isatty():
            self._bottom = BottomLines(sys.stderr, 1)
        plain = _PLAIN_INTERVAL_S if self._bottom is None else _INTERVAL_S
        self._each_s = shown.interval or plain
        self.interval_s = min(self._each_s, _INTERVAL_S)
        self._due_s = time.monotonic() + self._each_s
        self._told = 0

    def __enter__(self) -> Live:
        if self._bottom is not None:
            self._bottom.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bottom is not None:
            self._bottom.__exit__()

    def show(self, status: Status) -> None:
        """Show where it stands, if it is time to."""
        if self._quiet:
            return
        for event in new_events(status, self._told):
            self._told = event.number
            if event.worth_telling:
                say_wastenot(event.text)
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._each_s
        from wastenot.control.page.line import live_text

        text = live_text(status)
        if self._bottom is None:
            say_wastenot(text)
        else:
            self._bottom.show([f"\x1b[1m wastenot \x1b[0m {text}"[: self._bottom.width + 8]])


@dataclass(frozen=True, slots=True)
class _Told:
    number: int
    text: str
    worth_telling: bool


def new_events(status: Status, told: int) -> Iterator[_Told]:
    """Events that came after so many."""
    for number, event in enumerate(status.events[told:], start=told + 1):
        yield _Told(number, f"{event.kind}: {event.text}", event.kind not in ("started", "ended"))


def _run_simulated(
    application: Application,
    iterations: int,
    seed: int,
    dry_run: bool,
    real_time: bool,
    shown: ShownOptions,
    as_json: bool,
) -> Summary:
    from wastenot.control.simulated_job import run_simulated
    from wastenot.control.simulated_session import SimulatedSession
    from wastenot.devices.simulated.device import SimulatedDevice

    with ExitStack() as stack:
        session = stack.enter_context(SimulatedSession(application.gpus, application.controller(dry_run=True).status()))
        serve_metrics_of(stack, shown, session.session)
        live = stack.enter_context(Live(shown))

        def watch(controller: Controller) -> bool:
            latest = controller.status()
            live.show(latest)
            return session.watch(latest)

        gpus = [gpu for gpu in application.gpus if isinstance(gpu, SimulatedDevice)]
        return run_simulated(
            application.plan, gpus, iterations, seed=seed, path=application.path, dry_run=dry_run,
            real_time=real_time, watch=watch,
        )  # fmt: skip


# ---- afterwards -------------------------------------------------------------------------------------------------


def _tell_outcome(summary: Summary, shown: ShownOptions, as_json: bool) -> None:
    """The final line, the summary and the page."""
    from wastenot.control.page.line import live_text
    from wastenot.terminal.output import print_json

    if as_json:
        print_json("apply", summary.model_dump(mode="json", by_alias=True))
    else:
        say_wastenot(live_text(summary.status))
    write_outcome(summary, shown)


def write_outcome(summary: Summary, shown: ShownOptions) -> None:
    """Write the summary and the page of a run, where they are wanted."""
    from wastenot.core.errors import WastenotError
    from wastenot.core.files import write_text
    from wastenot.terminal.output import json_text

    document = summary.model_dump(mode="json", by_alias=True)
    try:
        if shown.out is not None:
            write_text(shown.out, json_text(document) + "\n")
            say_wastenot(f"{shown.out}: summary written")
        if shown.report is not None:
            from wastenot.control.page.page import write_applied_page

            write_applied_page(summary, shown.report, command=shlex.join(["wastenot", *sys.argv[1:]]))
            say_wastenot(f"{shown.report}: page written")
    except WastenotError as error:  # the job's exit code stays
        say_wastenot(f"error: {error}")


def say_wastenot(message: str) -> None:
    """Say something between the lines of the program that runs."""
    from wastenot.terminal.output import say

    say(f"wastenot: {message}")


# ---- those of others --------------------------------------------------------------------------------------------


def _others(*, stop: bool, as_json: bool) -> None:
    """Show or end the sessions of this user."""
    from wastenot.control.page.line import live_text
    from wastenot.control.places import socket_paths
    from wastenot.control.session import ask
    from wastenot.control.status import Status
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
        say_wastenot("no plan is at work")
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
