"""Steps of a server as it publishes them while it runs: ForwardPassMetrics, of SGLang and of NVIDIA Dynamo's vLLM.

    engine ── ZMQ PUB ──▶ (b"", sequence number, msgpack) ──▶ ZMQ SUB ──▶ Passes ──▶ records, as vLLM's plug-in writes them

One message for each forward pass, and one each second where there is nothing to do. The message is a map, read by name:
``version`` (1), ``worker_id``, ``dp_rank``, ``wall_time`` in seconds, and ``scheduled_requests`` with numbers and tokens of
the requests that were prefilled and of those that decoded. This follows SGLang's definition as of its commit e861116, and
Dynamo's: of its commit 327e70f, without a version, and a later one, with version 1.

``wall_time`` is not the same everywhere: newer versions of SGLang give the time on the GPU, older ones and Dynamo the time
from scheduling until the output was processed.

Nothing that arrives is trusted: messages are short, values are checked, and what is no step is counted and left out.
"""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError, MissingExtraError, first_line
from wastenot.core.install import install_line
from wastenot.serving.model.step_records import REMEDY, step_row

_VERSION: Final = 1
_MOST_BYTES: Final = 1 << 14  # of a message; those of today have some 600
_DISCONNECT_BYTES: Final = 1 << 16  # of one whose sender is disconnected
_MOST_FRAMES: Final = 3
_MOST_WAITING: Final = 4_000  # messages; what comes while so many wait is lost, and counted as such
_SILENT_S: Final = 2.5  # after which the connection is made anew: ZeroMQ does not after a message that was too large
_AT_ONCE: Final = 1_000  # messages taken before anything else is done
_LARGEST_GAP: Final = 10_000_000  # of sequence numbers; a day at 100 steps a second
_MOST_RANKS: Final = 1_024
_LONGEST_IPC: Final = 107  # bytes, of a path of a socket
_LONGEST_NAME: Final = 64
_LONGEST_CONTEXT: Final = 1e7

Refused = Literal["format", "size", "version", "values", "repeated"]
"""Why a message was left out."""


@dataclass(slots=True)
class Passes:
    """Makes records of messages, and counts what is none.

    Attributes:
        steps: records made.
        heartbeats: messages of an engine that had nothing to do.
        lost: sequence numbers that are missing between messages that could be used.
        restarts: times that a rank's numbers began again.
        refused: messages that were left out, by reason.
        ranks: that were heard, each a worker and a rank of data parallelism.
    """

    steps: int = 0
    heartbeats: int = 0
    lost: int = 0
    restarts: int = 0
    refused: Counter[Refused] = field(default_factory=Counter)
    _last: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[tuple[str, int], ...]:
        """In the order in which they were first heard."""
        return tuple(self._last)

    @property
    def heard(self) -> int:
        """Messages, of whatever kind."""
        return self.steps + self.heartbeats + sum(self.refused.values())

    def take(self, frames: Sequence[bytes], at_s: float) -> dict[str, Any] | None:
        """The record of a message; ``None`` where it is not one of a step.

        Args:
            frames: of the message.
            at_s: Unix time at which it was received.
        """
        try:
            found = self._read(frames, at_s)
        except _LeftOutError as error:
            self.refused[error.why] += 1
            return None
        self.heartbeats += found is None
        self.steps += found is not None
        return found

    def _read(self, frames: Sequence[bytes], at_s: float) -> dict[str, Any] | None:
        if any(len(each) > _MOST_BYTES for each in frames):
            raise _LeftOutError("size")
        _check(len(frames) == _MOST_FRAMES and len(frames[1]) == 8, "format")
        found = _unpacked(frames[2])
        if not isinstance(found, dict):
            raise _LeftOutError("format")
        version = found.get("version", _VERSION)
        _check(_is_whole(version) and version == _VERSION, "version")
        worker, rank = found.get("worker_id", ""), found.get("dp_rank", 0)
        _check(isinstance(worker, str) and _is_whole(rank), "format")
        _check(rank < _MOST_RANKS, "values")
        worker = worker[:_LONGEST_NAME]
        record = _record(found.get("wall_time"), found.get("scheduled_requests"), found.get("queued_requests", {}))
        self._count((worker, rank), int.from_bytes(frames[1], "big"))
        return None if record is None else {"at": round(at_s, 4), "worker": worker, "dp_rank": rank, **record}

    def _count(self, rank: tuple[str, int], number: int) -> None:
        """Count the numbers that are missing before one."""
        last = self._last.get(rank)
        if last is None:
            _check(len(self._last) < _MOST_RANKS, "values")
        else:
            _check(number != last, "repeated")
            _check(number - last <= _LARGEST_GAP, "values")
            self.restarts += number < last
            self.lost += max(number - last - 1, 0)
        self._last[rank] = number


class _LeftOutError(Exception):
    """A message is not of a step."""

    def __init__(self, why: Refused) -> None:
        super().__init__(why)
        self.why = why


def _check(good: bool, why: Refused) -> None:
    if not good:
        raise _LeftOutError(why)


