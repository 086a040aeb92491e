"""What ``--help`` shows beside options: everyday commands, subjects, and examples of each command."""

from __future__ import annotations

from copy import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

from wastenot.core.processes import Terminated
from wastenot.core.suggest import nearest
from wastenot.terminal.option_rules import check_before_work
from wastenot.terminal.output import say

NOTHING_KEPT = (
    "report", "kernel validate", "kernel transfer", "kernel forecast", "kernel capture", "kernel plan", "kernel frontier",
    "profile run", "profile compare", "job replay", "serve recommend", "serve simulate", "device sensor", "device calibrate",
)  # fmt: skip
"""Commands that work for a while and write only in the end."""

EVERY_DAY = ("demo", "samples", "doctor", "monitor", "apply", "tune", "show", "report", "diff")
"""Commands without a subject, in the order in which ``wastenot --help`` lists them."""

GROUPS = {
    "kernel": "Sweep a model's kernels, plan their clocks, validate the plan.",
    "profile": "Profile the power inside a kernel (FinGraV).",
    "pipeline": "Plan the clocks of pipeline-parallel training.",
    "job": "Recurring training jobs: what they cost, and what to try next.",
    "serve": "LLM servers: measure, recommend, simulate, control.",
    "study": "Import measurements into a study, and export them.",
    "device": "Power sensors, switching latency, calibration, reset.",
}
"""What the commands of each subject are for."""

REPLACED = {
    **dict.fromkeys(("run", "sweep", "plan", "validate", "refine", "transfer", "forecast", "natural", "frontier",
                     "iteration", "pairs", "capture", "workloads"), "kernel"),
    "compare": "kernel frontier --compare", "workload": "kernel workloads", "profiles": "profile compare",
    "straggler": "pipeline straggler", "jobs": "job list", "recur": "job replay", "engine": "serve profile",
    "steer": "serve simulate", "serve-sim": "serve simulate", "serve-bench": "serve bench", "serve-control": "serve control",
    "recommend": "serve recommend", **dict.fromkeys(("import", "export"), "study"),
    **dict.fromkeys(("sensor", "latency", "calibrate", "reset"), "device"),
}  # fmt: skip
"""By a command's former name its new one, or the subject that it went to under the same name."""

