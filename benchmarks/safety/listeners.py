"""Messages without sense, to everything of wastenot that listens: the daemon, a session, and the straggler server.

A message is one that a program may send, with values, fields or bytes changed by chance. Afterwards no listener may have
failed, no clock may have been set that neither the policy nor the plan knows, and others must be served.
"""

from __future__ import annotations

import json
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.safety.daemon_messages import play
from benchmarks.safety.trial import Trial
from testbed.straggling import planned_frontier
from wastenot.control.session import Session
from wastenot.control.wire import SCHEMA as SESSION_SCHEMA, ask as ask_session
from wastenot.core.setting import AUTO, Setting
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.run.application import prepare_pipeline
from wastenot.pipelines.run.rung_follower import plan_at
from wastenot.pipelines.run.straggler_server import StragglerServer
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.pipelines.run.straggler_wire import SCHEMA, ask, parse_address
from wastenot.pipelines.run.stragglers import Stragglers

MESSAGES = 10_000  # to each
_OF_ONE = 8  # of a connection, which the first that makes no sense ends
_TOKEN = "0123456789abcdef"
_ANSWER_S = 10.0

_TO_SESSION: tuple[dict[str, Any], ...] = (
    {"hello": "rank", "schema": SESSION_SCHEMA, "process": 4711, "local_rank": 0, "program": "torch 2.11.0"},
    {"gpu": "GPU-1"},
    {"markers": ["forward", "backward", "iteration"], "at_s": 81.2},
    {"seen": {"parameters": 10**9, "dtype": "bfloat16", "tokens": 4096, "layers": 12}},
    {"pipeline_rank": 1, "environment": {"RANK": "1", "WORLD_SIZE": "2"}},
    {"ask": "status"},
)
_TO_STRAGGLERS: tuple[dict[str, Any], ...] = (
    {"hello": "rank", "schema": SCHEMA, "replica": 1, "rank": 1, "digest": ""},
    {"iteration": 17, "factor": 1.21, "throttled": "thermal"},
    {"ask": "status"},
    {"ask": "tell", "replica": 1, "slower": 0.2, "for_s": 60},
    {"ask": "clear", "replica": 1},
)


def main() -> Trial:
    """Send :data:`MESSAGES` to each."""
    failed: list[str] = []
    counts: dict[str, int] = {}
    for name, trial in (
        ("daemon", _daemon), ("session", _session), ("straggler_unix", _stragglers_unix), ("straggler_tcp", _stragglers_tcp)
    ):  # fmt: skip
        try:
            counts[name] = trial(random.Random(f"{name} 31"))
        except Exception as error:  # what a trial finds, whatever it is
            failed.append(f"{name}: {type(error).__name__}: {error}")
    return Trial(sum(counts.values()), failed, counts)


def _daemon(rng: random.Random) -> int:
    count = 0
    while count < MESSAGES:
        count += play(rng)
    return count


def _session(rng: random.Random) -> int:
    """A rank that the plan does not have ends the plan, by design; then the clocks are back at once, and another begins."""
    plan = planned_frontier()
    graphs = [PlanGraph(plan_at(plan, rung)) for rung in range(len(Rungs(plan)))]
    allowed = {AUTO} | {
        stay.setting for graph in graphs for rank in range(2) for step in graph.steps(rank) for stay in step.stays
    }
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WASTENOT_RUNTIME"] = folder
        while count < MESSAGES:
            with prepare_pipeline(plan, ["sim:h200", "sim:h200"]).session() as session:
                count += _sent(
                    rng, str(session.path), _TO_SESSION, partial(_session_goes_on, session, allowed), MESSAGES - count
                )
                gpus = session.gpus
            assert all(gpu.engine.requested == AUTO for gpu in gpus), "clocks stay changed"
    return count


def _session_goes_on(session: Session, allowed: set[Setting]) -> bool:
    answer = ask_session(session.path, "status")
    assert answer is not None and "status" in answer, f"others are answered {answer}"
    for gpu in session.gpus:
        assert gpu.engine.requested in allowed, f"{gpu.engine.requested} is not the plan's"
    if session.problem is None:
        return True
    assert "the plan has ranks" in session.problem, session.problem
    assert all(gpu.engine.requested == AUTO for gpu in session.gpus), "clocks stay changed after the plan's end"
    return False


