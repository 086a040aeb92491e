"""``wastenot tune``: find a setting for a program while it runs, without a sweep, and hold it with proof."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wastenot.cli.watched_run import (
    AllOption,
    RealTimeOption,
    RestoreClocksOption,
    ShownOptions,
    find_program,
    run_command,
    say_wastenot,
    simulated_session,
    write_outcome,
)
from wastenot.core.vendors import with_drivers
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    JsonOption,
    MaxSlowdownOption,
    ShapeOptions,
    parse_clocks,
    parse_power_limits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wastenot.control.candidates import Ladder
    from wastenot.control.status import Summary
    from wastenot.control.tuner import Tuner
    from wastenot.devices.protocol import Device
    from wastenot.workloads.identity import ModelRun

_DEVICE = f"{with_drivers()[0].name}:0"
_THEN = 1000  # iterations of a simulated job after the search, for the proof
_MOST = 10**9  # iterations of a simulated job
_LOOK_S = 1.0  # of virtual time between looks at a simulated job


def tune(
    command: Annotated[list[str] | None, argument("The program and its arguments, after --.", "[-- COMMAND]")] = None,
    device: Annotated[
        str | None,
        option(
            f"GPUs of the job, such as nvidia:0,1; {_DEVICE} by default; or sim:NAME for a simulated job.",
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
    core: Annotated[str | None, option("Core clocks to choose from, instead of steps of 1 %.", "MHZ,...")] = None,
    power_limit: Annotated[str | None, option("Power limits to choose from, likewise.", "W,...")] = None,
    tolerance: Annotated[
        float,
        option(
            "Find the best setting to within this fraction of the energy, such as 0.5%.", "X", parser=quantities.relative
        ),
    ] = 0.005,
    budget: Annotated[str, option("Time after which the best so far is held, such as 30m.", "TIME")] = "1h",
    out: Annotated[Path | None, option("Write what was found, for wastenot apply.", "PLAN.json")] = None,
    summary: Annotated[Path | None, option("Write a summary of the run to this file, as JSON.", "FILE")] = None,
    *,
    shown: ShownOptions,
    dry_run: Annotated[bool, option("Say what would be tried; run nothing and set nothing.")] = False,
    restore_clocks: RestoreClocksOption = None,
    iterations: Annotated[
        int | None, option(f"Iterations of a simulated job; {_THEN} after the search by default.", "N")
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
    """
    from wastenot.control.application import parse_devices
    from wastenot.core.errors import BadInputError
    from wastenot.meters.devices import visible_names
    from wastenot.terminal.options import parse_budget

    if command and not dry_run:
        find_program(command[0])
    names = visible_names() if every else parse_devices(device or _DEVICE)
    simulated = all(name.startswith("sim:") for name in names)
    if simulated and (command or workload is None):
        raise BadInputError(
            "`device`: a simulated GPU runs a workload, not a program: wastenot tune --device sim:h200 --workload gpt3-xl"
        )
    if not simulated and workload is not None:
        raise BadInputError(
            "`workload`: only a simulated GPU runs a workload by itself; on a real one give a program, after --"
        )
    if not simulated and not command and not dry_run:
        raise BadInputError("what is to run? wastenot tune -- python train.py (or --dry-run to see what would be tried)")
    gpus = _open(names, dry_run=dry_run, restore=restore_clocks, seed=seed)
    ladders = _ladders(gpus, knobs, core, power_limit)
    if dry_run:
        _show_ladders(gpus, ladders, as_json=as_json)
        return
    make = partial(
        _tuner,
        gpus,
        max_slowdown=max_slowdown,
        ladders=ladders,
        tolerance=tolerance,
        budget_s=parse_budget(budget),
        seed=seed,
    )  # fmt: skip
    code, run = 0, None
    if simulated:
        became, tuner, run = _run_simulated(make, gpus, seed, str(workload), shape_options, iterations, real_time, shown)
    else:
        tuner = make(shlex.join(command or ()))
        became, code = run_command(_session(tuner), command or [], shown, as_json)
    plan = _plan(tuner, run, out)
    if as_json:
        from wastenot.terminal.output import print_json

        document = None if plan is None else plan.document()
        print_json("tune", {"run": became.document(), "plan": document})
    else:
        from wastenot.control.page.line import live_text

        say_wastenot(live_text(became.status))
    write_outcome(became, summary, shown)
    if out is not None and plan is not None:
        target = f" --device {names[0]}" if simulated else f" -- {shlex.join(command or ())}"
        say_wastenot(f"{out}: plan written; next time: wastenot apply {out}{target}")
    raise typer.Exit(code)


# ---- before -----------------------------------------------------------------------------------------------------


