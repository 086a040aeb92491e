"""What ``--help`` shows beside options: where to begin, verbs by what one wants, and examples of each verb."""

from __future__ import annotations

from copy import copy
from typing import Any

from typer.core import TyperCommand, TyperGroup

from wastenot.core.processes import Terminated
from wastenot.terminal.option_rules import check_before_work
from wastenot.terminal.output import say

NOTHING_KEPT = (
    "validate", "transfer", "sensor", "steer", "profile", "profiles", "calibrate", "forecast", "capture", "plan", "frontier",
    "compare", "report", "recommend", "recur",
)  # fmt: skip
"""Verbs that work for a while and write only in the end."""

BEGIN = {
    "wastenot demo": "A first look, with a page to read; needs no GPU.",
    "wastenot doctor": "What this machine can measure, and the next command.",
    "wastenot run gpt3-xl": "The whole loop on a simulated GPU, in a minute.",
}

VERBS = {
    "All in one go": ("run", "demo", "reproduce"),
    "Know what runs": ("workloads", "workload", "capture"),
    "Measure": ("sweep", "natural", "profile", "monitor", "serve-bench", "import"),
    "Decide": ("plan", "frontier", "compare", "forecast", "iteration", "pairs", "pipeline"),
    "Put a plan to work": ("apply", "tune", "straggler"),
    "Serve LLMs": ("engine", "recommend", "steer", "serve-sim", "serve-control"),
    "Training jobs that come back": ("jobs", "job", "recur"),
    "Check a plan": ("validate", "refine", "transfer", "diff"),
    "Show and pass on": ("report", "show", "profiles", "export"),
    "Look after devices": ("doctor", "sensor", "latency", "calibrate", "reset"),
}
"""Every verb, in the order in which ``wastenot --help`` lists them."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("wastenot demo",),
    "doctor": ("wastenot doctor",),
    "run": ("wastenot run gpt3-xl", "wastenot run llama-8b --device sim:h200 --max-slowdown 2%"),
    "workloads": ("wastenot workloads",),
    "workload": ("wastenot workload gpt3-xl --device sim:h200", "wastenot workload mine.json"),
    "capture": ("wastenot capture train.py:step --out mine.json",),
    "sweep": (
        "wastenot sweep gpt3-xl --device sim:rtx-3080-ti --study my.db",
        "wastenot sweep mine.json --device nvidia:0 --clocks auto --study my.db",
    ),
    "serve-bench": (
        "wastenot serve-bench http://localhost:8000 --batch 8,16,32,64 --study server.db",
        "wastenot serve-bench http://localhost:8000 --rate 4 --prompt-tokens 1000 --output-tokens 200",
        "wastenot serve-bench http://gpu-node:8000 --meter http://gpu-node:9400/metrics --meter-gpus 0,1",
    ),
    "natural": ("wastenot natural gpt3-xl --device nvidia:0",),
    "profile": ("wastenot profile gemm:8192 --device sim:mi300x --out gemm.parquet --report gemm.html",),
    "monitor": ("wastenot monitor -- python train.py",),
    "import": (
        'wastenot import sweep.csv --study my.db --device-name "RTX 3080 Ti"',
        "cat sweep.csv | wastenot import - --study my.db --workload mine",
        "wastenot import ml-energy-h100.csv --study servers.db",
    ),
    "plan": (
        "wastenot plan --study my.db --max-slowdown 2% --out plan.json",
        "wastenot plan --study my.db --granularity iteration",
    ),
    "apply": (
        "wastenot apply plan.json -- torchrun --nproc-per-node 8 train.py",
        "wastenot apply plan.json --device sim:rtx-3080-ti --iterations 500",
        "wastenot apply --status",
    ),
    "straggler": (
        "wastenot straggler pipeline.json --replicas 4",
        "wastenot straggler --tell 20% --replica 1 --for 10min",
        "wastenot straggler --status",
    ),
    "tune": (
        "wastenot tune --max-slowdown 2% --out plan.json -- python train.py",
        "wastenot tune --device sim:h200 --workload gpt3-xl --max-slowdown 2%",
    ),
    "engine": (
        "wastenot engine llama-8b --device sim:h200 --out engine.json",
        "wastenot engine llama-70b --device sim:h200 --degrees 2,4,8 --study kernels.db",
        "wastenot engine steps.csv --out engine.json --page engine.html",
        "wastenot engine engine.json --context 4096",
    ),
    "steer": (
        "wastenot steer engine.json --trace requests.csv --load 50%",
        "wastenot steer engine.json --trace requests.csv --rate 4 --policy greenllm --page steer.html",
    ),
    "serve-sim": (
        "wastenot serve-sim --example",
        "wastenot serve-sim scenario.toml --page cluster.html",
    ),
    "serve-control": (
        "wastenot serve-control engine.json --instance http://localhost:8000=nvidia:0",
        "wastenot serve-control engine.json --instances servers.toml --prometheus http://localhost:9090 --json",
    ),
    "recommend": (
        "wastenot recommend ml-energy.csv --task lm-arena-chat --itl 50ms",
        "wastenot recommend server.db --itl 50ms --ttft 500ms --percentile p99 --unit money --gpu-hour 2.50",
        "wastenot recommend ml-energy.csv --model Llama-3.1-8B --clocks engine.json --itl 50ms --page choice.html",
    ),
    "recur": (
        "wastenot recur --made-up 1 --seeds 5",
        "wastenot recur summary_train.csv summary_power.csv --job squad/bert --target 84 --default 32",
    ),
    "jobs": ("wastenot jobs --study jobs.db",),
    "job": (
        "wastenot job bert-nightly --study jobs.db --page bert.html",
        "wastenot job bert-nightly --study jobs.db --within 2h",
    ),
    "frontier": ("wastenot frontier --study my.db --bounds 0,1%,2%",),
    "compare": ("wastenot compare --study my.db",),
    "forecast": ("wastenot forecast --study my.db --max-slowdown 2%",),
    "iteration": ("wastenot iteration --study my.db",),
    "pairs": ("wastenot pairs --study my.db --most 5",),
    "pipeline": (
        "wastenot pipeline gpt3-175b --stages 8 --micro-batches 48 --device sim:h200 --out pipeline.json",
        "wastenot pipeline profile.csv --micro-batches 48 --waiting-power 70 --straggler 20%",
    ),
    "validate": ("wastenot validate --study my.db --plan plan.json --out checked.json",),
    "refine": ("wastenot refine --study my.db --device sim:rtx-3080-ti",),
    "transfer": ("wastenot transfer --plan plan.json --device sim:rtx-3080-ti --batch 40,20,10",),
    "diff": ("wastenot diff plan.json checked.json",),
    "report": (
        "wastenot report --study my.db --out report.html --figures figures",
        "wastenot report --study my.db --plan checked.json --out checked.html",
        "wastenot report --applied run.json --out run.html",
        "wastenot report --pipeline pipeline.json --out pipeline.html",
    ),
    "show": ("wastenot show --study my.db",),
    "profiles": ("wastenot profiles gemm.parquet softmax.parquet --report together.html",),
    "export": ("wastenot export sweep.csv --study my.db", "wastenot export - --study my.db | head"),
    "sensor": ("wastenot sensor --device sim:mi300x --out sensors.json",),
    "latency": (
        "wastenot latency --device sim:h200 --study my.db",
        "wastenot latency --device nvidia:0 --allow-clock-control --dry-run",
    ),
    "calibrate": ("wastenot calibrate --study my.db --out my-gpu.toml",),
    "reset": ("wastenot reset",),
    "reproduce": ("wastenot reproduce --out reproduction",),
}
"""Commands that work as they stand, beside the files that they name; the tests run or parse each."""


class Verb(TyperCommand):
    """A verb whose help ends with examples."""

    def get_params(self, ctx: Any) -> Any:
        """Its parameters; while a shell completes, they leave values as they are typed."""
        return _unread(super().get_params(ctx), ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run it, unless its options have no effect together or its outputs cannot be written."""
        metavars = {parameter.name: parameter.metavar for parameter in self.params}
        check_before_work(self.name or "", ctx.params, lambda name: _typed(ctx, name), metavars)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if error.args or self.name in NOTHING_KEPT:
                say(str(error) or "nothing was kept; to do it again, run the same command")
            raise
        except Terminated:
            if self.name in NOTHING_KEPT:
                say("nothing was kept; to do it again, run the same command")
            raise

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            for line in EXAMPLES.get(self.name or "", ()):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Verbs(TyperGroup):
    """All verbs, by what one wants."""

    def get_params(self, ctx: Any) -> Any:
        """As those of a verb."""
        return _unread(super().get_params(ctx), ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb; a workload in its place is told from a verb misspelt."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            from wastenot.workloads.models import MODELS

            name = args[0]
            if name == "help":
                ctx.fail("write 'wastenot --help', or 'wastenot VERB --help'")
            if name in MODELS or name.endswith((".json", ".db")):
                verb = "show --study" if name.endswith(".db") else "run" if name in MODELS else "workload"
                ctx.fail(f"'{name}' is not a command; did you mean 'wastenot {verb} {name}'?")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write where to begin, the verbs in groups, and the few options last."""
        with formatter.section("Where to begin"):
            formatter.write_dl([(line, what) for line, what in BEGIN.items() if line.split()[1] in self.commands])
        width = max(map(len, self.commands))
        for title, names in VERBS.items():
            there = [(f"{name:<{width}}", self.commands[name]) for name in names if name in self.commands]
            with formatter.section(title):
                limit = formatter.width - width - 6
                formatter.write_dl([(name, verb.get_short_help_str(limit)) for name, verb in there])
        options: list[Any] = [option.get_help_record(ctx) for option in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Say where more stands."""
        formatter.write_paragraph()
        formatter.write_text("'wastenot VERB --help' shows the options of a verb, and examples.")


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
