"""What several clients of different users do to a daemon in this process, drawn by chance.

They send bytes and requests with random fields and hang up, while time passes and drivers fail. None of it must be able to
crash the daemon, to set anything that the policy forbids, or to leave anything changed.
"""

from __future__ import annotations

import json
import random

from testbed.daemon_in_process import UUIDS, Daemon, running
from wastenot.devices.clockd.policy import Bounds, Policy, Rule

USERS = (1000, 1001, 1002)  # the last may do nothing
POLICY = Policy(
    (
        Rule(frozenset({1000}), frozenset(), frozenset({0}), Bounds((600.0, 1200.0), None, (300.0, 600.0), 60.0)),
        Rule(frozenset({1001}), frozenset(), frozenset({1}), Bounds((900.0, 900.0), (1000.0, 1000.0), None, 60.0)),
    ),
    requests_per_s=1e6,
    connections_per_user=4,
)
ALLOWED = (
    ({None, (300, 600), (300, 900), (300, 1200)}, {None}, range(300_000, 600_001)),
    ({None, (300, 900)}, {None, (1000, 1000)}, range(0)),
)
ASKS = ("hello", "status", "metrics", "acquire", "set", "release", "beat")
FIELDS = ("ask", "gpu", "claim", "core_mhz", "memory_mhz", "power_limit_w", "wastenot", "more")


def value(rng: random.Random) -> object:
    match rng.randint(0, 6):
        case 0:
            return rng.choice([*UUIDS, *ASKS])
        case 1:
            return rng.choice([300, 600, 900, 1200, 1500, 1000, 2000, 450, 700])
        case 2:
            return rng.choice([rng.uniform(-1e4, 1e4), 1e308, -0.0, float("inf"), float("nan")])
        case 3:
            return "".join(chr(rng.choice([rng.randrange(128), rng.randrange(0xD800)])) for _ in range(8))
        case 4:
            return rng.choice([None, True, False, [], {}])
        case _:
            return rng.randrange(-(1 << 63), 1 << 63)


def request(rng: random.Random) -> bytes:
    message: dict[str, object] = {"wastenot": 1, "ask": rng.choice([*ASKS]), "gpu": rng.choice([*UUIDS])}
    for _ in range(rng.randint(0, 3)):
        message[rng.choice([*FIELDS])] = value(rng)
    return json.dumps(message).encode() + b"\n"


def play(rng: random.Random, steps: int = 40) -> int:
    """Do so many things at most; returns how many of them were messages."""
    messages = 0
    with running(POLICY) as daemon:
        clients = [daemon.connect(user) for user in USERS]
        for client in clients:
            client.ask("hello")
        for _ in range(steps):
            place = rng.randint(0, len(clients) - 1)
            match rng.randint(0, 9):
                case 0:
                    clients[place].send(rng.randbytes(rng.randint(0, 64)))
                    messages += 1
                case 1:
                    clients[place].close()
                    clients[place] = daemon.connect(USERS[place])
                case 2:
                    daemon.pass_time(rng.randint(0, 150) / 10)
                case 3:
                    daemon.nvml.failing = rng.random() < 0.5
                case 4:
                    daemon.nvml.hangs.add(rng.randint(0, 1))
                case 5:
                    daemon.nvml.answer(rng.randint(0, 1))
                case 6:
                    clients[place].ask("hello")
                    messages += 1
                case _:
                    clients[place].send(request(rng))
                    messages += 1
            clients[place].reply()
            check(daemon)
        daemon.nvml.failing = False
        for gpu in range(len(UUIDS)):
            daemon.nvml.answer(gpu)
        for client in clients:
            client.close()
        daemon.pass_time(2.0)
        assert daemon.journals() == [] and not any(map(daemon.nvml.changed, range(2)))
        assert daemon.connect(USERS[0]).ask("hello")["ok"]["user"] == USERS[0]
    return messages


def check(daemon: Daemon) -> None:
    nvml = daemon.nvml
    assert daemon.mistakes() == []
    for gpu, (cores, memories, limits) in enumerate(ALLOWED):
        if nvml.changed(gpu):
            assert UUIDS[gpu] in daemon.journals()
        assert nvml.core[gpu] in cores and nvml.memory[gpu] in memories
        assert nvml.limit_mw[gpu] == 700_000 or nvml.limit_mw[gpu] in limits
