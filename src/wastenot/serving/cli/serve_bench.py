"""``wastenot serve bench URL``: energy per token and latency of an LLM server."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wastenot.core.errors import DeviceError, StudyError
from wastenot.core.wording import counted
from wastenot.pages.formatting import duration
from wastenot.serving.cli.server_load import ServerLoadOptions
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import ClockControlOptions, DryRunOption, JsonOption, PowerLimitsOption

if TYPE_CHECKING:
    from wastenot.serving.bench.bench import ServerBench
    from wastenot.serving.bench.measure import ServerSweepOutcome
    from wastenot.serving.tables.records import ServingPoint


def serve_bench(
    url: Annotated[str, argument("A server with OpenAI's interface: http://localhost:8000.", "URL")],
    *,
    load_options: ServerLoadOptions,
    model: Annotated[str | None, option("Model to request; default: the first that the server lists.", "NAME")] = None,
    api: Annotated[
        Literal["completions", "chat"] | None, option("Streaming API to use; default: completions where the server has it.")
    ] = None,
    api_key: Annotated[
        str | None, option("API key, sent as a bearer token.", "KEY", envvar="OPENAI_API_KEY", show_envvar=True)
    ] = None,
    steady: Annotated[
        float, option("Minimum length of the steady state.", "TIME", parser=quantities.seconds, show_default="20s")
    ] = 20.0,
    study: Annotated[str | None, option("Keep the points in this study, and resume from it.", "FILE|URL")] = None,
    device: Annotated[
        str | None,
        option(
            "The server's GPUs on this machine, such as nvidia:0,nvidia:1; default: the only one. none: do not measure "
            "energy.",
            "D,...|none",
            autocompletion=completing.devices,
        ),
    ] = None,
    meter: Annotated[
        str | None, option("Where another machine serves its GPUs' energy, such as the address of dcgm-exporter.", "URL")
    ] = None,
    meter_gpus: Annotated[
        str | None, option("Which of the meter's GPUs serve the model, by index or UUID.", "N,...")
    ] = None,
    core: Annotated[
        quantities.Floats | None,
        option("Core clocks to measure besides the default clocks.", "MHZ,...", parser=quantities.clocks),
    ] = None,
    memory: Annotated[
        quantities.Floats | None, option("Memory clocks to combine with --core.", "MHZ,...", parser=quantities.clocks)
    ] = None,
    power_limit: PowerLimitsOption = None,
    gpu: Annotated[str | None, option("GPU model, if no meter reports it, such as H100.", "NAME")] = None,
    gpus: Annotated[int | None, option("Number of GPUs the engine runs on, if no meter reports it.", "N")] = None,
    tensor_parallel: Annotated[int | None, option("Tensor-parallel degree; default: the number of GPUs.", "N")] = None,
    precision: Annotated[str, option("Precision of the weights, such as bfloat16; kept with the points.", "NAME")] = "",
    task: Annotated[str | None, option("Name of the load in the study; default: its lengths.", "NAME")] = None,
    seed: Annotated[int, option("Seed of lengths and arrivals.", "N", min=0)] = 0,
    dry_run: DryRunOption = False,
    clock_control: ClockControlOptions,
    as_json: JsonOption = False,
) -> None:
    """Measure a running LLM server: energy per token, latency.

    Keeps requests running (--batch) or lets them arrive (--rate), and measures the steady state of each point: time to
    first token, time between tokens, tokens per second, and the GPUs' energy if there is a meter. Once a batch size is
    unstable, larger ones are skipped. With --study, points are saved as they are measured, and the same command resumes.
    """
    from wastenot.serving.bench.bench import prepare_bench
    from wastenot.serving.bench.measure import ServerSweepOutcome
    from wastenot.serving.bench.server import Target
    from wastenot.serving.cli.server_load import meter_of, server_gpus, settings_of
    from wastenot.terminal.output import say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress

    load, batches, rates_per_s = load_options.read(seed)
    devices, why_none = server_gpus(url, device, meter, clock_control)
    settings = settings_of(devices, core, memory, power_limit)
    energy = meter_of(devices, meter, meter_gpus)
    bench = prepare_bench(
        Target(url, model=model, api=api, key=api_key), load, study, batches=batches, rates_per_s=rates_per_s,
        meter=energy, devices=devices, settings=settings, steady_s=steady, task=task, gpu=gpu, gpus=gpus,
        tensor_parallel=tensor_parallel, precision=precision, seed=seed,
    )  # fmt: skip
    lines = _announcement(bench, why_none)
    if dry_run:
        _show_dry_run(bench, lines, study, as_json)
        return
    for line in lines:
        say(line)
    unkept = "the points so far are above; to keep them, and to resume: --study FILE"
    resume = unkept if study is None else resume_with("the same command", study)
    measured: list[ServingPoint] = []
    try:
        with kept_if_interrupted(resume), shown_progress(f"measuring {bench.served.model}") as progress:
            command = None if study is None else _without_secrets(typed_command(study))
            outcome = bench.run(progress=progress, command=command, each=measured.append)
    except (DeviceError, StudyError, KeyboardInterrupt) as error:
        if measured:  # what was measured is not lost for what went wrong after it
            so_far = ServerSweepOutcome(measured, measured=len(measured))
            _show(bench, study, so_far, as_json, fault=str(error) or "interrupted")
        raise
    _show(bench, study, outcome, as_json)
    if as_json:
        return
    for why, loads in _by_reason(outcome).items():
        say(f"left out: {loads}: {why}")
    for line in _next(outcome, study):
        say(line)


def _show(
    bench: ServerBench, study: str | None, outcome: ServerSweepOutcome, as_json: bool, fault: str | None = None
) -> None:
    from wastenot.serving.cli.serving_points import points_text
    from wastenot.terminal.output import console, print_json

    if as_json:
        print_json("serve-bench", _document(bench, study, outcome) | {"fault": fault})
    else:
        console().print(points_text(bench.served, outcome))


def _show_dry_run(bench: ServerBench, lines: Sequence[str], study: str | None, as_json: bool) -> None:
    from wastenot.core.values import as_values
    from wastenot.terminal.output import print_json, wrapped

    if as_json:
        meter = None if bench.meter is None else bench.meter.name
        part = {"points": as_values(bench.wanted), "todo": len(bench.todo), "device_s": bench.least_s}
        print_json("estimate", {"server": as_values(bench.served), "study": study, "meter": meter, "parts": [part]})
        return
    for line in (*lines, "  nothing was measured or written (--dry-run)"):
        print(wrapped(line, sys.stdout))


def _by_reason(outcome: ServerSweepOutcome) -> dict[str, str]:
    """Points that were left out, by why."""
    found: dict[str, list[str]] = {}
    for load, why in outcome.dropped:
        found.setdefault(why, []).append(str(load))
    return {why: ", ".join(loads) for why, loads in found.items()}


def _announcement(bench: ServerBench, why_none: str) -> list[str]:
    served, meter, points, todo = bench.served, bench.meter, len(bench.wanted), len(bench.todo)
    before = f", {points - todo:,} of them measured before" if todo < points else ""
    lines = [f"{served.model} at {served.source}, load {served.task}: {counted(points, 'point')}{before}"]
    if todo:
        lines.append(f"  about {duration(bench.least_s)} or more, depending on how long answers take")
    if meter is None:
        lines.append(f"  latency only, no energy: {why_none}")
    else:
        real = "" if meter.evidence == "measured" else f" ({meter.evidence})"
        lines.append(f"  energy of {counted(meter.gpus, 'GPU')} ({meter.gpu}) by {meter.name}{real}")
        if meter.evidence == "simulated":
            lines.append(
                "  the server does not run on the simulated GPU: its power is that of an idle one, not the server's"
            )
    return lines


def _without_secrets(command: str) -> str:
    """A command for a study to remember: of the server's key and of passwords in addresses it keeps nothing."""
    return re.sub(r"(https?://)[^/@\s']*@", r"\1", re.sub(r"(--api-key[= ])('[^']*'|\S+)", r"\1KEY", command))


