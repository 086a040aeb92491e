"""One operating point of a server: a load is kept on it while its metrics are read beside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from wastenot.serving.bench.http_streams import CONNECT_S, QUIET_S, Pool
from wastenot.serving.bench.load_requests import Ask
from wastenot.serving.bench.loops import Run, Steady, SteadyWatch, closed_loop, open_loop
from wastenot.serving.bench.measured_point import MeasuredPoint
from wastenot.serving.bench.open_files import open_files
from wastenot.serving.bench.prompts import Prompts
from wastenot.serving.bench.scraping import Scraped, busy_before, scrape
from wastenot.serving.bench.server import Api, Server, aiohttp_or_error, find_server, prompts_for
from wastenot.serving.bench.steady_state import point_of

_PATIENCE_S = 10.0  # for requests that the server still runs


@dataclass(frozen=True, slots=True)
class Target:
    """Which server to measure, and how to speak to it; what is ``None`` is found out.

    Attributes:
        url: of the server.
        model: to ask for.
        api: of the two that stream texts.
        key: sent as a bearer token.
        more: further fields of each request.
    """

    url: str
    model: str | None = None
    api: Api | None = None
    key: str | None = None
    more: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A server that was found, and how many tokens it makes of texts; what finding out cost need not be spent again.

    Attributes:
        server: it.
        tokens_per_word: of made-up prompts.
        tokens_beside: of each prompt that are not of its words.
        counts: whether it counts the tokens of prompts.
    """

    server: Server
    tokens_per_word: float
    tokens_beside: float
    counts: bool


Load = Callable[[Prompts], Iterator[Ask]]
"""Makes requests from texts whose lengths are right for the server."""


def find(target: Target) -> Found:
    """Find out whether a server answers, what it serves, which fields it takes, and how it counts tokens.

    Raises:
        BadInputError: nothing answers there, it does not serve the model, or it refuses any request.
        ServerError: it fails.
        MissingExtraError: aiohttp is not installed.
    """

    async def found() -> Found:
        async with _session() as session:
            return await _found(session, target)

    return asyncio.run(found())


def measure_point(
    target: Target | Found,
    load: Load,
    wanted: int | None,
    *,
    steady: Steady | None = None,
    watch: SteadyWatch | None = None,
    tick: Callable[[Run], None] | None = None,
    seed: int = 0,
) -> MeasuredPoint:
    """Keep a load on a server and measure its steady state.

    Args:
        target: the server, found before or not.
        load: makes the requests; with arrivals, if ``wanted`` is ``None``.
        wanted: requests to keep running; ``None`` to send each when it arrives.
        steady: how long to watch.
        watch: informed of the steady state, such as a meter.
        tick: called twenty times a second, for progress.
        seed: of made-up prompts.

    Raises:
        BadInputError: nothing answers there, it does not serve the model, or it refuses any request.
        ServerError: it answered nothing.
        MissingExtraError: aiohttp is not installed.
    """
    return asyncio.run(measured_point(target, load, wanted, steady=steady, watch=watch, tick=tick, seed=seed))


async def measured_point(
    target: Target | Found,
    load: Load,
    wanted: int | None,
    *,
    steady: Steady | None = None,
    watch: SteadyWatch | None = None,
    tick: Callable[[Run], None] | None = None,
    seed: int = 0,
) -> MeasuredPoint:
    """As :func:`measure_point`, in a program that has an event loop of its own."""
    steady = steady or Steady()
    async with _session() as session, AsyncExitStack() as stack:
        found = target if isinstance(target, Found) else await _found(session, target)
        server, scraped = found.server, Scraped()
        others = await busy_before(session, server.url, dict(server.headers), _PATIENCE_S)
        asks = load(Prompts(found.tokens_per_word, found.tokens_beside, seed=seed))
        pool = Pool(server.url)
        scraper = asyncio.create_task(scrape(session, server.url, dict(server.headers), scraped))
        try:
            stack.enter_context(open_files(wanted))
            if wanted is None:
                run = await open_loop(pool, server, asks, steady=steady, watch=watch, tick=tick)
            else:
                run = await closed_loop(pool, server, asks, wanted, steady=steady, watch=watch, tick=tick)
        finally:
            scraper.cancel()
            with suppress(asyncio.CancelledError):
                await scraper
            await pool.close()
    return point_of(run, server, scraped, counts=found.counts, busy_before=others)


def _session() -> Any:
    aiohttp = aiohttp_or_error()
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=QUIET_S))


async def _found(session: Any, target: Target) -> Found:
    server = await find_server(session, target.url, model=target.model, api=target.api, key=target.key, more=target.more)
    prompts, counts = await prompts_for(session, server)
    return Found(server, prompts.tokens_per_word, prompts.tokens_beside, counts)
