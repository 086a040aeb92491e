"""``wastenot serve control``: clocks of servers that run, set by what they say of themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    AssumedClocksOption,
    ClockControlOptions,
    FiguresOption,
    JsonOption,
    OtlpOption,
    OutOption,
    PageOption,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from wastenot.serving.control.instance import Event, Rules
    from wastenot.serving.control.replay import Replay


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What would have been saved, by the history of the servers' metrics."""

    replay: Annotated[
        str | None,
        option("Say what would have been saved in the last hours, by the metrics that this Prometheus kept.", "URL"),
    ] = None
    hours: Annotated[float, option("Hours to look back.", "X")] = 1.0
    out: OutOption = None
    page: PageOption = None
    figures: FiguresOption = None


def serve_control(
    replay_options: ReplayOptions,
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
    otlp: OtlpOption = None,
    assumed_clocks: AssumedClocksOption = False,
    *,
    clock_control: ClockControlOptions,
    as_json: JsonOption = False,
) -> None:
    """Set the clocks of running LLM servers from their metrics.

    Reads each server's load and latencies (vLLM's metrics, also SGLang's and TensorRT-LLM's), and chooses the lowest-power
    clock that meets the deadlines according to the engine's profile; if measured latencies miss them, it raises the
    clock. Without --allow-clock-control it only says what it would do. If metrics stop or make no sense, the clocks return
    to the driver's defaults within 10 s, as they do however this ends. With --json each event is a line on stdout.
    With --replay it sets nothing, and says what it would have saved.
    """
    from wastenot.serving.cli.simulate_engine import deadlines_of
    from wastenot.serving.control.instance import Rules
    from wastenot.serving.control.placement import placements
    from wastenot.serving.control.verbs import control, print_event
    from wastenot.serving.documents import event_document
    from wastenot.serving.model.profile_file import read_engine
    from wastenot.terminal.output import say

    rules = Rules(deadlines_of(ttft, tbt, None, share), headroom, stale_after, not clock_control.allow_clock_control)
    if replay_options.replay is not None:
        named = _degrees(instance or (), instances)
        _replay(engine, replay_options, named, rules, step_tokens, assumed_clocks=assumed_clocks, as_json=as_json)
        return
    profile = read_engine(engine)
    devices = {
        url: [clock_control.open_device(name, seed=0, workload=None) for name in names]
        for url, names in placements(instance or (), instances).items()
    }
    if rules.dry_run:
        say("no clocks are set without --allow-clock-control; what would be set is shown")

    def tell(event: Event) -> None:
        if "metrics_port" in event.values:
            say(event.text)
        elif as_json:
            print(json.dumps(event_document(event), ensure_ascii=False, allow_nan=False), flush=True)
        else:
            print_event(event)

    control(
        profile,
        devices,
        rules,
        prometheus=prometheus,
        period_s=period,
        step_tokens=step_tokens,
        duration_s=duration,
        hook=hook,
        metrics=None if metrics_port is None else (metrics_host, metrics_port),
        otlp=otlp,
        assumed_clocks=assumed_clocks,
        tell=tell,
    )


def _degrees(named: Sequence[str], path: Path | None) -> dict[str, int | None]:
    """The GPUs of each server: of those named by address, and of others named by their label in Prometheus."""
    from wastenot.serving.control.placement import placements

    addresses = [each for each in named if "://" in each]
    placed = placements(addresses, path) if addresses or path is not None else {}
    labels: dict[str, int | None] = {each: None for each in named if "://" not in each}
    return {url: len(names) or None for url, names in placed.items()} | labels


def _replay(
    engine: Path,
    asked: ReplayOptions,
    instances: dict[str, int | None],
    rules: Rules,
    step_tokens: int | None,
    *,
    assumed_clocks: bool,
    as_json: bool,
) -> None:
    from wastenot.core.values import json_text
    from wastenot.serving.control.verbs import replay
    from wastenot.terminal.output import console, say, typed_command, without_passwords
    from wastenot.terminal.written_page import write_page

    assert asked.replay is not None
    found = replay(
        engine, asked.replay, instances, rules, hours=asked.hours, step_tokens=step_tokens, assumed_clocks=assumed_clocks
    )
    if asked.out is not None:
        found.write(asked.out)
        say(f"{asked.out}: written")
    if asked.page is not None or asked.figures is not None:
        write_page(found.drawn(), asked.page, asked.figures, command=without_passwords(typed_command(str(engine))))
    if as_json:
        print(json_text(found.document()))
    else:
        console().print(replay_text(found))


def replay_text(found: Replay) -> RenderableType:
    """A replay, for a terminal: what would have been saved, what it costs, and how far to trust it."""
    from wastenot.serving.page.replay_words import amounts, effect_text, notes, of_servers, servers_table
    from wastenot.terminal.tables import Group, Text, headline, rich_table

    hours = f"the last {found.hours:g} h"
    head = headline(found.model or "engine", found.device or "an unnamed device", found.evidence, hours)
    saving = f"{effect_text(found)} of {of_servers(found)}, {' of '.join(amounts(found))} (by the profile)"
    table = rich_table(servers_table(found), ("Clock changes", "Counted", "Clock most of the time"))
    return Group(head, Text(saving, style="bold"), "", table, "", *(Text(f"- {note}") for note in notes(found)))
