"""What is refused before a command begins: options that have no effect together, and outputs that could not be written.

:data:`RULES` says of each command which options have an effect only beside which others. Only options that were typed count:
a default is nobody's mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.vendors import vendor_named
from wastenot.planning.objective_kinds import KERNELS
from wastenot.terminal.options import SHAPE_OPTIONS

Values = Mapping[str, Any]
"""The parameters of a command by name, as parsed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Options that have no effect in some circumstances.

    Attributes:
        options: names of parameters.
        useless: whether they have no effect beside the other values; if so, in words: ``without --search model``.
    """

    options: tuple[str, ...]
    useless: Callable[[Values], str | None]


def needs(options: str, other: str, *values: object) -> Rule:
    """Options, separated by blanks, that have an effect only where another has one of some values, or is given at all."""

    def useless(found: Values) -> str | None:
        there = found.get(other)
        if (there in values) if values else there not in (None, False):
            return None
        flag = _flag(other)
        return f"without {' or '.join(f'{flag} {value}' for value in values)}" if values else f"without {flag}"

    return Rule(tuple(options.split()), useless)


def not_with(options: str, other: str, *values: object) -> Rule:
    """Options, separated by blanks, that have no effect where another has one of some values, or is given at all."""

    def useless(found: Values) -> str | None:
        there = found.get(other)
        if there not in values if values else there in (None, False):
            return None
        return f"with {_flag(other)}" + (f" {there}" if values else "")

    return Rule(tuple(options.split()), useless)


def _flag(name: str) -> str:
    return {"duration": "--for", "records": "--from"}.get(name, "--" + name.replace("_", "-"))


def _real_or_replayed(found: Values) -> str | None:
    device = str(found.get("device") or "")
    kind = device.partition(":")[0]
    return (
        f"on {device}: only a simulated GPU has a seed" if kind == "recorded" or vendor_named(device) is not None else None
    )


def _not_real(found: Values) -> str | None:
    device = str(found.get("device") or "")
    return (
        f"on {device}, whose clocks belong to this process alone"
        if device.partition(":")[0] in ("sim", "recorded")
        else None
    )


def _fixed_shape(found: Values) -> str | None:
    device, workload = str(found.get("device") or ""), str(found.get("workload") or found.get("name") or "")
    if device.startswith("recorded:"):
        return f"on {device}: its kernels keep the shapes they were recorded with"
    if workload.endswith(".json") or Path(workload).is_file():
        return f"with {workload}: its kernels have fixed shapes"
    return None


def _primitive(found: Values) -> str | None:
    from wastenot.workloads.primitives import is_primitive

    kernels = (str(found.get("kernel")), *(found.get("after") or ()), *(found.get("alternate") or ()))
    return f"with {kernels[0]}, whose name says its shape" if all(map(is_primitive, kernels)) else None


def _beside_a_program(found: Values) -> str | None:
    return "beside a program, which is what runs" if found.get("command") else None


def _rehearsed(found: Values) -> str | None:
    devices = str(found.get("device") or "").split(",")
    simulated = all(device.strip().startswith("sim:") for device in devices)
    return "in a rehearsal, which measures nothing" if found.get("command") and simulated else None


def _given_times(found: Values) -> str | None:
    source = str(found.get("source") or "")
    return f"on {source}, whose times and energies are given" if source.lower().endswith(".csv") else None


def _given_times_elsewhere(found: Values) -> str | None:
    """The name of the GPU that times are of, such as ``a100``, says how long it takes to switch."""
    return _given_times(found) if ":" in str(found.get("device")) else None


def _studied(found: Values) -> str | None:
    if found.get("source") is not None or found.get("study") is None:
        return None
    return "without a model: what the study holds has been measured"


def _all_models(found: Values) -> str | None:
    return "without a model: all are listed" if found["name"] is None else None


def _kernel_frontier(found: Values) -> str | None:
    finer = found["granularity"] == "kernel" and not found["compare"]
    return "without --granularity pass or --granularity iteration" if finer else None


def _of_a_scenario(found: Values) -> str | None:
    source = str(found["source"] or "")
    return f"with {source}, a scenario, which has its own" if source.endswith(".toml") else None


def _of_an_engine(found: Values) -> str | None:
    source = str(found["source"] or "")
    return f"with {source}, an engine, which is simulated once" if source and not source.endswith(".toml") else None


def _shown(found: Values) -> str | None:
    """A profile of an engine that is shown is made of nothing."""
    what = _each(found.get("what"))
    return "on a profile that is shown" if len(what) == 1 and what[0].endswith(".json") else None


def _is_heard(found: Values) -> bool:
    """Whether a profile is corrected by what a server publishes now."""
    return "://" in str(found.get("records") or "")


def _unless_heard(useless: Callable[[Values], str | None]) -> Callable[[Values], str | None]:
    return lambda found: None if _is_heard(found) else useless(found)


def _not_heard(found: Values) -> str | None:
    return None if _is_heard(found) else "without --from ADDRESS"


def _not_of_tables(found: Values) -> str | None:
    """Options that say what is made of tables of steps."""
    tables = all(each.endswith(".csv") for each in _each(found.get("what")))
    return _shown(found) or (None if tables else "on kernels that are measured")


def _not_of_kernels(found: Values) -> str | None:
    """Options that say how kernels of steps are measured."""
    tables = all(each.endswith(".csv") for each in _each(found.get("what")))
    return _shown(found) or ("on tables of steps" if tables else None)


def _quiet_without_file(found: Values) -> str | None:
    return "with --quiet and without --csv: nothing is shown or written" if found["quiet"] and found["csv"] is None else None


_SEED = Rule(("seed",), _real_or_replayed)
_SHAPE = Rule(SHAPE_OPTIONS, _fixed_shape)
_RESTORE = (needs("restore_clocks", "allow_clock_control"), Rule(("restore_clocks",), _not_real))
_MEASURING = (_SEED, *_RESTORE)
_PLANNING = (
    *(needs(" ".join(rules.parameters), "objective", name) for name, rules in KERNELS.items() if rules.parameters),
    not_with("confidence", "as_measured"),
)
_OF_AN_ENGINE = "trace load rate first gpus step_tokens switch_time ttft tbt e2e share length_error seed lenient"
_OF_TABLES_OF_STEPS = "model as_measured most_context cache_tokens step_tokens idle_power switch_time"
_OF_KERNELS_OF_STEPS = "clocks curves study memory seed allow_clock_control restore_clocks"
_OF_A_PIPELINE_MEASURED = (
    "study workload granularity confidence as_measured partition micro_batch sequence recompute allow_clock_control "
    "restore_clocks seed dry_run"
)

RULES: dict[str, tuple[Rule, ...]] = {
    "kernel sweep": (
        needs("search core_step core memory power_limit profile", "clocks", "grid"),
        needs("share max_slowdown", "search", "model"),
        not_with("core_step", "core"),
        not_with("power_limit profile", "search", "model"),
        needs("rounds", "clocks", "auto"),
        needs("seconds_each", "clocks", "natural"),
        not_with("warm_up window relative_error in_context at", "clocks", "natural"),
        not_with("relative_error", "at", "sse"),
        _SHAPE,
        *_MEASURING,
    ),
    "kernel run": (not_with("confidence", "as_measured"), _SHAPE, *_MEASURING),
    "kernel natural": (needs(" ".join(("time_limit", "dry_run", *SHAPE_OPTIONS)), "device"), _SHAPE),
    "kernel refine": _MEASURING,
    "kernel validate": _MEASURING,
    "kernel transfer": (needs("sequence_parallel", "tensor_parallel"), *_MEASURING),
    "device sensor": (_SEED,),
    "profile run": (_SEED, Rule(SHAPE_OPTIONS, _primitive)),
    "monitor": (Rule(("interval",), _quiet_without_file), needs("metrics_host", "metrics_port")),
    "apply": (Rule(("iterations", "real_time"), _beside_a_program),),
    "tune": (
        Rule(("workload", "iterations", "real_time", *SHAPE_OPTIONS), _beside_a_program),
        Rule(("out",), _rehearsed),
        Rule(SHAPE_OPTIONS, _fixed_shape),
        needs("iterations real_time", "workload"),
    ),
    "kernel plan": _PLANNING,
    "pipeline plan": (
        needs("csv", "frontier"),
        Rule(tuple(_OF_A_PIPELINE_MEASURED.split()), _given_times),
        Rule(("device",), _given_times_elsewhere),
        Rule(("device", "tensor_parallel", "micro_batch", "sequence", "allow_clock_control", "seed", "dry_run"), _studied),
        needs("workload", "study"),
        not_with("workload", "source"),
        not_with("confidence", "as_measured"),
        *_MEASURING,
    ),
    "report": _PLANNING,
    "serve bench": (
        not_with("device gpus", "meter"),
        needs("meter_gpus", "meter"),
        not_with("core memory power_limit", "meter"),
        not_with("core memory power_limit allow_clock_control restore_clocks", "device", "none"),
        not_with("prompt_tokens output_tokens spread trace", "requests"),
        not_with("prompt_tokens output_tokens spread", "trace"),
        needs("lenient", "trace"),
    ),
    "serve profile": (
        Rule(("device",), _unless_heard(_shown)),
        Rule(("core",), _unless_heard(_not_of_tables)),
        Rule(("degrees",), _unless_heard(_not_of_kernels)),
        Rule(("duration", "steps"), _not_heard),
        Rule(tuple(_OF_TABLES_OF_STEPS.split()), _not_of_tables),
        Rule(tuple(_OF_KERNELS_OF_STEPS.split()), _not_of_kernels),
    ),
    "serve recommend": (needs("gpu_hour", "unit", "money"), needs("context assumed_clocks", "clocks")),
    "serve control": (
        needs("hours out page figures", "replay"),
        not_with(
            "prometheus period stale_after duration hook metrics_port metrics_host otlp allow_clock_control restore_clocks",
            "replay",
        ),
    ),
    "serve simulate": (
        not_with("processes", "ray"),
        Rule(tuple(_OF_AN_ENGINE.split()), _of_a_scenario),
        Rule(("study", "seeds", "processes", "ray", "band"), _of_an_engine),
    ),
    "kernel frontier": (
        needs("as_measured", "compare"),
        not_with("granularity", "compare"),
        Rule(("clock_tolerance",), _kernel_frontier),
    ),
    "kernel workloads": (Rule(("workload", "device", *SHAPE_OPTIONS), _all_models), _SHAPE),
}
"""By command, the options that may have no effect."""

_OUTPUTS = ("out", "page", "csv", "figures", "summary")
_INPUTS = ("source", "sources", "what", "study", "schedule", "engine", "trace", "clocks", "requests", "scenario")
"""Files that an output must not replace."""
_MAY_LACK_PAGES = ("kernel natural",)  # commands that do the rest without the extra that pages need, and say so


def check_before_work(
    command: str, values: Values, typed: Callable[[str], bool], metavars: Mapping[str, str | None]
) -> None:
    """Refuse options that have no effect together, and outputs that cannot be written; changes nothing on disk.

    Args:
        command: the words after ``wastenot``.
        values: of its parameters.
        typed: whether a parameter was typed, rather than left at its default.
        metavars: of its parameters; they say which outputs are folders or pages.

    Raises:
        BadInputError: an option would have no effect, or an output cannot be written.
        MissingExtraError: an output needs software that is not installed.
    """
    check_rules(RULES.get(command, ()), values, typed)
    pages = False
    given = [each for name in _INPUTS for each in _each(values.get(name))]
    taken = {Path(each).absolute(): "is read" for each in given if Path(each).is_file()}
    for name in _OUTPUTS:
        target = values.get(name)
        if target is not None:
            metavar = metavars.get(name) or ""
            check_output(Path(target), name, folder=metavar == "DIR")
            place = Path(target).absolute()
            if place in taken and (place.is_file() or not place.exists()):
                raise BadInputError(f"{_flag(name)} {target}: {taken[place]}; give another file")
            taken[place] = f"is what {_flag(name)} writes"
            pages |= name == "figures" or metavar.endswith(".html")
    if pages and command not in _MAY_LACK_PAGES:
        from wastenot.pages.optional_imports import check_report

        check_report()


def _each(value: object) -> list[str]:
    """What was given for an argument that may be repeated, or not be given at all."""
    return [str(each) for each in value] if isinstance(value, list | tuple) else [str(value or "")]


def check_rules(rules: tuple[Rule, ...], values: Values, typed: Callable[[str], bool]) -> None:
    """Refuse the first option that was typed and has no effect.

    Raises:
        BadInputError: says which, beside what, and what to do.
    """
    for rule in rules:
        for option in rule.options:
            if typed(option):
                why = rule.useless(values)
                if why is not None:
                    raise BadInputError(f"{_flag(option)}: has no effect {why}; leave it out")


def check_output(target: Path, option: str = "out", *, folder: bool = False) -> None:
    """Refuse an output that could not be written, without touching it.

    Args:
        target: a file, or a folder that is made if it is missing.
        option: that names it.
        folder: whether it is a folder.

    Raises:
        BadInputError: says why.
    """
    from wastenot.core.files import check_writable, check_writable_folder

    try:
        (check_writable_folder if folder else check_writable)(target)
    except (BadInputError, OSError) as error:
        raise BadInputError(f"{_flag(option)} {error}") from error