def _tuner(gpus: Sequence[Device], workload: str, **wanted: Any) -> Tuner:
    """The tuner of what runs."""
    from wastenot.control.driver import Subject
    from wastenot.control.tuner import Tuner

    subject = Subject("tune", "", workload, gpus[0].identity.origin)
    return Tuner(gpus, subject, now_s=gpus[0].time.now_s(), **wanted)


def _open(names: Sequence[str], *, dry_run: bool, restore: str | None, seed: int) -> tuple[Device, ...]:
    from wastenot.control.fitting import check_may_set, check_named_once
    from wastenot.devices.open import open_device
    from wastenot.sweeping.grid import check_measures
    from wastenot.terminal.options import parse_restore

    ranges = parse_restore(restore)
    gpus = tuple(open_device(name, seed=seed, allow_clock_control=not dry_run, restore=ranges) for name in names)
    check_named_once(gpus)
    for gpu in gpus:
        check_measures(gpu)
    if not dry_run:
        check_may_set(gpus, "tried")
    return gpus


def _ladders(gpus: Sequence[Device], knobs: str, core: str | None, power_limit: str | None) -> tuple[Ladder, ...]:
    from wastenot.control.candidates import Knob, ladders_of

    clocks, limits = parse_clocks("--core", core), parse_power_limits(power_limit)
    given = clocks is not None or limits is not None  # naming some means only those
    chosen: list[Knob] = []
    if clocks is not None if given else knobs != "limits":
        chosen.append("clock")
    if limits is not None if given else knobs != "clocks":
        chosen.append("limit")
    return ladders_of(gpus, chosen, core_mhz=clocks, power_limit_w=limits)


def _show_ladders(gpus: Sequence[Device], ladders: Sequence[Ladder], *, as_json: bool) -> None:
    names = [gpu.identity.name for gpu in gpus]
    values: dict[str, Any] = {
        ladder.knob: [setting.core_mhz or setting.power_limit_w for setting in ladder.settings] for ladder in ladders
    }
    if as_json:
        from wastenot.terminal.output import print_json

        print_json("tune", {"schema": "wastenot.tune-settings/1", "devices": names, "settings": values})
        return
    typer.echo(f"{', '.join(names)}: to choose from, of which a few would be tried; nothing is set (--dry-run)")
    for ladder in ladders:
        first, last = ladder.settings[0], ladder.settings[-1]
        typer.echo(f"  {len(ladder.settings)} from {first} to {last}")
    for gpu in gpus:
        refusal = gpu.clocks.refusal()
        if refusal is not None:
            typer.echo(f"  {gpu.identity.name}: this would be refused: {refusal}")


# ---- running ----------------------------------------------------------------------------------------------------


def _session(tuner: Tuner) -> Any:
    from wastenot.control.places import make_socket_path
    from wastenot.control.session import Session

    return Session(tuner, make_socket_path(f"apply-{os.getpid()}"))


def _run_simulated(
    make: Callable[[str], Tuner],
    gpus: Sequence[Device],
    seed: int,
    workload: str,
    shape: ShapeOptions,
    iterations: int | None,
    real_time: bool,
    shown: ShownOptions,
) -> tuple[Summary, Tuner, ModelRun | None]:
    from wastenot.control.simulated_job import programme_of, run_job
    from wastenot.meters.tasks import find_tasks

    tasks = find_tasks(workload, gpus[0].identity.name, shape.shape())
    tuner = make(tasks.name)
    with simulated_session(gpus, tuner.status(), shown) as show:
        enough: list[int] = []
        stopped = [False]

        def watch(tuner: Tuner) -> bool:
            latest = tuner.status()
            if tuner.done and not enough:
                enough.append((latest.iteration or 0) + _THEN)
            over = iterations is None and bool(enough) and (latest.iteration or 0) >= enough[0]
            stopped.append(show(latest))
            return stopped[-1] or over

        summary, _ = run_job(
            tuner, programme_of(tasks.kernels, tasks.tasks), iterations or _MOST, seed=seed, real_time=real_time,
            watch=watch, watch_every_s=_LOOK_S,
        )  # fmt: skip
    if not stopped[-1]:  # it came to its end, which the search decides
        summary = summary.model_copy(update={"ended": "job ended", "exit_code": 0})
    return summary, tuner, tasks.run


def _plan(tuner: Tuner, run: ModelRun | None, out: Path | None) -> Any:
    """The plan of what was found, written where it is wanted; ``None`` where there is none to make."""
    if not tuner.measured_default:
        if out is not None:
            say_wastenot(f"{out}: not written: the job ended before anything was measured")
        return None
    from wastenot.control.tuned_plan import tuned_plan

    plan = tuned_plan(tuner, run=run)
    if out is not None:
        plan.write(out)
    return plan
