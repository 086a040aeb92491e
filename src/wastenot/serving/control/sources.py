"""Where readings come from: each server's own metrics, or Prometheus, which has those of all.

Each source runs in a thread of its own and puts what it hears into a queue at once, so that no server waits for another.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError, ServerError, first_line
from wastenot.serving.bench.replies import aiohttp_or_error, plain_session, reason, text_of
from wastenot.serving.bench.server_metrics import (
    METRIC_NAMES,
    METRIC_PATHS,
    NAMES,
    Sample,
    ServerReading,
    reading_of,
    reading_of_page,
)


class Heard(NamedTuple):
    """What a source heard of an instance.

    Attributes:
        instance: its index.
        at_s: when it was so, by ``time.monotonic``.
        reading: of its server; ``None`` where it could not be read.
        why: it could not.
        nonsense: whether it answered, and what it said cannot be.
    """

    instance: int
    at_s: float
    reading: ServerReading | None
    why: str = ""
    nonsense: bool = False


def heard_of(instance: int, at_s: float, found: Sequence[Sample]) -> Heard:
    """What samples of a server's metrics say."""
    try:
        return Heard(instance, at_s, reading_of(found))
    except ServerError as error:
        return Heard(instance, at_s, None, first_line(error), nonsense=True)


_TIMEOUT_S = 3.0


class Source(Protocol):
    """Reads servers until it is told to end."""

    async def follow(self, into: queue.SimpleQueue[Heard], over: asyncio.Event) -> None:
        """Put all that is heard into a queue."""


@contextmanager
def followed(source: Source) -> Iterator[queue.SimpleQueue[Heard]]:
    """Follow a source in a thread inside the context."""
    heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
    started = threading.Event()
    ends: list[Any] = []

    async def run() -> None:
        over = asyncio.Event()
        ends.append((asyncio.get_running_loop(), over))
        started.set()
        await source.follow(heard, over)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="wastenot-metrics", daemon=True)
    thread.start()
    started.wait()
    try:
        yield heard
    finally:
        loop, over = ends[0]
        if thread.is_alive():
            loop.call_soon_threadsafe(over.set)
        thread.join(2.0 * _TIMEOUT_S)


class DirectSource:
    """Servers' own metrics.

    Args:
        urls: of the servers, such as ``http://localhost:8000``; the metrics are at ``/metrics`` unless a path is given.
        period_s: between two readings.
    """

    def __init__(self, urls: Sequence[str], period_s: float) -> None:
        self._urls, self._period_s = tuple(urls), period_s

    async def follow(self, into: queue.SimpleQueue[Heard], over: asyncio.Event) -> None:
        """Read each server once a period, each at a time of its own."""
        aiohttp = aiohttp_or_error()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with plain_session(connector=connector, timeout=timeout) as session:
            tasks = [asyncio.create_task(self._one(session, number, into)) for number in range(len(self._urls))]
            await over.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, session: Any, number: int, into: queue.SimpleQueue[Heard]) -> None:
        await asyncio.sleep(self._period_s * number / len(self._urls))
        url = self._urls[number]  # its path if it has one, or else the usual ones
        usual = tuple(url.rstrip("/") + each for each in METRIC_PATHS)
        addresses = (url,) if urlsplit(url).path not in ("", "/") else usual
        which = 0
        due = time.monotonic()
        while True:
            at_s = time.monotonic()
            try:
                async with session.get(addresses[which]) as reply:
                    text, status = await text_of(reply), reply.status
                if status == 200:
                    into.put(Heard(number, at_s, reading_of_page(text)))
                else:
                    into.put(Heard(number, at_s, None, f"answers {status} at {addresses[which]}"))
                    which = (which + 1) % len(addresses) if status == 404 else which
            except ServerError as error:
                into.put(Heard(number, at_s, None, first_line(error), nonsense=True))
            except Exception as error:  # whatever a server does, its clocks go back to the driver when it is not heard of
                into.put(Heard(number, at_s, None, reason(error, _TIMEOUT_S)))
            due = max(due + self._period_s, time.monotonic())
            await asyncio.sleep(due - time.monotonic())


