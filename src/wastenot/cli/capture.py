"""``wastenot kernel capture``: any PyTorch program's step as a workload."""

from __future__ import annotations

import shlex
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.workloads.capturing.capture import Captured
    from wastenot.workloads.capturing.coverage import Coverage
    from wastenot.workloads.kernel import Workload

_MOST_MISSING = 10  # lines for operations in a trace that were not captured


def capture(
    target: Annotated[str, argument("A function without arguments that runs one step.", "FILE.py:FUNCTION")],
    out: Annotated[Path, option("Write the workload to this file.", "FILE")] = Path("workload.json"),
    device: Annotated[
        str | None,
        option(
            "Default device of new tensors: cuda:0, cpu; fake:cuda for the kernels that CUDA would run, without data or "
            "memory.",
            "D",
        ),
    ] = None,
    with_coverage: Annotated[
        bool, option("Trace a third step, and show what fraction of its GPU time is captured.", flag="--coverage")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record the operations of a step of a PyTorch program.

    Each can then be measured on its own: the file is a workload for sweep.
    """
    from wastenot.terminal.output import console, print_json, say
    from wastenot.workloads.capturing.capture import capture as record, require_torch
    from wastenot.workloads.capturing.coverage import coverage
    from wastenot.workloads.capturing.user_step import FAKE, default_device, load_step
    from wastenot.workloads.capturing.workload_file import write_workload

    require_torch()
    fake = device is not None and device.startswith(FAKE)
    if with_coverage and fake:
        raise BadInputError(f"--coverage, --device {device}: nothing runs without data; trace the step on a real device")
    with default_device(device):
        step = load_step(target)
        say(f"{target}: running one step to warm up")
        step()
        say(f"{target}: capturing one step")
        with record(_workload_name(target)) as captured:
            step()
        covered = None
        if with_coverage:
            from wastenot.workloads.capturing.coverage import trace

            say(f"{target}: tracing one step")
            covered = coverage(trace(step), captured.workload)
    write_workload(captured.workload, out)
    if as_json:
        print_json("capture", _document(captured, covered, out))
    else:
        console().print(_text(captured, covered))
    say(f"{out}: workload written")
    on = "--device sim:h200" if captured.workload.captured_on == "cpu" or fake else "--device nvidia:0"
    say(f"Next: wastenot kernel natural {shlex.quote(str(out))} {on}")


def _workload_name(target: str) -> str:
    file, _, function = target.rpartition(":")
    return f"{Path(file).stem}-{function}"


def _document(captured: Captured, covered: Coverage | None, out: Path) -> dict[str, Any]:
    from wastenot.core.values import as_values

    workload = captured.workload
    return {
        "workload": workload.name,
        "file": str(out),
        "description": workload.description,
        "captured_on": workload.captured_on,
        "seen": captured.seen,
        "calls": workload.calls,
        "flops": workload.flops,
        "bytes": workload.bytes_moved,
        "left_out": {reason: dict(ops) for reason, ops in captured.left_out.items()},
        "notes": list(captured.notes),
        "coverage": None if covered is None else as_values(covered) | {"share": covered.share},
        "kernels": [
            {
                "name": kernel.name,
                "operation": None if kernel.call is None else kernel.call.op,
                "op": kernel.op,
                "pass": kernel.pass_name,
                "shape": list(kernel.shape),
                "count": kernel.count,
                "flops": kernel.flops,
                "bytes_read": kernel.bytes_read,
                "bytes_written": kernel.bytes_written,
            }
            for kernel in workload.kernels
        ],
    }


def _text(captured: Captured, covered: Coverage | None) -> RenderableType:
    from wastenot.terminal.tables import Group, Text

    workload = captured.workload
    left = sum(times for ops in captured.left_out.values() for times in ops.values())
    lines = [
        f"{counted(workload.calls, 'call')} of {counted(len(workload.kernels), 'kernel')}: "
        f"{workload.flops / 1e9:,.4g} GFLOP, {workload.bytes_moved / 1e6:,.4g} MB",
        f"{counted(captured.seen, 'operation')} seen, {left:,} left out:",
        *(f"  {sum(ops.values()):,} {reason}" for reason, ops in captured.left_out.items()),
        *(f"note: {note}" for note in captured.notes),
        *([] if covered is None else ["", *_coverage_lines(covered)]),
    ]
    head = [Text(workload.name, style="bold"), Text(workload.description), Text("")]
    return Group(*head, _table(workload), Text(""), *map(Text, lines))


def _table(workload: Workload) -> RenderableType:
    from wastenot.terminal.tables import Text, plain_table

    table = plain_table(("kernel",), ("count", "GFLOP", "of FLOPs", "MB", "of bytes"))
    flops, moved = workload.flops, workload.bytes_moved
    for pass_name, kernels in groupby(workload.kernels, key=lambda kernel: kernel.pass_name):
        table.add_row(Text(pass_name, style="bold"))
        for kernel in kernels:
            table.add_row(
                Text(f"  {kernel.name}"),
                f"{kernel.count:,}",
                f"{kernel.flops / 1e9:,.4g}",
                _share(kernel.count * kernel.flops, flops),
                f"{kernel.bytes_moved / 1e6:,.4g}",
                _share(kernel.count * kernel.bytes_moved, moved),
            )
    return table


def _coverage_lines(covered: Coverage) -> list[str]:
    share = covered.share
    if share is None:
        return ["coverage: the trace is empty"]
    lines = [f"coverage: captured operations explain {share:.2%} of {covered.total_us / 1e3:,.3f} ms {covered.of}"]
    for entry in covered.missing[:_MOST_MISSING]:
        by = "launched by no operation" if entry.launched_by is None else f"launched by {entry.launched_by}"
        by = "not captured" if entry.launched_by == entry.name else by
        lines.append(f"  missing: {entry.time_us / 1e3:,.3f} ms in {entry.times:,} × {entry.name} ({by})")
    rest = covered.missing[_MOST_MISSING:]
    if rest:
        lines.append(f"  missing: {sum(entry.time_us for entry in rest) / 1e3:,.3f} ms in {len(rest):,} more")
    if covered.absent:
        lines.append(f"  captured, but not in the traced step: {', '.join(covered.absent)}")
    return lines


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else "–"
