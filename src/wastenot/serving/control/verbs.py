"""The verbs that control LLM servers, and that tell what it would have saved: ``wn.serve.control``, ``wn.serve.replay``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.wording import counted

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.serving.control.hook import Hook
    from wastenot.serving.control.instance import Event, Instance, Rules, Tell
    from wastenot.serving.control.replay import Replay
    from wastenot.serving.model.profile_file import EngineProfile


def control(
    engine: PathLike | EngineProfile,
    instances: Mapping[str, Sequence[str | Device]],
    rules: Rules | None = None,
    *,
    prometheus: str | None = None,
    period_s: float = 1.0,
    step_tokens: int | None = None,
    duration_s: float | None = None,
    hook: str | None = None,
    metrics: tuple[str, int] | None = None,
    otlp: str | None = None,
    assumed_clocks: bool = False,
    tell: Tell | None = None,
) -> None:
    """Set the clocks of running LLM servers by their metrics, until it is interrupted.

    Clocks are set in this thread, which holds the GPUs' leases: however it ends, they are the driver's again.

    Args:
        engine: of the servers, or its file, which :meth:`EngineProfile.write` and ``wastenot serve profile --out`` write.
        instances: the GPUs of each server by its address, such as ``{"http://localhost:8000": ["nvidia:0"]}``; a server
            without GPUs is only watched. For clocks to be set, open them with ``allow_clock_control``
            (:func:`wastenot.open_device`).
        rules: deadlines, headroom and the age of a reading that is of no use; by default nothing is set (``dry_run``).
        prometheus: address of a Prometheus to read the servers' metrics from, instead of from themselves.
        period_s: between two readings of a server.
        step_tokens: most new tokens of a step of the servers; by default the profile's.
        duration_s: after which it ends; by default never.
        hook: address to which recommended numbers of instances are posted, as JSON.
        metrics: host and port at which what is done is served to Prometheus; port 0 takes a free one.
        otlp: OpenTelemetry collector that the same is sent to, such as ``http://localhost:4318``.
        assumed_clocks: also choose clocks that were neither measured nor fitted, whose steps' cost is assumed.
        tell: receives each event, beginning with ``began``; by default they are printed.

    Raises:
        BadInputError: an argument or a file cannot be used.
        ClocksRefusedError: this process may not set the clocks of a GPU.
        DeviceError: a GPU does not respond, or another process controls it.
    """
    from wastenot.serving.control.control import control as run, held
    from wastenot.serving.control.hook import Hook
    from wastenot.serving.control.instance import Event, Rules
    from wastenot.serving.control.placement import check_placements
    from wastenot.serving.control.recommender import Recommender
    from wastenot.serving.control.sources import DirectSource, PrometheusSource, followed

    rules, tell = rules or Rules(), tell or print_event
    _check(period_s, rules)
    profiled = _with_steps(engine, step_tokens)
    profiled = profiled if assumed_clocks else profiled.within_known_clocks()
    check_placements({url: [_name(each) for each in devices] for url, devices in instances.items()})
    told_to = None if hook is None else Hook(hook)
    controlled = [_instance(url, devices, profiled, rules, tell) for url, devices in instances.items()]
    urls = [each.name for each in controlled]
    source = DirectSource(urls, period_s) if prometheus is None else PrometheusSource(prometheus, urls, period_s)
    recommender = Recommender(controlled, profiled.engines, rules, _also_to(told_to, tell))

    def each_tick(now_s: float) -> None:
        recommender.look(now_s)
        news = None if told_to is None else told_to.news()
        if news is not None:
            tell(Event("note", news))

    over_s = None if duration_s is None else time.monotonic() + duration_s
    with ExitStack() as stack:
        if metrics is not None:
            from wastenot.control.metrics import serve_registry
            from wastenot.serving.control.own_metrics import control_registry

            host, port = metrics
            port = stack.enter_context(serve_registry(port, control_registry(controlled), host=host))
            tell(Event("note", f"metrics: http://{host}:{port}/metrics", values={"metrics_port": port}))
        if otlp is not None:
            from wastenot.control.open_telemetry import sent_metrics
            from wastenot.serving.control.own_metrics import control_registry

            stack.enter_context(sent_metrics(otlp, control_registry(controlled), lambda text: tell(Event("note", text))))
        stack.enter_context(nullcontext() if rules.dry_run else held(controlled))
        if told_to is not None:
            stack.enter_context(told_to.running())
        heard = stack.enter_context(followed(source))
        gpus = sum(len(each.devices) for each in controlled)
        began = f"{counted(len(controlled), 'server')} of {profiled.model} on {counted(gpus, 'GPU')}"
        tell(Event("began", began, values={"instances": urls, "dry_run": rules.dry_run}))
        run(controlled, heard, stop=lambda: over_s is not None and time.monotonic() >= over_s, each_tick=each_tick)
    tell(Event("ended", "no clock was set" if rules.dry_run else "the clocks are back under the driver's control"))


def replay(
    engine: PathLike | EngineProfile,
    prometheus: str,
    instances: Mapping[str, int | None] | None = None,
    rules: Rules | None = None,
    *,
    hours: float = 1.0,
    step_tokens: int | None = None,
    assumed_clocks: bool = False,
) -> Replay:
    """What :func:`control` would have saved in the last hours, by the metrics that Prometheus kept. Sets nothing.

    The controller that runs live hears each scrape at its time. Energies, and times between tokens, at its clocks and at the
    default clocks are the profile's, at the rate at which the server made tokens.

    Args:
        engine: of the servers, or its file.
        prometheus: its address.
        instances: servers by address or ``instance`` label in Prometheus, each with its number of GPUs (``None``: the
            least of the profile); by default the only server there is.
        rules: deadlines and headroom.
        hours: to look back, at most a day.
        step_tokens: most new tokens of a step of the servers; by default the profile's.
        assumed_clocks: also choose clocks that were neither measured nor fitted, whose steps' cost is assumed.

    Raises:
        BadInputError: an argument or a file cannot be used, Prometheus does not answer, or has no such metrics.
    """
    import asyncio

    from wastenot.serving.control.history import read_histories
    from wastenot.serving.control.instance import Rules
    from wastenot.serving.control.replay import Replay, replayed
    from wastenot.serving.control.sources import host_of

    rules = rules or Rules()
    _check(1.0, rules)
    profiled = _with_steps(engine, step_tokens)
    profiled = profiled if assumed_clocks else profiled.within_known_clocks()
    gpus = [None] if not instances else list(instances.values())
    engines = [profiled.engine(each) for each in gpus]
    histories = asyncio.run(read_histories(prometheus, list(instances or ()), hours))
    return Replay(
        profiled.model,
        profiled.device,
        profiled.engines[0].tables.evidence,
        hours,
        rules.deadlines,
        rules.headroom,
        tuple(replayed(history, of, rules) for history, of in zip(histories, engines, strict=True)),
        host_of(prometheus),
        os.fspath(engine) if isinstance(engine, str | os.PathLike) else "",
    )


def print_event(event: Event) -> None:
    """Print an event on a line, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {event.text}", flush=True)


