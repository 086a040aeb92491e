"""A session: a thread that drives a plan on the GPUs of this machine, and a socket on which programs tell how far they are.

    programs ── markers ──▶ ┌────────────────┐ ── mark, act ──▶ driver ── requests ──▶ GPUs
    others   ── status? ──▶ │ socket, thread │ ◀─ status ─────
                            └────────────────┘

The thread sleeps until a marker comes or the driver wants to act. Whatever fails ends the plan, gives the clocks back,
and leaves the program to run on.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from wastenot.control.controller import Controller
from wastenot.control.driver import Driver, Ended
from wastenot.control.hooks import Seen
from wastenot.control.marker import EPOCH, ITERATION, Marker
from wastenot.control.status import Status, Summary
from wastenot.control.told_frontier import tell_frontier
from wastenot.control.wire import SCHEMA, Line, Message, is_friend, listen_at
from wastenot.core.errors import BadInputError, WastenotError
from wastenot.core.vendors import bare_unique_id
from wastenot.devices.protocol import Device

PATIENCE_S = 120.0
"""How long a program may take until its first iteration: it loads data, builds a model, compiles it."""

_LONGEST_SLEEP_S = 0.5
_FINE_S = 1e-3  # which the system's own wait rounds to
_END_S = 10.0
_LOOK_S = 0.005
_HEARS_S = 5.0  # within which a client takes what it is sent, or is dropped


class Seats(Protocol):
    """Who runs where, of programs that are not alike: the ranks of a pipeline."""

    def seat(self, gpu: int, rank: int, environment: Mapping[str, str] | None = None) -> None:
        """A rank runs on a GPU; its environment is given once it has said so itself."""

    def leave(self, gpu: int) -> None:
        """The program on a GPU has ended."""

    def begins_iteration(self, gpu: int, marker: str) -> bool:
        """Whether a marker is the first of an iteration."""


@dataclass(slots=True)
class _Client:
    """Somebody at the other end.

    Attributes:
        line: to it.
        rank: whether it reports markers.
        gpu: index of the GPU that it runs on; ``None`` for one that the plan is not for.
        iteration: that it is in.
    """

    line: Line
    rank: bool = False
    gpu: int | None = 0
    iteration: int = -1


class Session:
    """Drives a plan from the start of the context until it ends.

    Args:
        driver: what to drive.
        path: of the socket to listen on.
        wanted: markers that programs are to send besides those of the passes.
        by_layers: whether passes are bounded by the layers; see :class:`wastenot.control.hooks.Hooks`.
        fits: says of a job why it is not the plan's workload; ``None`` where it may be.
        lease: hold the GPUs' leases, so that nobody else sets their clocks.
        patience_s: how long to wait for the first iteration before none is expected.
        seats: where ranks of a pipeline say which they are; ``None`` for programs that are alike.
        one_program: whoever reports runs on the only GPU, whatever its local rank.

    Attributes:
        path: of the socket.
        problem: what ended the plan early; ``None`` for nothing.
        ranks: programs that have reported.
    """

    def __init__(
        self,
        driver: Driver,
        path: Path,
        *,
        wanted: Sequence[str] = (),
        by_layers: bool = True,
        fits: Callable[[Seen], str | None] | None = None,
        lease: bool = True,
        patience_s: float = PATIENCE_S,
        seats: Seats | None = None,
        one_program: bool = False,
    ) -> None:
        self.path, self.ranks = path, 0
        self._seats, self._one_program = seats, one_program
        self.problem: str | None = None
        self._driver, self._fits, self._lease = driver, fits, lease
        self._patience_s: float | None = patience_s
        self._began_s = time.monotonic()
        reset = [sys.executable, "-m", "wastenot", "device", "reset"]
        self._welcome: Message = {"welcome": True, "wanted": list(wanted), "by_layers": by_layers, "reset": reset}
        self._lock = threading.Lock()
        self._offset_s = 0.0
        self._summary: Summary | None = None
        self._over = threading.Event()
        self._leases = ExitStack()
        self._clients: dict[int, _Client] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="wastenot-session", daemon=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    # ---- for whoever runs it ---------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        """Take the leases, listen, and begin.

        Raises:
            BadInputError: the socket cannot be made.
            DeviceError: another process holds a GPU.
        """
        try:
            if self._lease:
                for gpu in self._driver.gpus:
                    self._leases.enter_context(gpu.clocks.claimed())
            try:
                listen_at(str(self.path), self._listening)
            except OSError as error:
                raise BadInputError(f"{self.path}: cannot listen there: {error.strerror or error}") from error
        except BaseException:
            self._leases.close()
            self._listening.close()
            raise
        if isinstance(self._driver, Controller):
            tell_frontier(self._driver.schedule, self._driver.gpus)
        self._offset_s = self._driver.gpus[0].time.now_s() - time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End at once, unless it has ended."""
        self.end("failed")

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs."""
        return tuple(self._driver.gpus)

    def status(self) -> Status:
        """What is known now."""
        with self._lock:
            return self._driver.status() if self._summary is None else self._summary.status

    def let_ranks_leave(self, longest_s: float) -> None:
        """Wait until all ranks have disconnected, so that what they marked last has been heard, or for so long."""
        until_s = time.monotonic() + longest_s
        while any(client.rank for client in tuple(self._clients.values())) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)

    def end(self, ended: Ended = "job ended", exit_code: int | None = None) -> Summary:
        """Give the clocks back and stop listening; returns what became of it.

        Args:
            ended: why; a plan that ended before keeps its reason.
            exit_code: of the job.
        """
        with self._lock:
            self._finish(ended, exit_code)
        if not self._over.is_set():
            self._over.set()
            os.write(self._wake_write, b".")
            self._thread.join(_END_S)
            os.close(self._wake_read)
            os.close(self._wake_write)
            with suppress(FileNotFoundError):
                self.path.unlink()
            self._leases.close()
        assert self._summary is not None
        return self._summary.model_copy(update={"exit_code": exit_code})

    # ---- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # clocks must not stay, whatever it is
            with self._lock:
                self.problem = self.problem or f"{type(error).__name__}: {error}"
                self._finish("failed", None)
        finally:
            for client in self._clients.values():
                with suppress(OSError):
                    client.line.send({"bye": True})
                client.line.close()
            self._listening.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            self._listening.setblocking(False)
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while not self._over.is_set():
                self._wait(selector)
                self._act()

    def _wait(self, selector: selectors.BaseSelector) -> None:
        """Until the driver wants to act, or somebody says something, which is taken in."""
        sleep_s = self._until_due_s()
        fine = 0.0 < sleep_s < _FINE_S
        for key, _ in selector.select(0.0 if fine else min(sleep_s - sleep_s % _FINE_S, _LONGEST_SLEEP_S)):
            if key.fileobj is self._listening:
                self._accept(selector)
            elif isinstance(key.data, _Client):
                self._hear(selector, key.data)
        if fine:
            time.sleep(max(self._until_due_s(), 0.0) if self._until_due_s() < _FINE_S else 0.0)

    def _hold(self) -> None:
        """Once: no iteration has come for so long that none is expected. The lock is held."""
        if self._patience_s is None or time.monotonic() - self._began_s < self._patience_s:
            return
        self._patience_s = None
        if not any(client.iteration >= 0 for client in self._clients.values()):
            self._try(lambda: self._driver.hold(self._now_s()))

    def _until_due_s(self) -> float:
        with self._lock:
            due_s = None if self._summary is not None else self._driver.due_s()
        return _LONGEST_SLEEP_S if due_s is None else max(due_s - self._now_s(), 0.0)

    def _now_s(self) -> float:
        return time.monotonic() + self._offset_s

    def _act(self) -> None:
        with self._lock:
            if self._summary is not None:
                return
            self._hold()
            if self._summary is not None:
                return
            due_s, now_s = self._driver.due_s(), self._now_s()
            if due_s is not None and due_s <= now_s:
                self._try(lambda: self._driver.act(now_s))

    def _try(self, do: Callable[[], None]) -> None:
        """Do something to the controller; where it fails the plan ends. The lock is held."""
        try:
            do()
        except Exception as error:  # whatever it is, clocks must not stay
            known = isinstance(error, WastenotError)
            self.problem = str(error) if known else f"{type(error).__name__}: {error}"
            self._finish("failed", None)

    def _finish(self, ended: Ended, exit_code: int | None) -> None:
        """End the plan, if it has not ended. The lock is held."""
        if self._summary is not None:
            return
        try:
            self._summary = self._driver.end(self._now_s(), ended=ended, exit_code=exit_code)
        except Exception as error:  # as when the GPU is lost: the lease's end tries once more
            self.problem = self.problem or str(error)
            self._summary = Summary(status=self._driver.status(), ended="failed", exit_code=exit_code, time_line=())

    # ---- what others say -------------------------------------------------------------------------------------

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with suppress(OSError):
            connected, _ = self._listening.accept()
            if not is_friend(connected):
                connected.close()
                return
            connected.settimeout(_HEARS_S)
            client = _Client(Line(connected))
            self._clients[connected.fileno()] = client
            selector.register(connected, selectors.EVENT_READ, client)

    def _hear(self, selector: selectors.BaseSelector, client: _Client) -> None:
        connected = client.line.socket
        try:
            data = connected.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            for message in client.line.taken(data):
                self._take(client, message)
        except Exception:  # whatever one of them sends, the others and the clocks do not suffer for it
            selector.unregister(connected)
            self._clients.pop(connected.fileno(), None)
            client.line.close()
            seats, gpu = self._seats, client.gpu
            if seats is not None and client.rank and gpu is not None:
                with self._lock:
                    if self._summary is None:
                        self._try(lambda: seats.leave(gpu))

    def _take(self, client: _Client, message: Message) -> None:
        if "markers" in message:
            self._mark(client, message["markers"], float(message["at_s"]))
        elif "hello" in message:
            self._greet(client, message)
        elif "gpu" in message:
            client.gpu = self._gpu_of(client, str(message["gpu"]))
        elif "pipeline_rank" in message:
            self._seat(client, int(message["pipeline_rank"]), dict(message.get("environment", {})))
        elif "seen" in message:
            self._judge(Seen(**message["seen"]))
        elif message.get("ask") == "status":
            client.line.send({"status": self.status().model_dump(mode="json", by_alias=True)})
        elif message.get("ask") == "stop":
            with self._lock:
                self._finish("stopped", None)
            client.line.send({"stopped": True})
        else:
            client.line.send({"refused": f"this session speaks {SCHEMA}"})

    def _greet(self, client: _Client, message: Message) -> None:
        if message.get("schema") != SCHEMA:
            client.line.send({"refused": f"the session speaks {SCHEMA}, and this program {message.get('schema')}"})
            return
        local_rank = int(message["local_rank"])
        local_rank = 0 if self._one_program else local_rank
        client.rank, client.gpu = True, local_rank if 0 <= local_rank < len(self._driver.gpus) else None
        self.ranks += 1
        if isinstance(self._driver, Controller):  # the others of the job are on other machines
            self._driver.together = int(message.get("world", 1)) > len(self._driver.gpus)
        client.line.send(self._welcome)

    def _gpu_of(self, client: _Client, unique_id: str) -> int | None:
        if all(gpu.identity.name.startswith("sim:") for gpu in self._driver.gpus):
            return client.gpu  # a rehearsal, whatever GPU the program itself runs on
        bare = bare_unique_id(unique_id)
        for index, gpu in enumerate(self._driver.gpus):
            if bare_unique_id(gpu.identity.unique_id) == bare:
                return index
        return None

    def _mark(self, client: _Client, names: Sequence[Any], at_s: float) -> None:
        seats = self._seats
        with self._lock:
            for name in names:
                at_seat = seats is not None and client.gpu is not None and seats.begins_iteration(client.gpu, str(name))
                if at_seat or (seats is None and name == ITERATION):
                    client.iteration += 1
                counts = client.iteration >= 0 or name == EPOCH  # which also programs without iterations tell
                if client.gpu is not None and counts and self._summary is None:
                    marker = Marker(str(name), max(client.iteration, 0), at_s + self._offset_s, client.gpu)
                    self._try(lambda marker=marker: self._driver.mark(marker))  # type: ignore[misc]

    def _seat(self, client: _Client, rank: int, environment: Mapping[str, str]) -> None:
        """A program says which rank of the pipeline it is, after its GPU where that is not its local rank's."""
        seats, gpu = self._seats, client.gpu
        if seats is not None and gpu is not None:
            with self._lock:
                if self._summary is None:
                    self._try(lambda: seats.seat(gpu, rank, environment))

    def _judge(self, seen: Seen) -> None:
        why = None if self._fits is None else self._fits(seen)
        if why is not None:
            with self._lock:
                if self._summary is None:
                    self._try(lambda: self._driver.refuse(why, self._now_s()))
