"""``wastenot device latency``: how long a device takes to switch clocks and power limits, and what a switch costs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.pages.formatting import duration
from wastenot.terminal import quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import (
    ClockControlOptions,
    DeviceOption,
    DryRunOption,
    JsonOption,
    PageOptions,
    SeedOption,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.devices.protocol import Device
    from wastenot.kernels.latency.measure import LatencyEstimate
    from wastenot.planning.latency import Latency, What

_ERROR = 0.012  # as in wastenot.kernels.latency.design, which takes long to import
_LIMIT_S = 1200.0  # of a real device's time, unless another limit is given
_SHORTER = "shorter: fewer kinds (--what core), fewer --core clocks, or a larger --relative-error"


def latency(
    device: DeviceOption,
    out: Annotated[Path | None, option("The file; latency-DEVICE.json by default.", "FILE.json")] = None,
    study: Annotated[str | None, option("Also keep it in this study, whose plans then use it.", "FILE|URL")] = None,
    what: Annotated[
        str | None, option("core, memory, power-limit: what to switch; default: all that can be set.", "KIND,...")
    ] = None,
    core: Annotated[
        quantities.Floats | None,
        option("Core clocks to switch between; five by default, lowest to highest.", "MHZ,...", parser=quantities.clocks),
    ] = None,
    relative_error: Annotated[
        float, option("Relative standard error at which a latency counts as known.", "X", parser=quantities.relative)
    ] = _ERROR,
    time_limit: Annotated[
        float | None,
        option("Device time, such as 5m; 20m by default, none on a simulated GPU.", "TIME", parser=quantities.budget),
    ] = None,
    *,
    shown: PageOptions,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how long a GPU takes to switch clocks.

    Measures the time from the request of a core clock, memory clock or power limit until it is in effect, by start and
    target, until the error is small; outliers are kept apart. Also measures what a switch costs in time and energy.
    Resumes; plans then use the result.
    """
    from wastenot.core.values import as_values
    from wastenot.devices.open import is_virtual
    from wastenot.kernels.latency.design import design
    from wastenot.kernels.latency.measure import look_ahead, measured_latency, resume_file
    from wastenot.study.store import open_study
    from wastenot.terminal.option_rules import check_output
    from wastenot.terminal.output import console, print_json, say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress

    path = out or Path(f"latency-{re.sub(r'[^A-Za-z0-9.]+', '-', device)}.json")
    check_output(path)
    target = clock_control.open_device(device, seed=seed, workload=None)
    limit_s = float("inf") if is_virtual(target) else _LIMIT_S
    if time_limit is not None:
        limit_s = time_limit
    planned = design(target, kinds=_kinds(what), core_mhz=core or (), error=relative_error, most_s=limit_s)
    partial = resume_file(path)
    store = None if study is None else open_study(study, create=True)
    if store is not None:
        store.check_device(target.identity.label)
    ahead = look_ahead(target, planned, partial)
    if dry_run:
        _show_dry_run(ahead, target, as_json=as_json)
        return
    for line in _announcement(ahead, target):
        say(line)
    keeps = resume_with(typed_command(study or str(path)), partial)
    with kept_if_interrupted(keeps), shown_progress(f"switching latency of {device}") as progress:
        found = measured_latency(target, planned, resume=partial, seed=seed, progress=progress)
    found.write(path)
    if store is not None:
        store.keep_latency(found.to_json(), found.device)
    files = shown.write(found.drawn, typed_command(str(path)) + ("" if out is not None else f" --out {path}"))
    if as_json:
        print_json("latency", as_values(found) | {"files": [str(path), *files]})
        return
    console().print(latency_text(found))
    say(f"{path}: written" + ("" if study is None else f"; {study}: kept, its plans use it from now on"))
    if study is None:
        say(f"to use it in plans: wastenot kernel plan --study FILE --latency {path}")


def latency_text(found: Latency) -> RenderableType:
    """Measured latencies, for a terminal."""
    from wastenot.kernels.latency.design import NAMES
    from wastenot.kernels.latency.page import cost_line, indistinct_line, starts_table, targets_table
    from wastenot.terminal.tables import Group, Text, headline, rich_table

    switches = sum(each.switches for each in found.targets)
    took = f"{switches:,} switches timed in {duration(found.seconds)}"
    parts: list[RenderableType] = [headline("switching latency", found.device, found.origin, took)]
    tables = [targets_table(found), *(starts_table(found, what) for what in NAMES)]
    for table in tables:
        if table is not None:
            parts += ["", Text(table.title, style="bold"), rich_table(table, ("Longest", "Jitter"))]
    for title, lines in (
        ("Cost of a switch beyond waiting", [cost_line(each) for each in found.costs]),
        ("Indistinguishable values", list(dict.fromkeys(map(indistinct_line, found.indistinct)))),
        ("What this does not cover", found.not_covered),
    ):
        if lines:
            parts += ["", Text(title, style="bold"), *(Text(f"- {line}") for line in lines)]
    return Group(*parts)


def _announcement(ahead: LatencyEstimate, device: Device) -> list[str]:
    """What is going to be measured, and how long that takes."""
    from wastenot.devices.open import is_virtual

    parts = [
        f"{part.name} between {len(part.values)} values ({part.values[0]:g} to {part.values[-1]:g} {part.unit})"
        for part in ahead.design.parts
    ]
    virtual = is_virtual(device)
    time = f"about {duration(ahead.device_s)} of {'virtual ' if virtual else ''}device time, if latencies are as assumed now"
    before = f"; {ahead.found:,} switches were timed before" if ahead.found else ""
    lines = [f"{ahead.device}: switching the {'; the '.join(parts)}: {time}{before}"]
    if virtual:
        lines.append("  here it takes a few seconds: a simulated device's time is virtual")
    elif ahead.device_s > 600.0:
        lines.append(f"  {_SHORTER}")
    return [*lines, *(f"  not measured: {line}" for line in ahead.design.left_out)]


def _show_dry_run(ahead: LatencyEstimate, device: Device, *, as_json: bool) -> None:
    from wastenot.core.values import as_values
    from wastenot.sweeping.announce import print_dry_run

    parts = [{"kind": "latency", "what": part.what, "values": part.values, "unit": part.unit} for part in ahead.design.parts]
    values = {"device": ahead.device, "device_s": ahead.device_s, "found": ahead.found, "parts": parts}
    values |= {"left_out": list(ahead.design.left_out), "assumed": as_values(ahead.assumed)}
    print_dry_run(_announcement(ahead, device), values, as_json=as_json)


def _kinds(text: str | None) -> tuple[What, ...] | None:
    """Kinds of switches from a list such as ``core,power-limit``."""
    from wastenot.kernels.latency.design import KINDS

    if text is None:
        return None
    by_flag = {kind.replace("_", "-"): kind for kind in KINDS}
    for word in text.split(","):
        if word.strip() not in by_flag:
            raise BadInputError(f"--what {word.strip()}: there is no such kind; {suggestion(word.strip(), tuple(by_flag))}")
    return tuple(by_flag[word.strip()] for word in text.split(","))
