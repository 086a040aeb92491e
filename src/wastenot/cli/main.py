"""The program ``wastenot``: its verbs, and how errors reach a person."""

from __future__ import annotations

import sys

import typer

from wastenot.cli import (
    calibrate_verb,
    capture_verb,
    doctor_verb,
    forecast_verb,
    monitor_verb,
    pairs_verb,
    plan_verbs,
    profile_verb,
    profiles_verb,
    refine_verb,
    reproduce_verb,
    reset_verb,
    run_verb,
    sensor_verb,
    study_verbs,
    sweep_verb,
    transfer_verb,
    validate_verb,
    workload_verbs,
)
from wastenot.errors import CannotRunError, ClocksRefusedError, DeviceError, WastenotError

DONE, FAULT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_FLAG_OF: dict[str, str] = {}
"""Flags that are not called as the argument of the library that they give."""

# Typer brings its own copy of Click and exports of its errors only this one, the most special.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="wastenot",
    help="Find the energy that a GPU wastes while it trains or serves an LLM, and remove it without slowing it down.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("run")(run_verb.run)
app.command("reproduce")(reproduce_verb.reproduce)
app.command("doctor")(doctor_verb.doctor)
app.command("sensor")(sensor_verb.sensor)
app.command("reset")(reset_verb.reset)
app.command("import")(study_verbs.import_)
app.command("show")(study_verbs.show)
app.command("export")(study_verbs.export)
app.command("capture")(capture_verb.capture)
app.command("monitor", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    monitor_verb.monitor
)
app.command("profile")(profile_verb.profile)
app.command("profiles")(profiles_verb.profiles)
app.command("sweep")(sweep_verb.sweep)
app.command("refine")(refine_verb.refine)
app.command("validate")(validate_verb.validate)
app.command("transfer")(transfer_verb.transfer)
app.command("forecast")(forecast_verb.forecast)
app.command("calibrate")(calibrate_verb.calibrate)
app.command("plan")(plan_verbs.plan)
app.command("frontier")(plan_verbs.frontier)
app.command("compare")(plan_verbs.compare)
app.command("diff")(plan_verbs.diff)
app.command("pairs")(pairs_verb.pairs)
app.command("report")(plan_verbs.report)
app.command("workloads")(workload_verbs.workloads)
app.command("workload")(workload_verbs.workload)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    """Find the energy that a GPU wastes while it trains or serves an LLM, and remove it without slowing it down."""
    if version:
        from importlib.metadata import version as installed

        print(installed("wastenot"))
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0 done, 2 bad input, 1 a fault."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; errors that the user can act on become one line on stderr.

    A device, driver or sensor that fails is a fault (1). All else the user can fix by changing the request or installing
    what it needs (2); that includes clocks a device refuses and kernels it cannot run.

    Args:
        arguments: without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
    except WastenotError as error:
        refused = isinstance(error, (CannotRunError, ClocksRefusedError))
        fault = isinstance(error, DeviceError) and not refused
        return _say(error.text(flag_of), FAULT if fault else BAD_INPUT)
    except _ClickError as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "wastenot")
        hint = f" (see '{command} --help')" if isinstance(error, _UsageError) else ""
        return _say(getattr(error, "format_message", error.__str__)() + hint)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        return _say(f"{error.filename or 'output'}: {error.strerror or error}")
    return int(code or DONE)


def flag_of(argument: str) -> str:
    """The flag that stands for an argument of the library, so that errors name what the user typed.

    ``max_slowdown`` is ``--max-slowdown``; a unit may be left out (``clock_tolerance_mhz`` is ``--clock-tolerance``), and a
    few are called otherwise. An argument that no verb has a flag for keeps its name.
    """
    verbs = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    flags = {flag for verb in verbs for parameter in verb.params for flag in parameter.opts}
    flag = _FLAG_OF.get(argument, "--" + argument.replace("_", "-"))
    for known in (flag, flag.rpartition("-")[0]):
        if known in flags:
            return known
    return argument


def _say(message: str, code: int = BAD_INPUT) -> int:
    print("error:", " ".join(message.split()), file=sys.stderr)
    return code
