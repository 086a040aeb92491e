"""Load on a server: a closed loop that keeps requests running, or an open one in which they come when they come.

closed   requests sent ──► as many first tokens as are to run ──► none left, or long enough ──► drained or stopped
open     requests come ──► as many ended as are in flight     ──► the last has come          ──► drained or stopped
└───────────── steady state ───────────────┘
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from wastenot.serving.bench.http_streams import Pool
from wastenot.serving.bench.loads import Ask
from wastenot.serving.bench.server import Server
from wastenot.serving.bench.streams import Stream, answer

Phase = Literal["filling", "steady", "draining", "over"]

_TICK_S = 0.05
_GIVE_UP_AFTER_S = 5.0  # without an answer, while requests fail
_GIVE_UP_AFTER = 10  # failures in a row
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 1.0
_LONGEST_WAIT_S = 60.0  # that a server's rate limit may ask for
_LEAST_DRAIN_S = 60.0
_FILLINGS = 3.0  # of the least steady state, before an open loop is watched although it is not full
_WARM_LIVES = 2.0  # longest lives of requests that pass before an open loop is watched
_WARM_SHARE = 0.25  # of the least steady state that passes before
_FIRST = 100  # requests that tell how long one takes
LEAST_FIRST_TOKENS = 30
"""Of a steady state, for percentiles that say something."""
LARGEST_IMBALANCE = 0.05
"""By which the prompts in a steady state may be more or fewer than go with the tokens of its answers."""


@dataclass(frozen=True, slots=True)
class Steady:
    """How long a steady state is watched.

    Attributes:
        least_s: at least; ML.ENERGY holds one below 20 s to be unstable.
        most_s: at most, even if fewer requests than run at once have ended in it, or prompts and answers are not balanced.
    """

    least_s: float = 20.0
    most_s: float = 300.0


@dataclass(slots=True)
class Run:
    """What happened under a load.

    Attributes:
        wanted: requests that were to run at once; 0 in an open loop.
        streams: one for each request that was sent, in the order of sending.
        begin_s: of the steady state; ``None`` if it was not reached. All times by ``time.perf_counter``.
        end_s: of the steady state.
        over_s: of everything.
        fault: why it ended before its time; empty where it did not.
        drained: whether requests in flight at the end were waited for.
        late_s: by how much the client's own timer was late, sampled twenty times a second.
    """

    wanted: int
    streams: list[Stream] = field(default_factory=list)
    begin_s: float | None = None
    end_s: float | None = None
    over_s: float = 0.0
    fault: str = ""
    drained: bool = False
    late_s: array[float] = field(default_factory=lambda: array("d"))
    started_s: float = 0.0
    started: int = 0
    ended: int = 0
    ended_before: int = 0
    started_before: int = 0
    tokens_before: int = 0
    tokens_ended: int = 0
    asked_tokens: int = 0
    phase: Phase = "filling"
    failed_in_a_row: int = 0
    good_s: float = 0.0
    last_failure: str = ""

    @property
    def in_flight(self) -> int:
        """Requests sent and not ended."""
        return len(self.streams) - self.ended

    @property
    def steady_s(self) -> float:
        """Length of the steady state so far."""
        if self.begin_s is None:
            return 0.0
        return (time.perf_counter() if self.end_s is None else self.end_s) - self.begin_s


class _Loop:
    """What both loops do."""

    def __init__(self, pool: Pool, server: Server, steady: Steady, wanted: int) -> None:
        self.pool, self.server, self.steady = pool, server, steady
        self.run = Run(wanted)
        self.run.started_s = self.run.good_s = time.perf_counter()
        self.tasks: set[asyncio.Task[None]] = set()
        self.live: set[Stream] = set()

    def begin(self) -> None:
        run = self.run
        if run.begin_s is None and run.phase == "filling":
            run.phase, run.begin_s, run.ended_before = "steady", time.perf_counter(), run.ended
            run.started_before, run.tokens_before = run.started, self.tokens()

    def end(self) -> None:
        run = self.run
        if run.phase == "steady":
            run.phase, run.end_s = "draining", time.perf_counter()
        elif run.phase == "filling":
            run.phase = "draining"

    async def send(self, ask: Ask) -> Stream:
        """Send a request, and keep count of what becomes of it."""
        run = self.run
        stream = Stream(ask)
        run.streams.append(stream)
        run.asked_tokens += ask.output_tokens or 0
        self.live.add(stream)
        try:
            await answer(self.pool, self.server, ask, began=self.began, stream=stream)
        finally:
            run.ended += 1
            run.tokens_ended += stream.answer_tokens
            self.live.discard(stream)
        if stream.outcome == "done":
            run.failed_in_a_row, run.good_s = 0, time.perf_counter()
        elif stream.outcome != "stopped":
            run.failed_in_a_row += 1
            run.last_failure = f"{stream.outcome}: {stream.reason}"
        return stream

    def began(self, stream: Stream) -> None:
        """A first token came."""
        self.run.started += 1
        self.run.good_s = time.perf_counter()

    def tokens(self) -> int:
        """Of all answers so far."""
        return self.run.tokens_ended + sum(stream.answer_tokens for stream in self.live)

    def enough(self) -> bool:
        """Whether the steady state was watched for long enough: each place in the batch was taken again, on average."""
        run = self.run
        if run.steady_s < self.steady.least_s or run.steady_s >= self.steady.most_s:
            return run.steady_s >= self.steady.most_s
        return run.ended - run.ended_before >= max(run.wanted, 1) and self.balanced()

    def balanced(self) -> bool:
        """Whether as many prompts were read as go with the tokens that were made, and enough to tell of."""
        run = self.run
        first, made = run.started - run.started_before, self.tokens() - run.tokens_before
        if first < LEAST_FIRST_TOKENS or made <= 0:
            return False
        exact = all(stream.ask.exact for stream in run.streams[-first:])
        mean = run.asked_tokens / len(run.streams) if exact else run.tokens_ended / max(run.ended, 1)
        return abs(first * mean / made - 1.0) <= LARGEST_IMBALANCE

    def broken(self) -> bool:
        """Whether there is no point in going on."""
        run = self.run
        if run.fault:
            return True
        quiet_s = time.perf_counter() - run.good_s
        least = 1 if quiet_s >= _LONGEST_WAIT_S else _GIVE_UP_AFTER
        if run.failed_in_a_row < least or quiet_s < _GIVE_UP_AFTER_S:
            return False
        if run.last_failure.startswith("limited") and quiet_s < _LONGEST_WAIT_S:
            return False
        self.give_up()
        return True

    def give_up(self) -> None:
        self.run.fault = f"{self.run.failed_in_a_row} requests in a row failed ({self.run.last_failure})"

    async def until(self, over: Callable[[], bool], limit_s: float = float("inf")) -> None:
        """Wait, and notice how late the own timer is."""
        begun = before = time.perf_counter()
        while not over() and before - begun < limit_s:
            await asyncio.sleep(_TICK_S)
            now = time.perf_counter()
            if self.run.phase == "steady":
                self.run.late_s.append(max(now - before - _TICK_S, 0.0))
            before = now

    async def finish(self, *, drain: bool) -> Run:
        """Wait for requests in flight where that is wanted, and stop the rest."""
        run = self.run
        self.end()
        if run.failed_in_a_row >= _GIVE_UP_AFTER and not run.fault:
            self.give_up()
        if run.fault and run.begin_s is not None:  # what passed since the last token is no steady state
            run.end_s = max([run.begin_s, *(stream.arrival_s[-1] for stream in run.streams if stream.arrival_s)])
        if drain and not run.fault:
            limit_s = max(_LEAST_DRAIN_S, run.steady_s)
            await self.until(lambda: all(task.done() for task in self.tasks) or self.broken(), limit_s)
        run.drained = drain and all(task.done() for task in self.tasks)
        await self.stop()
        run.phase, run.over_s = "over", time.perf_counter()
        return run

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


async def under_load(
    pool: Pool, server: Server, asks: Iterator[Ask], wanted: int | None, *, steady: Steady | None = None
) -> Run:
    """Keep a number of requests running, sending the next whenever one ends; or send each when it arrives, whatever runs.

    The steady state of the first begins when as many requests as are to run have had their first token. That of the second
    begins when as many requests have ended as are in flight and twice the longest of them has passed, or when that takes too
    long, since they come faster than they are answered. Both end when none is left to send, or when it was watched for long
    enough.

    Args:
        pool: of connections to the server.
        server: to load.
        asks: requests, with their arrivals, ascending, if ``wanted`` is ``None``; may be without end.
        wanted: requests at once; ``None`` to send each when it arrives.
        steady: how long to watch.
    """
    steady = steady or Steady()
    loop = _Open(pool, server, steady, 0) if wanted is None else _Closed(pool, server, steady, wanted)
    try:
        return await loop.go(asks)
    finally:
        await loop.stop()


class _Closed(_Loop):
    exhausted = False

    async def go(self, asks: Iterator[Ask]) -> Run:
        for _ in range(self.run.wanted):
            self.tasks.add(asyncio.create_task(self.place(asks)))
        await self.until(lambda: self.exhausted or self.enough() or self.broken() or all(t.done() for t in self.tasks))
        return await self.finish(drain=self.exhausted)

    def began(self, stream: Stream) -> None:
        super().began(stream)
        if self.run.started >= self.run.wanted:
            self.begin()

    async def place(self, asks: Iterator[Ask]) -> None:
        """One place in the batch."""
        pause_s = _PAUSE_S
        while True:
            ask = next(asks, None)
            if ask is None:
                self.exhausted = True
                self.end()
                return
            while True:
                stream = await self.send(ask)
                if stream.outcome not in {"limited", "unreachable"}:
                    break
                await asyncio.sleep(min(stream.retry_s if stream.retry_s is not None else pause_s, _LONGEST_WAIT_S))
                pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)
            if stream.outcome == "done":
                pause_s = _PAUSE_S
            else:
                await asyncio.sleep(pause_s)  # a server that refuses everything is not stormed


class _Open(_Loop):
    longest_s = 0.0

    async def go(self, asks: Iterator[Ask]) -> Run:
        arrivals = asyncio.create_task(self.arrive(asks))
        try:
            await self.until(lambda: arrivals.done() or self.enough() or self.broken())
            if arrivals.done():
                arrivals.result()
        finally:
            arrivals.cancel()
        return await self.finish(drain=True)

    async def arrive(self, asks: Iterator[Ask]) -> None:
        first_s: float | None = None
        for ask in asks:
            arrival_s = ask.arrival_s or 0.0
            first_s = arrival_s if first_s is None else first_s
            wait_s = self.run.started_s + arrival_s - first_s - time.perf_counter()
            if wait_s > 0.0:
                await asyncio.sleep(wait_s)
            for task in [task for task in self.tasks if task.done()]:
                self.tasks.remove(task)
                task.result()
            self.tasks.add(asyncio.create_task(self.one(ask)))

    async def one(self, ask: Ask) -> None:
        stream = await self.send(ask)
        run, now_s = self.run, time.perf_counter()
        if run.phase != "filling":
            return
        self.longest_s = max(self.longest_s, now_s - stream.sent_s)
        full = run.ended >= max(run.in_flight, 1)
        if full and now_s - run.started_s >= max(_WARM_LIVES * self.longest_s, _WARM_SHARE * self.steady.least_s):
            self.begin()

    def enough(self) -> bool:
        if self.run.phase == "filling" and time.perf_counter() - self.run.started_s > self.longest_filling_s():
            self.begin()  # where requests come faster than they are answered, it never is full
        return False if self.run.phase != "steady" else super().enough()

    def longest_filling_s(self) -> float:
        """How long to wait for as many requests to end as are in flight."""
        lived = [stream.ended_s - stream.sent_s for stream in self.run.streams[:_FIRST] if stream.ended_s is not None]
        if not lived:
            return self.steady.most_s
        return min(self.steady.most_s, max(_FILLINGS * self.steady.least_s, 2.0 * sorted(lived)[len(lived) // 2]))