def _name(device: str | Device) -> str:
    return device if isinstance(device, str) else device.identity.name


def _with_steps(engine: PathLike | EngineProfile, step_tokens: int | None) -> EngineProfile:
    """The profile, with the servers' own budget of a step where it is given."""
    from wastenot.serving.model.profile_file import read_engine

    profiled = read_engine(engine) if isinstance(engine, str | os.PathLike) else engine
    if step_tokens is None:
        return profiled
    return replace(profiled, engines=tuple(replace(each, most_step_tokens=step_tokens) for each in profiled.engines))


def _check(period_s: float, rules: Rules) -> None:
    if not 0.05 <= period_s <= 4.0:
        raise BadInputError(f"`period_s` {period_s:g} s: must be at least 50 ms and at most 4 s")
    if not 0.0 <= rules.headroom < 1.0:
        raise BadInputError(f"`headroom` {rules.headroom:g}: must be at least 0 and below 1")
    if not period_s < rules.stale_s <= 600.0:
        raise BadInputError(f"`stale_s` {rules.stale_s:g} s: must be longer than `period_s`, and at most 600 s")


def _instance(url: str, named: Sequence[str | Device], profiled: EngineProfile, rules: Rules, tell: Tell) -> Instance:
    from wastenot.devices.open import open_device
    from wastenot.serving.cluster.seen_load import SeenLoad, rule_of
    from wastenot.serving.control.instance import Instance

    devices = tuple(open_device(each) if isinstance(each, str) else each for each in named)
    engine = profiled.engine(len(devices) or None)
    rule_of(SeenLoad(1.0, 256.0, 256.0, 64.0, 256.0), engine, rules.deadlines)  # compiles before a reading waits
    return Instance(url, devices, engine, rules, tell)


def _also_to(hook: Hook | None, tell: Tell) -> Tell:
    """Tell the hook, too; it is sent the documents that ``--json`` prints."""
    if hook is None:
        return tell

    def both(event: Event) -> None:
        from wastenot.serving.documents import event_document

        tell(event)
        hook.send(event_document(event))

    return both