class PrometheusSource:
    """All servers' metrics, from a Prometheus that scrapes them.

    A server is known by the label ``instance`` of its series, the host and port of its URL.

    Args:
        url: of Prometheus, such as ``http://localhost:9090``.
        urls: of the servers.
        period_s: between two readings.
    """

    def __init__(self, url: str, urls: Sequence[str], period_s: float) -> None:
        self._url = url
        self._period_s = period_s
        self._number = {host_of(each): number for number, each in enumerate(urls)}

    async def follow(self, into: queue.SimpleQueue[Heard], over: asyncio.Event) -> None:
        """Ask once a period."""
        aiohttp = aiohttp_or_error()
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with plain_session(timeout=timeout) as session:
            due = time.monotonic()
            while not over.is_set():
                try:
                    for heard in await self._all(session):
                        into.put(heard)
                except Exception as error:  # as above
                    for number in self._number.values():
                        into.put(Heard(number, time.monotonic(), None, f"Prometheus: {reason(error, _TIMEOUT_S)}"))
                due = max(due + self._period_s, time.monotonic())
                try:
                    await asyncio.wait_for(over.wait(), due - time.monotonic())
                except TimeoutError:
                    continue

    async def _all(self, session: Any) -> list[Heard]:
        at_s = time.monotonic()
        names = "|".join(METRIC_NAMES)
        gauges = "|".join(name.partition("{")[0] for name in NAMES["running"])
        values, times = await asyncio.gather(
            query_prometheus(session, self._url, f'{{__name__=~"{names}"}}'),
            query_prometheus(session, self._url, f'timestamp({{__name__=~"{gauges}"}})'),
        )
        ages: dict[int, float] = {}
        for each in times:
            number = self._number.get(each["metric"].get("instance", ""))
            if number is not None:
                asked_s, sampled_s = float(each["value"][0]), float(each["value"][1])
                ages[number] = max(asked_s - sampled_s, 0.0, ages.get(number, 0.0))
        series: defaultdict[int, list[Sample]] = defaultdict(list)
        for each in values:
            number = self._number.get(each["metric"].get("instance", ""))
            if number is not None:
                series[number].append(Sample(each["metric"]["__name__"], each["metric"], float(each["value"][1])))
        return [self._heard(number, at_s, ages.get(number), series.get(number, [])) for number in self._number.values()]

    def _heard(self, number: int, at_s: float, age_s: float | None, found: list[Sample]) -> Heard:
        if age_s is None or not found:
            return Heard(
                number, at_s, None, "Prometheus has no metrics for it; is it a target, with the same host and port?"
            )
        return heard_of(number, at_s - age_s, found)


_MOST_SERIES = 20_000  # of an answer


async def query_prometheus(session: Any, url: str, query: str, at_s: float | None = None) -> list[dict[str, Any]]:
    """The series that an instant query of Prometheus finds.

    Args:
        session: of aiohttp.
        url: of Prometheus.
        query: in PromQL.
        at_s: Unix time to evaluate it at; by default now.

    Raises:
        ServerError: it refuses the query, or its answer is none.
    """
    asked = {"query": query} if at_s is None else {"query": query, "time": f"{at_s:.3f}"}
    async with session.post(f"{url.rstrip('/')}/api/v1/query", data=asked) as reply:
        text, status = await text_of(reply), reply.status
    try:
        answer = json.loads(text)
        if answer["status"] != "success":
            raise ServerError(str(answer.get("error", f"answers {status}")))
        result = answer["data"]["result"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ServerError(
            f"answers {status} with something that is no answer of Prometheus; is the address right?"
        ) from None
    if not isinstance(result, list) or not all(isinstance(each, dict) for each in result):
        raise ServerError("answers with no series")
    if len(result) > _MOST_SERIES:
        raise ServerError(f"answers with more than {_MOST_SERIES:,} series")
    return result


def host_of(url: str) -> str:
    """Host and port of a server, as Prometheus labels it.

    Raises:
        BadInputError: it is no address.
    """
    found = urlsplit(url)
    if found.scheme not in ("http", "https") or not found.netloc:
        raise BadInputError(f"`instance` {url}: not an address of a server; write one such as http://localhost:8000")
    return found.netloc.rpartition("@")[2]
