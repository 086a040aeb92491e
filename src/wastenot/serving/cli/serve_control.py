"""``wastenot serve control``: clocks of servers that run, set by what they say of themselves."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import ClockControlOptions, JsonOption

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.serving.control.hook import Hook
    from wastenot.serving.control.instance import Event, Instance, Rules, Tell
    from wastenot.serving.control.placement import Placement
    from wastenot.serving.model.profile_file import EngineProfile

SCHEMA = "wastenot.serve-control/1"


def serve_control(
    engine: Annotated[Path, argument("The servers' engine, as 'wastenot serve profile --out' writes it.", "ENGINE.json")],
    instance: Annotated[
        list[str] | None,
        option(
            "A server and its GPUs, such as http://localhost:8000=nvidia:0,nvidia:1; may be repeated. Without "
            "GPUs it is only watched.",
            "URL[=D,...]",
        ),
    ] = None,
    instances: Annotated[Path | None, option("The same, from a file: [[instance]] url, devices.", "FILE.toml")] = None,
    prometheus: Annotated[
        str | None, option("Read the servers' metrics from Prometheus instead of from the servers.", "URL")
    ] = None,
    period: Annotated[float, option("Time between two readings of a server.", "TIME", parser=quantities.seconds)] = 1.0,
    step_tokens: Annotated[
        int | None, option("Most new tokens per step of the servers; default: the profile's.", "N", min=1)
    ] = None,
    ttft: Annotated[
        str, option("Deadlines of the first token: one, or three by prompt length.", "TIME,...")
    ] = "250ms,400ms,2s",
    tbt: Annotated[float, option("Deadline between two tokens.", "TIME", parser=quantities.seconds)] = 0.1,
    share: Annotated[
        float, option("Share of first tokens, and of tokens, that must meet their deadlines.", "X", parser=quantities.share)
    ] = 0.99,
    headroom: Annotated[float, option("Share of each deadline to leave as headroom.", "X", parser=quantities.share)] = 0.15,
    stale_after: Annotated[
        float, option("Age at which a reading is no longer used.", "TIME", parser=quantities.seconds)
    ] = 8.0,
    duration: Annotated[
        float | None, option("Stop after this time; default: never.", "TIME", flag="--for", parser=quantities.seconds)
    ] = None,
    hook: Annotated[str | None, option("POST the recommended number of instances to this URL as JSON.", "URL")] = None,
    metrics_port: Annotated[int | None, option("Serve metrics to Prometheus on this port.", "PORT")] = None,
    metrics_host: Annotated[str, option("Listen there; 0.0.0.0 lets other machines read them.", "ADDRESS")] = "127.0.0.1",
    *,
    clock_control: ClockControlOptions,
    as_json: JsonOption = False,
) -> None:
    """Set the clocks of running LLM servers from their metrics.

    Reads each server's load and latencies (vLLM's metrics, also SGLang's and TensorRT-LLM's), and chooses the lowest-power
    clock that meets the deadlines according to the engine's profile; if measured latencies miss them, it raises the
    clock. Without --allow-clock-control it only says what it would do. If metrics stop or make no sense, the clocks return
    to the driver's defaults within 10 s, as they do however this ends. With --json each event is a line on stdout.
    """
    from wastenot.serving.cli.simulate_engine import deadlines_of
    from wastenot.serving.control.control import control, held
    from wastenot.serving.control.hook import Hook
    from wastenot.serving.control.instance import Event, Rules
    from wastenot.serving.control.placement import placements
    from wastenot.serving.control.recommender import Recommender
    from wastenot.serving.control.sources import DirectSource, PrometheusSource, followed
    from wastenot.terminal.output import say

    _check(period, headroom, stale_after)
    profile = _read(engine, step_tokens)
    placed = placements(instance or (), instances)
    rules = Rules(deadlines_of(ttft, tbt, None, share), headroom, stale_after, not clock_control.allow_clock_control)
    tell: Tell = _tell_json if as_json else _tell_text
    told_to = None if hook is None else Hook(hook)
    controlled = [_instance(each, profile, rules, tell, clock_control) for each in placed]
    urls = [each.url for each in placed]
    source = DirectSource(urls, period) if prometheus is None else PrometheusSource(prometheus, urls, period)
    if rules.dry_run:
        say("no clocks are set without --allow-clock-control; what would be set is shown")
    recommender = Recommender(controlled, profile.engines, rules, _also_to(told_to, tell))

    def each_tick(now_s: float) -> None:
        recommender.look(now_s)
        news = None if told_to is None else told_to.news()
        if news is not None:
            tell(Event("note", news))

    over_s = None if duration is None else time.monotonic() + duration
    with ExitStack() as stack:
        if metrics_port is not None:
            from wastenot.control.metrics import serve_registry
            from wastenot.serving.control.own_metrics import control_registry

            port = stack.enter_context(serve_registry(metrics_port, control_registry(controlled), host=metrics_host))
            say(f"metrics: http://{metrics_host}:{port}/metrics")
        stack.enter_context(nullcontext() if rules.dry_run else held(controlled))
        if told_to is not None:
            stack.enter_context(told_to.running())
        heard = stack.enter_context(followed(source))
        gpus = sum(len(each.devices) for each in placed)
        began = f"{counted(len(placed), 'server')} of {profile.model} on {counted(gpus, 'GPU')}"
        tell(Event("began", began, values={"instances": urls, "dry_run": rules.dry_run}))
        control(controlled, heard, stop=lambda: over_s is not None and time.monotonic() >= over_s, each_tick=each_tick)
    tell(Event("ended", "the clocks are back under the driver's control"))


def _read(path: Path, step_tokens: int | None) -> EngineProfile:
    """The profile, with the servers' own budget of a step where it is told."""
    from wastenot.serving.model.profile_file import read_engine

    profile = read_engine(path)
    if step_tokens is None:
        return profile
    return replace(profile, engines=tuple(replace(each, most_step_tokens=step_tokens) for each in profile.engines))


