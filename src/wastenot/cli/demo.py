"""``wastenot demo``: the whole loop from a sweep to a job under a plan on a simulated GPU, for a first look."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.terminal.option import option

if TYPE_CHECKING:
    from wastenot.core.progress import Progress

_WORKLOAD, _DEVICE = "gpt3-xl", "sim:rtx-3080-ti"
_REPEATS = 10


def demo(
    out: Annotated[Path, option("Folder to write to.", "DIR")] = Path("wastenot-demo"),
    no_open: Annotated[bool, option("Do not open the page in a browser.")] = False,
) -> None:
    """Show what wastenot does on a simulated GPU; opens a page.

    Sweeps GPT-3 XL training, plans its clocks, checks the plan, and runs a job under it; writes a page of the plan and one
    of the job. Every number is simulated.
    """
    from wastenot.cli.demo_job import PAGE_OF_THE_JOB, apply_in_demo
    from wastenot.core.errors import MissingExtraError
    from wastenot.devices.open import open_device
    from wastenot.kernels.cli.whole_loop import create_folder, ending
    from wastenot.kernels.page.page import report
    from wastenot.kernels.page.provenance import Files
    from wastenot.kernels.run.interleaved import validate
    from wastenot.kernels.verbs import sweep
    from wastenot.meters.tasks import find_tasks
    from wastenot.pages.optional_imports import check_report
    from wastenot.pages.price import DEFAULT_PRICE
    from wastenot.planning.objective import Objective
    from wastenot.planning.planner import Planner, plan as make_plan
    from wastenot.study.store import open_study
    from wastenot.terminal.output import say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, shown_progress

    study_file = out / "study.db"
    command = typed_command(str(study_file))
    kept = f"{study_file}: the sweep so far is kept; resume: {command}"
    with kept_if_interrupted(kept):
        page = create_folder(out) / "report.html"
        try:
            check_report()
            with_page = True
        except MissingExtraError as error:
            say(f"no page: {error}")
            with_page = False
        tasks, target = find_tasks(_WORKLOAD, _DEVICE), open_device(_DEVICE)
        study = open_study(study_file, create=True)
        _tell("Training GPT-3 XL on a simulated RTX 3080 Ti: no GPU is used, and every number is simulated.")
        _tell(f"Sweep     time and energy of {len(tasks.tasks)} kernels at 50 pairs of core and memory clocks")
        with shown_progress("sweep") as progress:
            sweep(tasks, target, study, command=command, progress=_WithoutRemarks(progress))
        _tell("Plan      clocks for each kernel with the lowest energy and no slowdown")
        planner = Planner(study.read(tasks.name))
        plan = make_plan(planner, Objective("waste", 0.0))
        _tell(f"Validate  the plan measured {_REPEATS} times, interleaved with the default clocks")
        with shown_progress("validation") as progress:
            plan = validate(plan, study, target, repeats=_REPEATS, progress=progress)
        plan.write(out / "plan.json")
        _tell("Apply     the plan to a training job, as far as clocks can switch today, and compare with the default clocks")
        applied, verdict = apply_in_demo(plan, _DEVICE, out, with_page=with_page)
        if with_page:
            report(
                study, page, plan=out / "plan.json", planner=planner, price=DEFAULT_PRICE, command=command,
                notes=[f"The demo ran this job, too: it {applied}; see {PAGE_OF_THE_JOB}, beside this page."],
            )  # fmt: skip
    now, whole = ending(plan, Files(str(study_file), out / "plan.json"))
    for line in ("", *now, f"Applied   {applied}", f"          {verdict}", *whole):
        _tell(line)
    if with_page:
        _show_pages(page, out / PAGE_OF_THE_JOB, no_open=no_open)
    _say_next(out)


def _show_pages(plan: Path, job: Path, *, no_open: bool) -> None:
    opened = not no_open and _open(plan)
    _tell(f"Page      {plan.resolve().as_uri()}{' (opened in your browser)' if opened else ''}")
    _tell(f"          {job.resolve().as_uri()}: the job")


def _tell(line: str) -> None:
    """Print a line; in a terminal what does not fit stands below the text after its first word."""
    from wastenot.terminal.output import wrapped

    typer.echo(wrapped(line, sys.stdout, hanging=10 if line[8:10] == "  " else 0))


class _WithoutRemarks:
    """Progress that leaves out what is said on the way, such as how noisy a kernel is: not for a first look."""

    def __init__(self, shown: Progress) -> None:
        self.begin, self.step = shown.begin, shown.step

    def say(self, message: str) -> None:
        """Say nothing."""


def _say_next(out: Path) -> None:
    """What this machine is good for, and the next command; where it has no GPU, another question to the demo's study."""
    from wastenot.cli.first_step import DEMO, first_step
    from wastenot.devices.common.machine import look

    step = first_step(look())
    command = step.command if step.command != DEMO else f"wastenot kernel plan --study {out / 'study.db'} --max-slowdown 2%"
    _tell("")
    _tell(step.verdict)
    typer.echo(f"Next: {command}")


def _open(page: Path) -> bool:
    """Open a page in the browser, where somebody sits before a display; says whether it was opened."""
    if not has_display():
        return False
    import webbrowser

    return webbrowser.open(page.resolve().as_uri())


def has_display() -> bool:
    """Whether a browser would open before the eyes of who typed the command."""
    remote = any(os.environ.get(name) for name in ("CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"))
    screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stderr.isatty() and screen and not remote