_WAS_A_COMMAND = {"profile": "run", "pipeline": "plan", "job": "show"}
"""Subjects whose names were commands formerly, and what these are called now."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("wastenot demo",),
    "samples": ("wastenot samples", "wastenot samples --all", "wastenot samples requests.csv engine.json"),
    "doctor": ("wastenot doctor",),
    "kernel run": ("wastenot kernel run gpt3-xl", "wastenot kernel run llama-8b --device sim:h200 --max-slowdown 2%"),
    "kernel workloads": ("wastenot kernel workloads", "wastenot kernel workloads gpt3-xl --device sim:h200"),
    "kernel capture": ("wastenot kernel capture train.py:step --out mine.json",),
    "kernel sweep": (
        "wastenot kernel sweep gpt3-xl --device sim:rtx-3080-ti --study my.db",
        "wastenot kernel sweep mine.json --device nvidia:0 --clocks auto --study my.db",
    ),
    "serve bench": (
        "wastenot serve bench http://localhost:8000 --batch 8,16,32,64 --study server.db",
        "wastenot serve bench http://localhost:8000 --rate 4 --prompt-tokens 1000 --output-tokens 200",
        "wastenot serve bench http://gpu-node:8000 --meter http://gpu-node:9400/metrics --meter-gpus 0,1",
    ),
    "kernel natural": ("wastenot kernel natural gpt3-xl --device nvidia:0",),
    "profile run": ("wastenot profile run gemm:8192 --device sim:mi300x --out gemm.parquet --page gemm.html",),
    "monitor": ("wastenot monitor -- python train.py",),
    "study import": (
        'wastenot study import sweep.csv --study my.db --device-name "RTX 3080 Ti"',
        "cat sweep.csv | wastenot study import - --study my.db --workload mine",
        "wastenot study import leaderboard.csv --study servers.db",
    ),
    "kernel plan": (
        "wastenot kernel plan --study my.db --max-slowdown 2% --out plan.json",
        "wastenot kernel plan --study my.db --granularity iteration",
    ),
    "apply": (
        "wastenot apply plan.json -- torchrun --nproc-per-node 8 train.py",
        "wastenot apply plan.json --device sim:rtx-3080-ti --iterations 500",
        "wastenot apply --status",
    ),
    "pipeline straggler": (
        "wastenot pipeline straggler pipeline.json --replicas 4",
        "wastenot pipeline straggler --tell 20% --replica 1 --for 10min",
        "wastenot pipeline straggler --status",
    ),
    "tune": (
        "wastenot tune --max-slowdown 2% --out plan.json -- python train.py",
        "wastenot tune --device sim:h200 --workload gpt3-xl --max-slowdown 2%",
    ),
    "serve profile": (
        "wastenot serve profile llama-8b --device sim:h200 --out engine.json",
        "wastenot serve profile llama-70b --device sim:h200 --degrees 2,4,8 --study kernels.db",
        "wastenot serve profile steps.csv --out engine.json --page engine.html",
        "wastenot serve profile engine.json --context 4096",
        "wastenot serve profile engine.json --from steps.jsonl --out corrected.json",
    ),
    "serve simulate": (
        "wastenot serve simulate engine.json --trace requests.csv --load 50%",
        "wastenot serve simulate engine.json --trace requests.csv --rate 4 --policy greenllm --page steer.html",
        "wastenot serve simulate --example",
        "wastenot serve simulate scenario.toml --page cluster.html",
    ),
    "serve control": (
        "wastenot serve control engine.json --instance http://localhost:8000=nvidia:0",
        "wastenot serve control engine.json --instances servers.toml --prometheus http://localhost:9090 --json",
        "wastenot serve control engine.json --replay http://localhost:9090 --hours 1",
    ),
    "serve recommend": (
        "wastenot serve recommend leaderboard.csv --task chat --itl 50ms",
        "wastenot serve recommend server.db --itl 50ms --ttft 500ms --percentile p99 --unit money --gpu-hour 2.50",
        "wastenot serve recommend leaderboard.csv --model llama-8b --clocks engine.json --itl 50ms --page choice.html",
    ),
    "job replay": (
        "wastenot job replay --made-up 1 --seeds 5",
        "wastenot job replay summary_train.csv summary_power.csv --job digits/mlp --target 0.9 --default 32",
    ),
    "job list": ("wastenot job list --study jobs.db",),
    "job show": (
        "wastenot job show bert-nightly --study jobs.db --page bert.html",
        "wastenot job show bert-nightly --study jobs.db --within 2h",
    ),
    "kernel frontier": (
        "wastenot kernel frontier --study my.db --bounds 0,1%,2%",
        "wastenot kernel frontier --study my.db --compare",
    ),
    "kernel forecast": ("wastenot kernel forecast --study my.db --max-slowdown 2%",),
    "kernel iteration": ("wastenot kernel iteration --study my.db",),
    "kernel pairs": ("wastenot kernel pairs --study my.db --most 5",),
    "pipeline plan": (
        "wastenot pipeline plan gpt3-175b --stages 8 --micro-batches 48 --device sim:h200 --out pipeline.json",
        "wastenot pipeline plan profile.csv --micro-batches 48 --waiting-power 70 --straggler 20%",
    ),
    "kernel validate": ("wastenot kernel validate --study my.db --plan plan.json --out checked.json",),
    "kernel refine": ("wastenot kernel refine --study my.db --device sim:rtx-3080-ti",),
    "kernel transfer": ("wastenot kernel transfer --plan plan.json --device sim:rtx-3080-ti --batch 40,20,10",),
    "diff": ("wastenot diff plan.json checked.json",),
    "report": (
        "wastenot report my.db --page report.html --figures figures",
        "wastenot report checked.json --study my.db --page checked.html",
        "wastenot report run.json --page run.html",
        "wastenot report pipeline.json --page pipeline.html",
    ),
    "show": ("wastenot show my.db",),
    "profile compare": ("wastenot profile compare gemm.parquet softmax.parquet --page together.html",),
    "study export": ("wastenot study export sweep.csv --study my.db", "wastenot study export - --study my.db | head"),
    "device sensor": ("wastenot device sensor --device sim:mi300x --out sensors.json",),
    "device latency": (
        "wastenot device latency --device sim:h200 --study my.db",
        "wastenot device latency --device nvidia:0 --allow-clock-control --dry-run",
    ),
    "device calibrate": ("wastenot device calibrate --study my.db --out my-gpu.toml",),
    "device list": ("wastenot device list",),
    "device reset": ("wastenot device reset",),
    "reproduce": ("wastenot reproduce --out reproduction",),
}
"""Commands that work as written, beside the files that they name; the tests run or parse each."""


class Command(TyperCommand):
    """A command whose help ends with examples."""

    def get_params(self, ctx: Any) -> Any:
        """Its parameters; while a shell completes, they leave values as they are typed."""
        return _unread(super().get_params(ctx), ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run it, unless its options have no effect together or its outputs cannot be written."""
        metavars = {parameter.name: parameter.metavar for parameter in self.params}
        words = _words(ctx)
        check_before_work(words, ctx.params, lambda name: _typed(ctx, name), metavars)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if error.args or words in NOTHING_KEPT:
                say(str(error) or "nothing was kept; to do it again, run the same command")
            raise
        except Terminated:
            if words in NOTHING_KEPT:
                say("nothing was kept; to do it again, run the same command")
            raise

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            for line in EXAMPLES.get(_words(ctx), ()):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(TyperGroup):
    """The commands of a subject."""

    def get_params(self, ctx: Any) -> Any:
        """As those of a command."""
        return _unread(super().get_params(ctx), ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Its command and the rest; where a subject was a command once, that one's arguments are told from a command."""
        now = _WAS_A_COMMAND.get(self.name or "")
        if now is not None and args and args[0] not in (*self.commands, "-h", "--help") and not ctx.resilient_parsing:
            ctx.fail(
                f"'{args[0]}' is not a command of 'wastenot {self.name}'; '{self.name}' is now '{ctx.command_path} {now}'"
            )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write its commands, then the few options."""
        self.write_sections(formatter)
        options: list[Any] = [option.get_help_record(ctx) for option in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def write_sections(self, formatter: Any) -> None:
        """Write its commands."""
        self.write_commands(formatter, "Commands", tuple(self.commands))

    def write_commands(self, formatter: Any, title: str, names: tuple[str, ...]) -> None:
        """Write what some of the commands do, each in a line."""
        width = max(map(len, self.commands))
        limit = formatter.width - width - 6
        with formatter.section(title):
            formatter.write_dl([(f"{name:<{width}}", self.commands[name].get_short_help_str(limit)) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Say where more stands."""
        formatter.write_paragraph()
        formatter.write_text(f"'{ctx.command_path} COMMAND --help' shows a command's options, and examples.")


class Commands(Group):
    """All commands: those of every day, and subjects."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command; a former name and a workload in its place are told from a command misspelt."""
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            if name in REPLACED:
                now = REPLACED[name]
                ctx.fail(f"'{name}' is now 'wastenot {now if ' ' in now else f'{now} {name}'}'")
            if name == "help":
                ctx.fail("write 'wastenot --help', or 'wastenot COMMAND --help'")
            from wastenot.workloads.models import MODELS

            if name in MODELS or name.endswith((".json", ".db")):
                command = "kernel run" if name in MODELS else "show"
                ctx.fail(f"'{name}' is not a command; did you mean 'wastenot {command} {name}'?")
            of_subjects_first = sorted(leaves(self), key=lambda words: -words.count(" "))
            known = {words.rpartition(" ")[2]: words for words in of_subjects_first}
            near = nearest(name, known)
            if near is not None:
                ctx.fail(f"No such command '{name}'; did you mean 'wastenot {known[near]}'?")
        return super().resolve_command(ctx, args)

    def write_sections(self, formatter: Any) -> None:
        """Write the commands of every day, and the subjects."""
        self.write_commands(formatter, "Every day", tuple(name for name in EVERY_DAY if name in self.commands))
        others = tuple(name for name in (*GROUPS, "reproduce") if name in self.commands)
        self.write_commands(formatter, "By subject", others)


def leaves(group: Any, before: str = "") -> dict[str, Any]:
    """Every command below a group, by the words that call it."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        words = f"{before} {name}".lstrip()
        found |= leaves(command, words) if hasattr(command, "commands") else {words: command}
    return found


def _words(ctx: Any) -> str:
    """The words of a command after ``wastenot``."""
    words: str = ctx.command_path.partition(" ")[2]
    return words


def _typed(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _unread(parameters: Any, ctx: Any) -> Any:
    """Parameters that do not convert their values where a shell only completes: Typer would load pydantic at each key."""
    if not ctx.resilient_parsing:
        return parameters
    unread = [copy(parameter) for parameter in parameters]
    for parameter in unread:
        parameter.process_value = lambda _, value: value
    return unread
