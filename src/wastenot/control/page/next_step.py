"""What to do after a run: settle what is undecided, or keep what was found for the next job."""

from __future__ import annotations

import shlex

from wastenot.control.page.story import story_of
from wastenot.control.page.trials import still_held
from wastenot.control.status import Status, Summary
from wastenot.pages.panel import Next

_PROGRAM = "python train.py"  # stands for the reader's own
_SURELY = 1.3  # times the iterations that would just settle a limit
_MOST_LONGER = 20.0  # times a run's iterations, beyond which a limit may as well be met exactly


def next_step(summary: Summary) -> Next | None:
    """The command to run next; ``None`` where a run leaves nothing to recommend."""
    status = summary.status
    if summary.ended in ("refused", "failed") or status.rung == status.rungs - 1 or not status.gpus:
        return None
    return _after_applying(summary) if status.tuning is None else _after_tuning(summary)


def _after_tuning(summary: Summary) -> Next | None:
    device = summary.status.gpus[0].device
    target = f"--device {device}" if device.startswith("sim:") else f"-- {summary.status.workload}"
    text = "Start the next job at this setting, with the plan that tune writes with --out PLAN.json"
    return None if still_held(summary) is None else Next(text, (f"wastenot apply PLAN.json {target}",))


def _after_applying(summary: Summary) -> Next | None:
    status = summary.status
    device = status.gpus[0].device
    simulated = device.startswith("sim:")
    command = f"wastenot apply {shlex.quote(status.plan)}"
    again = f"{command} --device {device}" if simulated else f"{command} -- {_PROGRAM}"
    if status.rehearsal is not None:
        real = Next("Run the program with this plan on the GPU that it is for", (f"{command} -- {_PROGRAM}",))
        return None if status.rehearsal.refusal else real
    if status.dry_run:
        return Next("Set the clocks, too", (again,))
    tone = story_of(summary)[0]
    iterations = _to_settle(status)
    saved = status.proof.energy_change
    if tone == "kept" and saved is not None and saved.high < 0.0:
        if simulated:
            text = f"Rehearse your own program (replace {_PROGRAM}) beside the simulated GPU; no real clock is set"
            return Next(text, (f"{again} -- {_PROGRAM}",))
        return Next(f"Run the next job under this plan, too; {_PROGRAM} stands for your program", (again,))
    if tone != "undecided" or iterations is None:
        return None
    text = f"About {iterations:,} iterations would settle whether the slowdown limit is kept"
    return Next(text, (f"{again} --iterations {iterations}" if simulated else again,))


def _to_settle(status: Status) -> int | None:
    """Iterations after which the interval of the time would lie on one side of the limit; ``None`` if far too many.

    Half an interval shrinks with the root of what it rests on; it has to become what the limit is away.
    """
    time = status.proof.time_change
    if time is None or not status.iteration or time.value == status.max_slowdown:
        return None
    longer = ((time.high - time.value) / (status.max_slowdown - time.value)) ** 2
    return round(float(f"{_SURELY * longer * status.iteration:.1e}")) if longer <= _MOST_LONGER else None
