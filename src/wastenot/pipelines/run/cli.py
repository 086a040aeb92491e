"""``wastenot pipeline straggler``: the server that tells pipelines to slow down while another one is slow."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.core.errors import BadInputError, DeviceError
from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption

if TYPE_CHECKING:
    from wastenot.pipelines.run.stragglers import Stragglers


def straggler(
    plan: Annotated[
        Path | None, argument("Serve this plan, made with 'wastenot pipeline plan --frontier'.", "[PLAN.json]")
    ] = None,
    replicas: Annotated[int | None, option("Number of pipeline replicas; default: the plan's.", "N")] = None,
    at: Annotated[str | None, option("Where the server listens; default: a socket of the user's.", "PATH|HOST:PORT")] = None,
    token_file: Annotated[Path | None, option("File with the token that ranks must present, for HOST:PORT.", "FILE")] = None,
    tell: Annotated[
        float | None, option("Tell the server that --replica is slower, such as 20%.", "X", parser=quantities.slowdown)
    ] = None,
    replica: Annotated[int | None, option("The pipeline that --tell or --clear is about, from 0.", "N")] = None,
    lasts: Annotated[
        float | None, option("Time for which --tell holds, such as 60s.", "S", flag="--for", parser=quantities.seconds)
    ] = None,
    clear: Annotated[bool, option("Forget what the server was told; only measurements count.")] = False,
    status: Annotated[bool, option("Show which pipelines are slow, and what each one runs.")] = False,
    stop: Annotated[bool, option("Stop the server; ranks keep their plans for at most 200 iterations.")] = False,
    *,
    as_json: JsonOption = False,
) -> None:
    """Slow pipelines down while they wait for a slower one.

    Ranks under apply report their iterations to the server that WASTENOT_STRAGGLER names. It detects which pipeline is
    slow, or is told, and answers the others with the plan of the frontier that finishes just in time, from the same
    iteration on for all.
    """
    from wastenot.pipelines.run.straggler_client import StragglerClient

    wanted = [name for name, is_wanted in _wants(plan, tell, clear=clear, status=status, stop=stop).items() if is_wanted]
    if len(wanted) != 1:
        what = "PLAN.json, --tell X, --clear, --status or --stop"
        raise BadInputError(f"give {'one of' if wanted else 'a plan to serve, or one of'} {what}")
    if lasts is not None and tell is None:
        raise BadInputError("--for: has no effect without --tell")
    if replica is not None and not (clear or tell is not None):
        raise BadInputError("--replica: has no effect without --tell or --clear")
    if replicas is not None and plan is None:
        raise BadInputError("--replicas: has no effect without PLAN.json")
    if plan is not None:
        _serve(plan, replicas, at, token_file)
        return
    if tell is not None and replica is None:
        raise BadInputError("--tell: which pipeline? give --replica N, counted from 0")
    server = StragglerClient(at, token_file)
    last = server.status() if stop and as_json else None
    if tell is not None and replica is not None:
        server.tell(replica, tell, lasts)
    elif clear:
        server.clear(replica)
    elif stop:
        server.stop()
    if status or as_json:
        _show(last or server.status(), as_json)
    else:
        typer.echo({"tell": "told", "clear": "cleared", "stop": "stopped"}[wanted[0]])


def _wants(plan: Path | None, tell: float | None, *, clear: bool, status: bool, stop: bool) -> dict[str, bool]:
    return {"serve": plan is not None, "tell": tell is not None, "clear": clear, "status": status, "stop": stop}


def _serve(path: Path, replicas: int | None, at: str | None, token_file: Path | None) -> None:
    from wastenot.pipelines.plan.plan_file import read_pipeline_plan
    from wastenot.pipelines.run.straggler_wire import ADDRESS, TOKEN_FILE
    from wastenot.pipelines.verbs import straggler as straggler_server
    from wastenot.terminal.output import say

    plan = read_pipeline_plan(path)
    number = plan.replicas if replicas is None else replicas
    server = straggler_server(plan, replicas=number, at=at, token_file=token_file)
    try:
        token = "" if token_file is None else f" {TOKEN_FILE}={token_file}"
        many = f"{number} replica{'' if number == 1 else 's'}"
        say(f"{path}: {len(plan.rungs)} plans, {many}; ranks need {ADDRESS}={server.address}{token}")
        signal.signal(signal.SIGTERM, lambda *_: server.stop())
        told = 0.0
        with server:
            while server.wait(0.5):
                told = _say_events(server.stragglers, told)
    finally:
        server.close()
    _say_events(server.stragglers, told)
    if server.problem is not None:
        raise DeviceError(
            f"the straggler server failed ({server.problem}); ranks run their own plans until it is started again"
        )


def _say_events(stragglers: Stragglers, after_s: float) -> float:
    from wastenot.terminal.output import say

    for event in [each for each in tuple(stragglers.events) if each["at_s"] > after_s]:
        after_s = event["at_s"]
        if event["kind"] != "left":
            say(f"replica {event['replica']}: {event['text']}")
    return after_s


def _show(status: dict[str, Any], as_json: bool) -> None:
    if as_json:
        from wastenot.terminal.output import print_json

        print_json("straggler", status)
        return
    at = "no iteration yet" if status["iteration"] is None else f"iteration {status['iteration']}"
    typer.echo(f"{status['plan']} ({status['origin']}), {at}: iteration deadline: {status['until_s']:.4g} s")
    for number, one in enumerate(status["replicas"]):
        said = "told" if one["told"] is not None else "not known yet" if one["measured"] is None else "measured"
        saved = 1.0 - one["energy_j"] / one["waiting_at_default_j"]
        throttled = "".join(f", {each}" for each in one["throttled"])
        typer.echo(
            f"  replica {number}: {100.0 * one['times_as_long'] - 100.0:+.1f} % ({said}{throttled})"
            f", {one['ranks']} of {one['of']} ranks"
            f", plan {one['rung'] + 1} of {status['rungs']}, {100.0 * saved:.1f} % less energy than waiting"
            " at the default clocks (predicted)"
        )
