"""What long work says before it begins: how much there is to do, how long that takes, and what would make it shorter."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wastenot.sweeping.estimate import Estimate

_LONG_S = 600.0  # of waiting, from which on a person may want it shorter
_OVERLAP = 1.15  # ratio of the most to what is expected, from which on a range says more
_SHORTER = {
    "grid": "--search model (about 30 % of the points), a larger --core-step, fewer clocks (--core, --memory), "
    "--relative-error 0.01, or --budget 2h, to resume later",
    "search": "a smaller --share, --relative-error 0.01, or --budget 2h, to resume later",
    "auto": "shorter --warm-up and --window, --relative-error 0.01, or --budget 30m, to resume later",
    "natural": "--budget 5m, to resume later; a smaller --seconds-each",
    "again": "fewer --repeats",
}


def announce(*parts: Estimate, shorter: str | None = None, then_s: float = 0.0) -> None:
    """Say on stderr what is going to be measured and how long that takes.

    Args:
        parts: of the work, in order.
        shorter: what would make it shorter; by default the options of the command that measures so.
        then_s: how long planning and a report take afterwards.
    """
    from wastenot.terminal.output import say

    for line in announcement(parts, shorter, then_s):
        say(line)


def announce_whole(title: str, parts: Sequence[Estimate], then_s: float) -> None:
    """Say on stderr how long work of many parts takes, in one line.

    Args:
        title: of the work.
        parts: of it.
        then_s: how long planning and reports take.
    """
    from wastenot.pages.formatting import duration
    from wastenot.terminal.output import say

    todo = sum(part.todo for part in parts)
    before = sum(part.found for part in parts)
    done = f", {before:,} more were made before" if before else ""
    took_s = sum(part.wait_s or 0.0 for part in parts) + then_s
    device_s = sum(part.device_s for part in parts)
    say(f"{title}: {todo:,} measurements{done}; {duration(device_s)} of virtual time, here {_about(took_s)}")


def show_dry_run(*parts: Estimate, as_json: bool, shorter: str | None = None, then_s: float = 0.0, **values: object) -> None:
    """Print what would be measured, as the result of a dry run.

    Args:
        parts: of the work, in order.
        as_json: as one document.
        shorter: what would make it shorter.
        then_s: how long planning and a report take afterwards.
        values: of the document besides.
    """
    document = values | {"parts": [estimate_document(part) for part in parts]}
    print_dry_run(announcement(parts, shorter, then_s), document, as_json=as_json)


def print_dry_run(lines: Sequence[str], document: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result of a dry run, as lines or as one document."""
    from wastenot.terminal.output import print_json, wrapped

    if as_json:
        print_json("estimate", document)
        return
    for line in (*lines, "  nothing was measured or written (--dry-run)"):
        print(wrapped(line, sys.stdout))


def announcement(parts: Sequence[Estimate], shorter: str | None = None, then_s: float = 0.0) -> list[str]:
    """What is going to be measured and how long that takes, as lines of text."""
    left = [part for part in parts if part.todo]
    waits = [part.wait_s for part in left]
    wait_s = sum(wait for wait in waits if wait is not None) + then_s
    more = ", with planning and the report" if then_s else ""
    virtual = any(part.virtual for part in left) and None not in waits
    lines = []
    for part in parts:
        done = f"; {part.found:,} of them measured before" if part.found else ""
        lines.append(f"{part.workload} on {part.device}: {_what(part)}{done}")
        if virtual and part is left[0]:  # how long a person waits comes before how long a GPU would take
            together = "together " if len(left) > 1 else ""
            lines.append(f"  {together}here it takes {_about(wait_s)}{more}: a simulated device's time is virtual")
        if part.todo:
            lines.append(f"  {_how_long(part)}")
        lines += [f"  {_with_flags(note)}" for note in part.notes]
    if not virtual and len(left) > 1:
        lines.append(f"  together {_about(wait_s)}{more}")
    if wait_s > _LONG_S:
        lines.append(f"  shorter: {shorter or _SHORTER[left[0].kind]}")
    return lines


def estimate_document(part: Estimate) -> dict[str, Any]:
    """An estimate as a JSON document."""
    from wastenot.core.values import as_values

    values: dict[str, Any] = as_values(part)
    return values | {"todo": part.todo, "notes": [_with_flags(note) for note in part.notes]}


def _about(seconds: float) -> str:
    from wastenot.pages.formatting import duration

    return f"about {duration(seconds)}" if seconds >= 1.0 else duration(seconds)


def _what(part: Estimate) -> str:
    units = {"kernel": "kernels", "pass": "passes", "iteration": "iterations"}[part.granularity]
    kernels = f"{part.kernels:,} {units if part.kernels != 1 else units.removesuffix('es' if units == 'passes' else 's')}"
    match part.kind:
        case "grid":
            most = part.kernels * (part.settings + 1)
            repeated = f"; {part.points:,} measurements with repeats" if part.points > most else ""
            return f"{kernels} × {part.settings + 1:,} settings, auto among them = {most:,} points{repeated}"
        case "auto":
            times = part.points // max(part.kernels, 1)
            return f"{kernels} at the default clocks{f', {times} times' if times > 1 else ''}: {part.points:,} points"
        case "search":
            return f"{kernels} × {part.settings:,} settings, of which at most {part.points:,} points are measured"
        case "natural":
            same = f" ({part.points:,} different)" if part.points != part.kernels else ""
            return f"{kernels}{same} at natural clocks, none set"
        case "again" if part.settings > 1:
            return f"{kernels} at the best of {part.settings:,} settings and at the default clocks: {part.points:,} points"
        case _:
            times = part.points // max(2 * part.kernels, 1)
            return f"{kernels} at the planned and at the default clocks, {times:,} times each = {part.points:,} points"


def _how_long(part: Estimate) -> str:
    from wastenot.pages.formatting import duration

    up_to = "up to " if part.least_device_s < part.most_device_s else ""
    each = (
        f", each with {part.warm_up_s:g} s of warm-up and {up_to}{part.window_s:g} s of measuring; "
        "heating the GPU and waiting are included"
    )
    if part.kind == "natural":
        each = ""
    if part.most_device_s <= part.device_s and part.least_device_s <= 0.0:
        time = f"at most {duration(part.most_device_s)}"
    elif part.most_device_s > _OVERLAP * part.device_s or part.device_s > _OVERLAP * part.least_device_s:
        about = "" if part.device_s >= part.most_device_s else f"about {duration(part.device_s)}, "
        time = f"{about}between {duration(part.least_device_s)} and {duration(part.most_device_s)}"
    else:
        time = f"about {duration(part.device_s)}"
    device_time = "virtual device time" if part.virtual else "device time"
    budget_s = part.budget_s
    budget = "" if budget_s is None or budget_s >= part.device_s else f"; no more are begun after {duration(budget_s)}"
    return f"{part.todo:,} to measure: {time} of {device_time}{each}{budget}"


def _with_flags(note: str) -> str:
    """A note of the library, with the flags that stand for its arguments."""
    from wastenot.core.errors import WastenotError
    from wastenot.terminal.flags import flag_of

    return WastenotError(note).text(flag_of)
