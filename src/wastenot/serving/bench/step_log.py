"""A file of records, one JSON line for each step of an engine, written by a thread of its own.

    the engine's loop ── put ──▶ a queue of bounded length ──▶ thread ──▶ steps.jsonl, steps.jsonl.1

Whoever records must never wait and never fail: what does not fit into the queue is counted and dropped, and so is what
cannot be written. A file that is full becomes ``FILE.1`` in place of the one before, so that at most twice its size is kept.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 64 << 20
"""Of one file, by default: about half a million steps."""
_WAITING = 10_000
_PAUSE_S = 30.0  # after a failure to write


class StepLog:
    """Writes records to a file until the process ends.

    Args:
        path: of the file.
        head: first line of each file: what engine the steps are of.
        most_bytes: after which a file is full.
        clock_mhz: core clock now in effect; asked at most once a second, in the writer's thread.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        head: Mapping[str, Any],
        *,
        most_bytes: int = MOST_BYTES,
        clock_mhz: Callable[[], float | None] | None = None,
    ) -> None:
        self.dropped = 0
        self._path, self._head, self._most = Path(path), dict(head), most_bytes
        self._clock = clock_mhz
        self._seen_mhz: float | None = None
        self._due_s = 0.0
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="wastenot-steps", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, record: dict[str, Any]) -> None:
        """Write a record soon, or drop it. Never waits."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def close(self, patience_s: float = 2.0) -> None:
        """Write what waits, and end."""
        if not self._thread.is_alive():
            return
        with suppress(queue.Full):
            self._queue.put(None, timeout=patience_s)
        self._thread.join(patience_s)

    def _run(self) -> None:
        while not self._written():
            time.sleep(_PAUSE_S)  # the queue fills meanwhile, and what comes then is dropped

    def _written(self) -> bool:
        """Write until told to end; ``False`` where a file could not be written."""
        file: IO[bytes] | None = None
        try:
            while True:
                record = self._queue.get()
                if record is None:
                    return True
                if file is None or file.tell() >= self._most:
                    file = self._opened(file)
                clock = self._clock_now()
                line = record if clock is None else {**record, "core_mhz": clock}
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                if self._queue.empty():
                    file.flush()
        except Exception:  # a full disk, a folder that is gone: the engine is not to notice
            self.dropped += 1
            return False
        finally:
            if file is not None:
                with suppress(OSError):
                    file.close()

    def _opened(self, file: IO[bytes] | None) -> IO[bytes]:
        """A file with room; a full one makes way."""
        if file is not None:
            file.close()
        if file is not None or (self._path.exists() and self._path.stat().st_size > 0):
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        opened = self._path.open("ab")
        opened.write(json.dumps({**self._head, "dropped": self.dropped}, separators=(",", ":")).encode() + b"\n")
        return opened

    def _clock_now(self) -> float | None:
        if self._clock is not None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + 1.0
            try:
                self._seen_mhz = self._clock()
            except Exception:  # as above
                self._clock, self._seen_mhz = None, None
        return self._seen_mhz


def clock_of(name: str | None) -> Callable[[], float | None] | None:
    """What reads the core clock of a device, where one is named."""
    if not name:
        return None
    from wastenot.devices.open import open_device

    device = open_device(name)
    return lambda: device.sensors.clocks().core_mhz
