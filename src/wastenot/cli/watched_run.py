"""A program that runs while a session drives the clocks: its live line, its metrics, and what is written of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.core.errors import WastenotError
from wastenot.programs.child_program import Child, exit_code, running_program
from wastenot.terminal import quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import OtlpOption, PageOption

if TYPE_CHECKING:
    from wastenot.cli.bottom_lines import BottomLines
    from wastenot.control.session import Session
    from wastenot.control.status import Status, Summary
    from wastenot.devices.protocol import Device

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_INTERVAL_S = 1.0  # between live lines in a terminal
_PLAIN_INTERVAL_S = 60.0  # and elsewhere


AllOption = Annotated[bool, option("All GPUs, or those of CUDA_VISIBLE_DEVICES.", flag="--all")]
RestoreClocksOption = Annotated[
    str | None,
    option(
        "Core (and memory) clocks that GPUs are locked to afterwards, instead of the driver's defaults.", "MIN-MAX[,MIN-MAX]"
    ),
]
PatienceOption = Annotated[
    float | None,
    option(
        "Time to wait for the first iteration; then progress is followed by memory traffic, where the GPU reports it. "
        "120 s by default.",
        "S",
        parser=quantities.seconds,
    ),
]
RealTimeOption = Annotated[bool, option("Let a simulated job take as long as a real one would.")]


@dataclass(frozen=True, slots=True)
class ShownOptions:
    """What is shown of a run, and its page."""

    page: PageOption = None
    metrics_port: Annotated[int | None, option("Serve metrics to Prometheus on this port; 0 takes a free one.", "PORT")] = (
        None
    )
    otlp: OtlpOption = None
    interval: Annotated[
        float | None,
        option("Time between lines shown; by default 1 s in a terminal, 60 s elsewhere.", "S", parser=quantities.seconds),
    ] = None
    quiet: Annotated[bool, option("Show nothing while the program runs.")] = False


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


def run_command(
    session: Session, command: list[str], shown: ShownOptions, as_json: bool, *, pipeline: bool = False
) -> tuple[Summary, int]:
    """Run a program while a session drives the clocks; what became of it, and its exit code."""
    from wastenot.programs.environment import socket_of, why_cut_short

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
    cut_short = why_cut_short(session)
    if pipeline and session.problem is None and not session.ranks:
        say_wastenot(
            "no instructions were seen: the program does not use torch.distributed.pipelining, or its Python ignores "
            "PYTHONPATH; mark them with applied.instruction() in the program (docs/pipelines-recipes.md)"
        )
    elif cut_short is not None:
        say_wastenot(cut_short)
    elif summary.status.rehearsal is not None and session.ranks > len(session.gpus):
        gpu = session.gpus[0].identity.name
        say_wastenot(
            f"{session.ranks} processes train, and clocks were requested for {len(session.gpus)} of them: name a simulated "
            f"GPU for each, as --device {gpu},{gpu}"
        )
    return summary, code


def serve_metrics_of(stack: ExitStack, shown: ShownOptions, session: Session) -> None:
    """Serve or send metrics of a session, where they are wanted."""
    if shown.metrics_port is not None:
        from wastenot.control.metrics import LOCALHOST, serve_metrics

        port = stack.enter_context(serve_metrics(shown.metrics_port, session.status))
        say_wastenot(f"metrics: http://{LOCALHOST}:{port}/metrics")
    if shown.otlp is not None:
        from wastenot.control.metrics import metrics_registry
        from wastenot.control.open_telemetry import sent_metrics

        stack.enter_context(sent_metrics(shown.otlp, metrics_registry(session.status), say_wastenot))


def _watch(child: Child, session: Session, shown: ShownOptions) -> None:
    """Show what is saved until the program ends."""
    with Live(shown) as live:
        while True:
            try:
                child.wait(live.interval_s)
                return
            except subprocess.TimeoutExpired:
                live.show(session.status())


@contextmanager
def simulated_session(gpus: Sequence[Device], status: Status, shown: ShownOptions) -> Iterator[Callable[[Status], bool]]:
    """A session of a simulated job; gives what shows where it stands, and says whether it is to stop."""
    from wastenot.control.simulated_session import SimulatedSession

    with ExitStack() as stack:
        session = stack.enter_context(SimulatedSession(gpus, status))
        serve_metrics_of(stack, shown, session.session)
        live = stack.enter_context(Live(shown))

        def watch(latest: Status) -> bool:
            live.show(latest)
            return session.watch(latest)

        yield watch


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
        for event in status.events[self._told :]:
            if event.kind not in ("started", "ended"):
                say_wastenot(f"{event.kind}: {event.text}")
        self._told = len(status.events)
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._each_s
        from wastenot.control.page.line import live_text

        text = live_text(status)
        if self._bottom is None:
            say_wastenot(text)
        else:
            self._bottom.show([f"\x1b[1m wastenot \x1b[0m {text}"[: self._bottom.width + 8]])


def write_outcome(summary: Summary, out: Path | None, shown: ShownOptions) -> None:
    """Write the summary and the page of a run, where they are wanted."""
    from wastenot.terminal.output import typed_command

    try:
        if out is not None:
            summary.write(out)
            say_wastenot(f"{out}: summary written")
        if shown.page is not None:
            summary.page(shown.page, command=typed_command())
            say_wastenot(f"{shown.page}: page written")
    except WastenotError as error:  # the job's exit code stays
        say_wastenot(f"error: {error}")


def say_outcome(status: Status) -> None:
    """Say what a run has come to, or what a rehearsal showed."""
    from wastenot.control.page.line import live_text
    from wastenot.control.rehearsed import rehearsal_lines

    if status.rehearsal is None or status.pipeline is not None:
        say_wastenot(live_text(status))
    for line in rehearsal_lines(status):
        say_wastenot(line)


def say_wastenot(message: str) -> None:
    """Say something between the lines of the program that runs."""
    from wastenot.terminal.output import say

    say(f"wastenot: {message}")