def _document(bench: ServerBench, study: str | None, outcome: ServerSweepOutcome) -> dict[str, Any]:
    from wastenot.core.values import as_values
    from wastenot.serving.bench.measure import pareto

    best = pareto(outcome.points)
    return {
        "server": as_values(bench.served),
        "study": study,
        "meter": None if bench.meter is None else bench.meter.name,
        "measured": outcome.measured,
        "found": outcome.found,
        "points": [as_values(point) | {"server": dict(point.server), "pareto": point in best} for point in outcome.points],
        "dropped": [{"point": as_values(load), "why": why} for load, why in outcome.dropped],
    }


def _next(outcome: ServerSweepOutcome, study: str | None) -> list[str]:
    from wastenot.serving.tables.store import ServingStore
    from wastenot.study.store import open_study

    stable = [point for point in outcome.points if point.is_stable]
    if not stable:
        shorter = "where the server is too slow for the load, shorter prompts and answers (--prompt-tokens, --output-tokens)"
        return [f"no point is stable, and nothing can be recommended: the notes say why; {shorter}"]
    if study is None:
        return ["to keep these points and add to them: --study FILE"]
    if all(point.energy_per_token_j is None for point in stable):
        return []
    held = ServingStore(open_study(study)).points(stable_only=True)
    task = f" --task {shlex.quote(stable[0].task)}" if len({point.task for point in held}) > 1 else ""
    recommend = f"wastenot serve recommend {study} --itl {_deadline(stable)}{task}"
    how = "joules per request: --unit request"
    if any(point.evidence == "simulated" for point in stable):
        how = "by latency: no saving follows from the energy of a simulated GPU that idles"
    return [f"next: {recommend} ({how})"]


def _deadline(points: Sequence[ServingPoint]) -> str:
    """A deadline that some of the points meet and others do not."""
    gaps = sorted(point.itl.p50_s for point in points if point.itl.p50_s is not None)
    middle_ms = 1e3 * gaps[len(gaps) // 2] if gaps else 50.0
    return f"{max(1.05 * middle_ms, 1.0):.0f}ms"
