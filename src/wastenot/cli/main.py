"""The program ``wastenot``: its commands, and how errors are shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from wastenot.cli import apply, capture, demo, devices, doctor, monitoring, report, samples, show, studies, tune, workloads
from wastenot.cli.help_text import GROUPS, Command, Commands, Group, leaves
from wastenot.cli.option_groups import expand_groups
from wastenot.cli.usage import usage_text
from wastenot.core.errors import CannotRunError, ClocksRefusedError, DeviceError, WastenotError
from wastenot.core.processes import Terminated
from wastenot.jobs import cli as jobs
from wastenot.jobs.judge import cli as replay
from wastenot.kernels.cli import calibrate, forecast, iteration, latency, natural, pairs, plan, sweep, validate, whole_loop
from wastenot.pipelines import cli as pipeline
from wastenot.pipelines.run import cli as straggler
from wastenot.profiles import cli as profiles
from wastenot.serving.cli import engine, recommend, serve_bench, serve_control, simulate
from wastenot.terminal.completing import complete, name_the_shell
from wastenot.terminal.flags import flag_of, know_flags

DONE, FAULT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# Typer brings its own copy of Click and exports only this one, the most specific of its errors.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

_SETTINGS: dict[str, Any] = {
    "add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}  # fmt: skip
app = typer.Typer(
    name="wastenot",
    help="Find the energy that a GPU wastes while it trains or serves an LLM, and plan the clocks that would save it.",
    cls=Commands,
    **{**_SETTINGS, "add_completion": True},
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "samples": samples.samples,
    "doctor": doctor.doctor,
    "monitor": monitoring.monitor,
    "apply": apply.apply,
    "tune": tune.tune,
    "show": show.show,
    "report": report.report,
    "diff": plan.diff,
    "kernel run": whole_loop.run,
    "kernel workloads": workloads.workloads,
    "kernel capture": capture.capture,
    "kernel sweep": sweep.sweep,
    "kernel natural": natural.natural,
    "kernel plan": plan.plan,
    "kernel frontier": plan.frontier,
    "kernel forecast": forecast.forecast,
    "kernel validate": validate.validate,
    "kernel refine": sweep.refine,
    "kernel transfer": validate.transfer,
    "kernel iteration": iteration.iteration,
    "kernel pairs": pairs.pairs,
    "profile run": profiles.profile,
    "profile compare": profiles.profiles,
    "pipeline plan": pipeline.pipeline,
    "pipeline straggler": straggler.straggler,
    "job list": jobs.jobs,
    "job show": jobs.job,
    "job replay": replay.replay,
    "serve bench": serve_bench.serve_bench,
    "serve profile": engine.engine,
    "serve recommend": recommend.recommend,
    "serve simulate": simulate.simulate,
    "serve control": serve_control.serve_control,
    "study import": studies.import_,
    "study export": studies.export,
    "device list": devices.list_,
    "device sensor": devices.sensor,
    "device latency": latency.latency,
    "device calibrate": calibrate.calibrate,
    "device reset": devices.reset,
    "reproduce": whole_loop.reproduce,
}
"""Every command, by the words that follow ``wastenot``."""


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


_FOLLOWED_BY_A_COMMAND = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_groups: dict[str, typer.Typer] = {"": app}
for _words, _command in _COMMANDS.items():
    _group, _, _name = _words.rpartition(" ")
    if _group not in _groups:
        _groups[_group] = typer.Typer(name=_group, help=GROUPS[_group], cls=Group, **_SETTINGS)
        _groups[_group].callback(invoke_without_command=True)(_show_help)
        app.add_typer(_groups[_group])
    _settings = _FOLLOWED_BY_A_COMMAND if _words == "monitor" else None
    _groups[_group].command(_name, cls=Command, context_settings=_settings)(expand_groups(_command))


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False
) -> None:
    """Find the energy that a GPU wastes while it trains or serves an LLM, and plan the clocks that would save it."""
    if version:
        _show_version()
        raise typer.Exit
    _show_help(context)


def _show_version() -> None:
    from wastenot.core.version import own_version

    print(own_version())


@cache
def _root() -> Any:
    """All commands and their options, made once: Typer reads the signatures of all for it."""
    return typer.main.get_command(app)


def _flags() -> set[str]:
    """The flags of all commands."""
    return {flag for command in leaves(_root()).values() for parameter in command.params for flag in parameter.opts}


know_flags(_flags)


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
        answer = complete(lambda: _root()(prog_name="wastenot"))
        if answer is not None:
            print(answer)
            return DONE
        arguments = name_the_shell(sys.argv[1:] if arguments is None else arguments)
        if arguments == ["--version"]:  # needs neither the options of every command nor what Typer checks values with
            code = DONE
            _show_version()
        else:
            code = _root()(arguments, prog_name="wastenot", standalone_mode=False)
        sys.stdout.flush()
    except WastenotError as error:
        refused = isinstance(error, (CannotRunError, ClocksRefusedError))
        fault = isinstance(error, DeviceError) and not refused
        return _say(error.text(flag_of), FAULT if fault else BAD_INPUT)
    except _ClickError as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "wastenot")
        hint = f" (see '{command} --help')" if isinstance(error, _UsageError) else ""
        message = getattr(error, "format_message", error.__str__)()
        return _say(usage_text(message, arguments or ()) + hint)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        return _say(f"{error.filename or 'output'}: {error.strerror or error}")
    except Terminated:
        print("terminated", file=sys.stderr)
        raise
    if code == INTERRUPTED:  # Typer turns Ctrl-C into this code without a word
        print("interrupted", file=sys.stderr)
    return int(code or DONE)


def _say(message: str, code: int = BAD_INPUT) -> int:
    from wastenot.terminal.output import say

    say(" ".join(["error:", *re.split(r"[ \t\r\n]+", message.strip())]))  # no-break spaces stay
    return code
