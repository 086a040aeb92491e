"""How long a ``set`` takes beside a user who floods the daemon, with 500 clients connected.

Eight clients of as many users each have the lease of a GPU and set a clock ten times a second; the others, ten a user, send
heartbeats. One more user has the lease of another GPU. It sends requests for status, settings and nonsense as fast as they
are taken, on all the connections that it may have, and connects again when it is disconnected. The driver is the stand-in.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.safety.trial import Trial
from testbed.daemon_process import Client, Daemon
from testbed.stand_in.fixtures import start_stand_in

GPUS, CLIENTS, OF_ONE_USER = 8, 500, 10
LONGEST_P99_S = 0.05
FIRST_USER, _FLOODER, GROUP = 20_000, 29_999, 4242
_CONNECTIONS = 32  # of the flooder: as many as the default policy allows
_CORES_MHZ = (1200, 1305, 1410, 1500)
_EVERY_S, _BEAT_S, LASTS_S = 0.1, 5.0, 30.0


def main() -> Trial:
    """Measure; needs root, which can become other users."""
    with start_stand_in("h200", gpus=GPUS + 1, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        daemon = Daemon(stand_in, folder)
        users = [FIRST_USER + number for number in range(CLIENTS // OF_ONE_USER)]
        daemon.start(
            f"group = {GROUP}\n[[allow]]\nusers = {users}\ngpus = {[*range(GPUS)]}\n"
            f"[[allow]]\nusers = [{_FLOODER}]\ngpus = [{GPUS}]\n"
        )
        try:
            return _measured(daemon, users)
        finally:
            daemon.stop()


def _measured(daemon: Daemon, users: list[int]) -> Trial:
    clients = [connected_as(daemon, users[number % len(users)]) for number in range(CLIENTS)]
    gpus = list(clients[0].ask("hello")["ok"]["gpus"])
    failed: list[str] = []
    quiet_s = set_all(clients, gpus, failed, LASTS_S / 3.0)
    flooder, counted = _flooder(daemon, daemon.stand_in.control.state(GPUS).uuid)
    try:
        took_s = set_all(clients, gpus, failed, LASTS_S)
    finally:
        os.kill(flooder, signal.SIGTERM)
        os.waitpid(flooder, 0)
    with os.fdopen(counted) as stream:
        flood = int(stream.read() or 0)
    for client in clients:
        client.close()
    p99_s = p99_of(took_s)
    if p99_s > LONGEST_P99_S:
        failed.append(f"the 99th percentile of a set is {p99_s * 1e3:.1f} ms, more than {LONGEST_P99_S * 1e3:g} ms")
    numbers = {
        "clients": CLIENTS, "flooding_requests": flood, "p99_s": round(p99_s, 4), "longest_s": round(max(took_s), 4),
        "median_s": round(statistics.median(took_s), 4), "p99_without_flood_s": round(p99_of(quiet_s), 4),
    }  # fmt: skip
    return Trial(len(took_s), failed, numbers)


def set_all(clients: list[Client], gpus: list[str], failed: list[str], seconds: float) -> list[float]:
    """How long each ``set`` took that the first clients asked for, while the others send heartbeats."""
    took_s: list[float] = []
    until_s = time.monotonic() + seconds

    def set_clocks(client: Client, gpu: str, rng: random.Random) -> None:
        if "ok" not in (reply := client.ask("acquire", gpu=gpu)):
            failed.append(f"no lease: {reply}")
            return
        while time.monotonic() < until_s:
            began_s = time.perf_counter()
            reply = client.ask("set", gpu=gpu, core_mhz=rng.choice(_CORES_MHZ))
            took_s.append(time.perf_counter() - began_s)
            if reply is None or "ok" not in reply:
                failed.append(f"a set was answered by {reply}")
            time.sleep(_EVERY_S * rng.uniform(0.5, 1.5))
        client.ask("release", gpu=gpu)

    def beat() -> None:
        others = clients[len(gpus) :]
        while time.monotonic() < until_s:
            for client in others:
                if "ok" not in (client.ask("beat") or {}):
                    failed.append("a heartbeat was not answered")
                time.sleep(_BEAT_S / len(others))

    threads = [
        threading.Thread(target=set_clocks, args=(client, gpu, random.Random(gpu)))
        for client, gpu in zip(clients, gpus, strict=False)
    ]
    threads.append(threading.Thread(target=beat))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took_s


def connected_as(daemon: Daemon, user: int) -> Client:
    """A client that the kernel says is another user's."""
    os.seteuid(user)
    try:
        with _in_group():
            return daemon.connect()
    finally:
        os.seteuid(0)


class _in_group:  # noqa: N801 - reads as a verb
    """With the socket's group."""

    def __enter__(self) -> None:
        user = os.geteuid()
        os.seteuid(0)
        self._before = os.getgroups()
        os.setgroups([GROUP])
        os.seteuid(user)

    def __exit__(self, *_: object) -> None:
        os.seteuid(0)
        os.setgroups(self._before)


def _flooder(daemon: Daemon, gpu: str) -> tuple[int, int]:
    """A process that floods until it is told to end, and a pipe in which it then says how many requests it sent."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
    try:
        os.setgroups([GROUP])
        os.setuid(_FLOODER)
        os.write(writing, str(_flood(str(daemon.socket), gpu, over)).encode())
    finally:
        os._exit(0)


def _flood(path: str, gpu: str, over: list[int]) -> int:
    asks = [
        {"ask": "status"}, {"ask": "hello"}, {"ask": "acquire", "gpu": gpu}, {"ask": "set", "gpu": gpu, "core_mhz": 1200}
    ]  # fmt: skip
    lines = b"".join(json.dumps({"wastenot": 1} | each).encode() + b"\n" for each in asks)
    count, connected = 0, list[socket.socket]()
    while not over:
        with suppress(OSError):
            while len(connected) < _CONNECTIONS:
                one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                one.setblocking(False)
                one.connect(path)
                one.send(b'{"wastenot": 1, "ask": "hello"}\n')
                connected.append(one)
        readable, writable, _ = select.select(connected, connected, [], 0.01)
        for one in (*readable, *writable):
            try:
                if one in readable and not one.recv(1 << 16):
                    raise ConnectionResetError
                if one in writable and one.send(lines if count % 997 else b"{nonsense\n"):
                    count += len(asks)
            except BlockingIOError:
                continue
            except OSError:
                if one in connected:
                    connected.remove(one)
                    one.close()
    return count


def p99_of(took_s: list[float]) -> float:
    return statistics.quantiles(took_s, n=100)[98]