def _unpacked(content: bytes) -> object:
    """What msgpack holds; ``None`` where it is none, or larger than any message is."""
    msgpack = _load("msgpack")
    limits = {"max_str_len": 1 << 10, "max_bin_len": 0, "max_array_len": 64, "max_map_len": 64, "max_ext_len": 0}
    try:
        return msgpack.unpackb(content, raw=False, strict_map_key=True, **limits)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        return None


def _record(wall_s: object, scheduled: object, queued: object) -> dict[str, Any] | None:
    """Of a step; ``None`` where there was nothing to do."""
    if not isinstance(scheduled, dict) or not isinstance(queued, dict):
        raise _LeftOutError("format")
    names = ("num_prefill_requests", "sum_prefill_tokens", "num_decode_requests", "sum_decode_kv_tokens")
    counts = [scheduled.get(name, 0) for name in names]
    waiting = [queued.get(name, 0) for name in ("num_prefill_requests", "num_decode_requests")]
    _check(all(map(_is_whole, (*counts, *waiting))), "values")
    _check(isinstance(wall_s, int | float) and not isinstance(wall_s, bool), "values")
    prefills, new, decodes, cached = counts
    if not wall_s and not any(counts):
        return None
    _check(bool(prefills) == bool(new) and (decodes or not cached), "values")
    record = {
        "running": prefills + decodes,
        "waiting": sum(waiting),
        "prefill_tokens": new,
        "prefills": prefills,
        "decode_tokens": decodes,
        "decodes": decodes,
        "context_tokens": round(cached / decodes, 1) if decodes else 0.0,
        "step_s" if decodes else "wait_s": wall_s,
    }
    _check(step_row(record) is not None and record["context_tokens"] <= _LONGEST_CONTEXT, "values")
    return record


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ---- the socket --------------------------------------------------------------------------------------------------------


def is_address(text: str) -> bool:
    """Whether something is an address of any kind, rather than a file."""
    return "://" in text


def check_address(address: str) -> None:
    """Refuse an address that steps cannot be heard from.

    Raises:
        BadInputError: says what to give instead.
    """
    try:
        found = urlsplit(address)
        port = found.port if found.scheme == "tcp" else None
    except ValueError:
        _refuse(address, "not an address")
    if found.scheme in ("http", "https"):
        _refuse(address, f"a server does not serve its steps over HTTP; {REMEDY}: give that file")
    if found.scheme == "ipc":
        path = address.removeprefix("ipc://")
        if not path or len(path.encode()) > _LONGEST_IPC or "\0" in path:
            _refuse(address, f"no path of a socket, which has 1 to {_LONGEST_IPC} bytes")
    elif found.scheme != "tcp" or not found.hostname or not port or found.path or found.username is not None:
        _refuse(address, "not an address that steps can be heard from")
    elif found.hostname == "*":
        _refuse(address, "names every address of the server; name its host")


def _refuse(address: str, why: str) -> NoReturn:
    raise BadInputError(
        f"--from {address!r:.200}: {why}; SGLang (--enable-forward-pass-metrics) and Dynamo publish steps at addresses such "
        "as tcp://HOST:20380 or ipc:///PATH"
    )


@contextmanager
def subscribed(address: str) -> Iterator[Callable[[float], list[tuple[bytes, ...]]]]:
    """Listen to a server inside the context, also if it is not there yet, or is started again.

    Yields what waits for messages for at most a time in seconds, and returns those that are there; of each at most one frame
    more than a message has.

    Raises:
        BadInputError: the address is none.
        MissingExtraError: the ``steps`` extra is not installed.
    """
    check_address(address)
    zmq = _load("zmq")
    _load("msgpack")
    context = zmq.Context()
    try:
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.MAXMSGSIZE, _DISCONNECT_BYTES)
        socket.setsockopt(zmq.RCVHWM, _MOST_WAITING)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            socket.connect(address)
        except zmq.ZMQError as error:
            _refuse(address, f"cannot be connected to ({first_line(error)})")

        heard_s = time.monotonic()

        def receive(wait_s: float) -> list[tuple[bytes, ...]]:
            nonlocal heard_s
            until_s, found = time.monotonic() + wait_s, list[tuple[bytes, ...]]()
            while len(found) < _AT_ONCE and socket.poll(0 if found else 1e3 * max(until_s - time.monotonic(), 0.0)):
                found.append(_message(socket))
            if found:
                heard_s = time.monotonic()
            elif time.monotonic() > heard_s + _SILENT_S:
                heard_s = time.monotonic()
                with suppress(zmq.ZMQError):  # it has ended already
                    socket.disconnect(address)
                socket.connect(address)
            return found

        yield receive
    finally:
        context.destroy(linger=0)


def _message(socket: Any) -> tuple[bytes, ...]:
    frames: list[bytes] = [socket.recv()]
    while socket.rcvmore:
        frame = socket.recv()
        if len(frames) <= _MOST_FRAMES:
            frames.append(frame)
    return tuple(frames)


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = {"zmq": "pyzmq"}.get(module, module)
        raise MissingExtraError(
            f"hearing a server's steps needs {name}, which is not installed: {install_line('steps')}"
        ) from None