def _stragglers_unix(rng: random.Random) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return _stragglers(rng, str(Path(folder, "s.sock")), None)


def _stragglers_tcp(rng: random.Random) -> int:
    return _stragglers(rng, "127.0.0.1:0", _TOKEN)


def _stragglers(rng: random.Random, address: str, token: str | None) -> int:
    rungs = Rungs(planned_frontier())
    with StragglerServer(Stragglers(rungs, 2, 2), address, token=token) as server:
        rank = StragglerSource(server.address, 0, 0, token=token)

        def goes_on() -> bool:
            status = ask(server.address, {"ask": "status"}, token)["status"]
            assert status["replicas"][0]["ranks"] >= 1, "a rank was disconnected"
            assert all(0 <= each["rung"] < len(rungs) for each in status["replicas"]), f"a rung of no plan: {status}"
            assert server.problem is None and server.wait(0.0), server.problem
            return True

        templates = _TO_STRAGGLERS if token is None else tuple(
            each | {"token": drawn} for each in _TO_STRAGGLERS for drawn in (token, token[:-1], "")
        )  # fmt: skip
        count = _sent(rng, server.address, templates, goes_on)
        assert rank.connected, "the rank lost its connection"
        ask(server.address, {"ask": "clear"}, token)
        rank.ended(20, 1.0)
        ask(server.address, {"ask": "tell", "replica": 1, "slower": 0.4}, token)
        end_s = time.monotonic() + _ANSWER_S
        while (rank.rung(30) or 0) <= rungs.own:
            assert time.monotonic() < end_s, "a rank is not told any more what to run"
            time.sleep(0.01)
        rank.close()
    return count


def _sent(
    rng: random.Random,
    address: str,
    templates: Sequence[dict[str, Any]],
    goes_on: Callable[[], bool],
    messages: int = MESSAGES,
) -> int:
    """Send messages, a few on each connection, for as long as a look after some of them says; returns how many were sent."""
    where = parse_address(address)
    count = connections = 0
    while count < messages:
        if isinstance(where, str):
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.settimeout(_ANSWER_S)
            connected.connect(where)
        else:
            connected = socket.create_connection(where, _ANSWER_S)
        with connected, suppress(OSError):
            for _ in range(_OF_ONE):
                connected.sendall(changed(rng, rng.choice(templates)))
                count += 1
            connected.shutdown(socket.SHUT_WR)
            if connections % 4 == 0:  # the others hang up in the middle of it
                while connected.recv(1 << 16):
                    pass
        connections += 1
        if connections % 10 == 0 and not goes_on():
            return count
    goes_on()
    return count


def changed(rng: random.Random, message: dict[str, Any]) -> bytes:
    """A message with something changed, as it is sent."""
    made = dict(message)
    for _ in range(rng.choice([0, 1, 1, 2])):
        match rng.randrange(4):
            case 0:
                made.pop(rng.choice([*made] or [""]), None)
            case 1:
                made[rng.choice(["more", "ask", "iteration", "hello", "markers", "at_s", "gpu"])] = _value(rng)
            case _:
                made[rng.choice([*message])] = _value(rng)
    data = bytearray(json.dumps(made).encode())
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.02:
        data *= rng.choice([2, 100, 2000])
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.05 else data) + b"\n"


def _value(rng: random.Random, depth: int = 0) -> Any:
    plain = [
        None, True, False, -1, 0, 1, 2, 10**30, -(10**18), 0.5, -0.0, 1e308, float("inf"), float("nan"), "", "0", "1e9",
        "iteration", "forward", "status", "\ud800", "\x00", "é" * 50, "x" * 5000,
    ]  # fmt: skip
    if depth < 3 and rng.random() < 0.2:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if depth < 3 and rng.random() < 0.2:
        return {str(_value(rng, 3)): _value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice(plain)
