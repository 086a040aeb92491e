"""The last act of ``wastenot demo``: a simulated training job under the plan, with a live line, a proof and a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wastenot.control.controller import Controller
    from wastenot.planning.plan import Plan

PAGE_OF_THE_JOB = "run.html"
_SUMMARY = "run.json"
_ITERATIONS = 400
_LOOK_S = 60.0  # of virtual time, between live lines


def apply_in_demo(plan: Plan, device: str, out: Path, *, with_page: bool) -> tuple[str, str]:
    """Run a simulated job under the plan; its summary and page are kept beside the plan.

    Returns:
        What it saved, and how sure that is.
    """
    from wastenot.control.page.line import live_text
    from wastenot.control.page.story import story_of
    from wastenot.control.simulated_job import run_simulated
    from wastenot.devices.open import open_device
    from wastenot.devices.simulated.device import SimulatedDevice

    card = open_device(device)
    assert isinstance(card, SimulatedDevice)
    with _live_line() as show:

        def watch(controller: Controller) -> bool:
            status = controller.status()
            show(f"{(status.iteration or 0) + 1} of {_ITERATIONS}: {live_text(status)}")
            return False

        run = run_simulated(plan, card, _ITERATIONS, path=str(out / "plan.json"), watch=watch, watch_every_s=_LOOK_S)
    run.write(out / _SUMMARY)
    if with_page:
        made_by = ["wastenot", "report", str(out / _SUMMARY), "--page", str(out / PAGE_OF_THE_JOB)]
        run.page(out / PAGE_OF_THE_JOB, command=shlex.join(made_by))
    return live_text(run.status), story_of(run)[2]


@contextmanager
def _live_line() -> Iterator[Callable[[str], None]]:
    """Show one line in a terminal, replaced each time; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    try:
        yield lambda line: print(f"\r\x1b[2K{line[: get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
