"""Steps of a running server, collected for a time: from where it publishes them into a file and into records.

    messages ──▶ Passes ──▶ records without a clock ──┐
    GPU ── core clock, ten times a second ────────────┴──▶ records ──▶ StepRecords, steps.jsonl

A step gets the mean of the clocks read before and after its message. Where these differ the clock was changing, and what
the step ran at is not known: it is left out.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wastenot.serving.bench.forward_passes import Passes, subscribed
from wastenot.serving.bench.step_log import StepLog
from wastenot.serving.model.step_records import MOST_RECORDS, SCHEMA, StepRecords, StepRow, records_of, step_row

_CLOCK_EVERY_S = 0.1
_TICK_S = 1.0
_STEADY = 0.02  # relative difference of two readings; the clocks of a GPU are about 1 % apart


@dataclass(slots=True)
class Collected:
    """What was heard so far.

    Attributes:
        head: what engine the steps are of, as in the first line of a file.
        passes: counts of messages.
        without_clock: steps that were left out because the clock changed, or could not be read.
        interrupted: whether Ctrl-C ended it.
        dropped: steps that could not be written to the file.
    """

    head: Mapping[str, Any]
    passes: Passes = field(default_factory=Passes)
    without_clock: int = 0
    interrupted: bool = False
    dropped: int = 0
    _rows: deque[StepRow] = field(default_factory=lambda: deque(maxlen=MOST_RECORDS))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def records(self) -> StepRecords:
        """The latest steps; there must be one."""
        return records_of(self.head, self._rows, sum(self.passes.refused.values()) + self.without_clock)

    def add(self, record: dict[str, Any]) -> None:
        """A step whose clock is known, or is not asked for."""
        row = step_row(record)
        if row is not None:
            self._rows.append(row)


def collect_steps(
    address: str,
    into: str | os.PathLike[str],
    seconds: float,
    *,
    model: str = "",
    gpus: int = 1,
    clock_mhz: Callable[[], float | None] | None = None,
    core_mhz: float | None = None,
    tick: Callable[[Collected], None] = lambda _: None,
) -> Collected:
    """Collect the steps that a server publishes; Ctrl-C ends it earlier, and what was heard is kept.

    Args:
        address: of the server's ForwardPassMetrics, ``tcp://HOST:PORT`` or ``ipc:///PATH``.
        into: file that the records are written to.
        seconds: to listen for.
        model: that the server runs.
        gpus: that it runs on.
        clock_mhz: reads the core clock of its GPU.
        core_mhz: clock in effect where it is not read; the default clocks if that is not given, too.
        tick: is told of what was heard, once a second.

    Raises:
        BadInputError: the address is none.
        MissingExtraError: the ``steps`` extra is not installed.
    """
    found = Collected({"schema": SCHEMA, "engine": f"the server at {address}", "model": model, "gpus": gpus})
    with subscribed(address) as receive:
        log = StepLog(into, found.head)
        try:
            _listen(receive, log, found, seconds, clock_mhz, core_mhz, tick)
        except KeyboardInterrupt:
            found.interrupted = True
        finally:
            log.close()
            found.dropped = log.dropped
    return found


def _listen(
    receive: Callable[[float], list[tuple[bytes, ...]]],
    log: StepLog,
    found: Collected,
    seconds: float,
    clock_mhz: Callable[[], float | None] | None,
    core_mhz: float | None,
    tick: Callable[[Collected], None],
) -> None:
    begin_s = time.monotonic()
    tick_s, clock_s = begin_s + _TICK_S, begin_s
    seen_mhz = math.nan if clock_mhz is None else _read(clock_mhz)
    waiting: list[dict[str, Any]] = []
    while (now_s := time.monotonic()) < begin_s + seconds:
        for frames in receive(min(_CLOCK_EVERY_S, begin_s + seconds - now_s)):
            record = found.passes.take(frames, time.time())
            if record is not None:
                waiting.append(record)
        if clock_mhz is None:
            _keep(waiting, core_mhz, log, found)
            waiting.clear()
        elif time.monotonic() >= clock_s:
            clock_s, before_mhz, seen_mhz = time.monotonic() + _CLOCK_EVERY_S, seen_mhz, _read(clock_mhz)
            if abs(seen_mhz - before_mhz) <= _STEADY * seen_mhz:  # never where one of them is not known
                _keep(waiting, 0.5 * (seen_mhz + before_mhz), log, found)
            else:
                found.without_clock += len(waiting)
            waiting.clear()
        if time.monotonic() >= tick_s:
            tick_s += _TICK_S
            tick(found)


def _keep(records: list[dict[str, Any]], core_mhz: float | None, log: StepLog, found: Collected) -> None:
    for each in records:
        record = each if core_mhz is None else {**each, "core_mhz": round(core_mhz, 1)}
        log.put(record)
        found.add(record)


def _read(clock_mhz: Callable[[], float | None]) -> float:
    try:
        found = clock_mhz()
    except Exception:  # of a driver that fails now and then: the steps beside it are left out
        return math.nan
    return math.nan if found is None else found
