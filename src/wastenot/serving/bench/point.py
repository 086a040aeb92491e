"""One operating point of a server: a load is kept on it while its metrics are read beside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from wastenot.serving.bench.http_streams import CONNECT_S, QUIET_S, Pool, open_files
from wastenot.serving.bench.loads import Ask, Prompts
from wastenot.serving.bench.loops import Steady, under_load
from wastenot.serving.bench.replies import aiohttp_or_error, plain_session
from wastenot.serving.bench.scraping import Scraped, busy_before, scrape
from wastenot.serving.bench.server import Server, Target, find_server, token_counts
from wastenot.serving.bench.steady_state import MeasuredPoint, point_of

_PATIENCE_S = 10.0  # for requests that the server still runs


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


def measure_point(target: Target | Found, load: Load, wanted: int | None, *, steady: Steady | None = None) -> MeasuredPoint:
    """Keep a load on a server and measure its steady state.

    Args:
        target: the server, found before or not.
        load: makes the requests; with arrivals, if ``wanted`` is ``None``.
        wanted: requests to keep running; ``None`` to send each when it arrives.
        steady: how long to watch.

    Raises:
        BadInputError: nothing answers there, it does not serve the model, or it refuses any request.
        ServerError: it answered nothing.
        MissingExtraError: aiohttp is not installed.
    """
    return asyncio.run(_measured(target, load, wanted, steady))


async def _measured(target: Target | Found, load: Load, wanted: int | None, steady: Steady | None) -> MeasuredPoint:
    async with _session() as session, AsyncExitStack() as stack:
        found = target if isinstance(target, Found) else await _found(session, target)
        server, scraped = found.server, Scraped()
        others = await busy_before(session, server.url, dict(server.headers), _PATIENCE_S)
        asks = load(Prompts(found.tokens_per_word, found.tokens_beside))
        pool = Pool(server.url)
        scraper = asyncio.create_task(scrape(session, server.url, dict(server.headers), scraped))
        try:
            stack.enter_context(open_files(wanted))
            run = await under_load(pool, server, asks, wanted, steady=steady)
        finally:
            scraper.cancel()
            with suppress(asyncio.CancelledError):
                await scraper
            await pool.close()
    return point_of(run, server, scraped, counts=found.counts, busy_before=others)


def _session() -> Any:
    timeout = aiohttp_or_error().ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=QUIET_S)
    return plain_session(timeout=timeout)


async def _found(session: Any, target: Target) -> Found:
    server = await find_server(session, target)
    return Found(server, *await token_counts(session, server))
