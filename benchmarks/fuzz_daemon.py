"""Coverage-guided fuzzing of wastenotd with atheris, beside Hypothesis (``tests/devices/clockd/test_fuzz.py``).

    pip install atheris lazy-loader                                       # in an environment of its own
    python -m benchmarks.fuzz_daemon FOLDER -max_total_time=600           # FOLDER keeps the inputs that found something new

An input is what several clients of different users do: bytes that they send, requests with random fields, hanging up, time
that passes, drivers that fail. It must not be able to crash the daemon, to set anything that the policy forbids, or to leave
anything changed.
"""

from __future__ import annotations

import json
import sys

import atheris

with atheris.instrument_imports(include=["wastenot.devices.clockd", "wastenot.devices.common", "wastenot.devices.nvidia"]):
    from testbed.daemon_in_process import UUIDS, running
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
ASKS = ("hello", "status", "acquire", "set", "release", "beat")
FIELDS = ("ask", "gpu", "claim", "core_mhz", "memory_mhz", "power_limit_w", "wastenot", "more")


def value(data: atheris.FuzzedDataProvider) -> object:
    match data.ConsumeIntInRange(0, 6):
        case 0:
            return data.PickValueInList([*UUIDS, *ASKS])
        case 1:
            return data.PickValueInList([300, 600, 900, 1200, 1500, 1000, 2000, 450, 700])
        case 2:
            return data.ConsumeFloat()
        case 3:
            return data.ConsumeUnicodeNoSurrogates(8)
        case 4:
            return data.PickValueInList([None, True, False, [], {}])
        case _:
            return data.ConsumeInt(8)


def request(data: atheris.FuzzedDataProvider) -> bytes:
    message: dict[str, object] = {"wastenot": 1, "ask": data.PickValueInList([*ASKS]), "gpu": data.PickValueInList([*UUIDS])}
    for _ in range(data.ConsumeIntInRange(0, 3)):
        message[data.PickValueInList([*FIELDS])] = value(data)
    return json.dumps(message).encode() + b"\n"


def one_input(given: bytes) -> None:
    data = atheris.FuzzedDataProvider(given)
    with running(POLICY) as daemon:
        clients = [daemon.connect(user) for user in USERS]
        for client in clients:
            client.ask("hello")
        for _ in range(40):
            if not data.remaining_bytes():
                break
            place = data.ConsumeIntInRange(0, len(clients) - 1)
            match data.ConsumeIntInRange(0, 7):
                case 0:
                    clients[place].send(data.ConsumeBytes(data.ConsumeIntInRange(0, 64)))
                case 1:
                    clients[place].close()
                    clients[place] = daemon.connect(USERS[place])
                case 2:
                    daemon.pass_time(data.ConsumeIntInRange(0, 150) / 10)
                case 3:
                    daemon.nvml.failing = data.ConsumeBool()
                case 4:
                    clients[place].ask("hello")
                case _:
                    clients[place].send(request(data))
            clients[place].reply()
            check(daemon)
        daemon.nvml.failing = False
        for client in clients:
            client.close()
        daemon.pass_time(2.0)
        assert daemon.journals() == [] and not any(map(daemon.nvml.changed, range(2)))


def check(daemon: object) -> None:
    nvml = daemon.nvml  # type: ignore[attr-defined]
    assert daemon.mistakes() == []  # type: ignore[attr-defined]
    for gpu, (cores, memories, limits) in enumerate(ALLOWED):
        if nvml.changed(gpu):
            assert UUIDS[gpu] in daemon.journals()  # type: ignore[attr-defined]
        assert nvml.core[gpu] in cores and nvml.memory[gpu] in memories
        assert nvml.limit_mw[gpu] == 700_000 or nvml.limit_mw[gpu] in limits


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