def _check(period: float, headroom: float, stale_after: float) -> None:
    if not 0.05 <= period <= 4.0:
        raise BadInputError(f"--period {period:g} s: must be at least 50 ms and at most 4 s")
    if not 0.0 <= headroom < 1.0:
        raise BadInputError(f"--headroom {headroom:g}: must be at least 0 and below 1")
    if not period < stale_after <= 600.0:
        raise BadInputError(f"--stale-after {stale_after:g} s: must be longer than --period, and at most 600 s")


def _instance(
    placed: Placement, profile: EngineProfile, rules: Rules, tell: Tell, clock_control: ClockControlOptions
) -> Instance:
    from wastenot.serving.cluster.seen_load import SeenLoad, rule_of
    from wastenot.serving.control.instance import Instance

    devices: list[Device] = [clock_control.open_device(name, seed=0, workload=None) for name in placed.devices]
    engine = profile.engine(len(devices) or None)
    rule_of(SeenLoad(1.0, 256.0, 256.0, 64.0, 256.0), engine, rules.deadlines)  # compiles before a reading waits
    return Instance(placed.url, tuple(devices), engine, rules, tell)


def _tell_text(event: Event) -> None:
    print(f"{time.strftime('%H:%M:%S')} {event.text}", flush=True)


def _also_to(hook: Hook | None, tell: Tell) -> Tell:
    def both(event: Event) -> None:
        tell(event)
        if hook is not None:
            hook.send(_document(event))

    return both


def _tell_json(event: Event) -> None:
    print(json.dumps(_document(event), ensure_ascii=False, allow_nan=False), flush=True)


def _document(event: Event) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "event": event.kind, "at_unix_s": round(time.time(), 3), "instance": event.instance or None,
        **event.values, "text": event.text,
    }  # fmt: skip
