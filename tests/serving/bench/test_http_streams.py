"""Answers are read the same however the network cuts them into pieces, and what is no answer is an error."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from wastenot.serving.bench.http_streams import Connection, Pool, StaleConnectionError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Kept:
    """Keeps an answer."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.pieces = 0

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers

    def data(self, data: bytes, now_s: float) -> None:
        self.body += data
        self.pieces += 1


class NoTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def chunked(bodies: list[bytes]) -> bytes:
    return EVENT_STREAM + b"".join(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies if body) + b"0\r\n\r\n"


def read(answer: bytes, cuts: list[int]) -> tuple[Kept, Connection]:
    async def run() -> tuple[Kept, Connection]:
        pool, kept = Pool("http://localhost:1"), Kept()
        connection = Connection(pool)
        connection.connection_made(NoTransport())
        sending = asyncio.create_task(connection.send(b"", kept))
        await asyncio.sleep(0)
        edges = sorted({min(cut, len(answer)) for cut in cuts} | {0, len(answer)})
        for begin, end in pairwise(edges):
            connection.data_received(answer[begin:end])
        await sending
        connection.release()
        return kept, connection

    return asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8), st.lists(st.integers(0, 700), max_size=12))
def test_however_it_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    kept, connection = read(chunked(bodies), cuts)
    assert kept.status == 200
    assert kept.body == b"".join(bodies)
    assert kept.pieces == sum(map(bool, bodies))
    assert connection.pool.idle == [connection]


@given(st.binary(max_size=80), st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=40, deadline=None)
def test_an_answer_of_known_length(body: bytes, cuts: list[int]) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too Many\r\nRetry-After: 3\r\ncontent-length: %d\r\n\r\n" % len(body)
    kept, _ = read(head + body, cuts)
    assert (kept.status, kept.body, kept.headers["retry-after"]) == (429, body, "3")


def test_a_connection_that_the_server_wants_closed_is_not_kept() -> None:
    _, connection = read(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", [])
    assert connection.pool.idle == []


def exchange(handler: Handler, use: Callable[[Pool], Awaitable[Any]], **options: float) -> Any:
    async def run() -> Any:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **options)
        try:
            return await use(pool)
        finally:
            await pool.close()
            server.close()

    return asyncio.run(run())


def once(answer: bytes) -> Handler:
    """Answers the first request of a connection, and closes it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    return handle


async def post(pool: Pool) -> Kept:
    kept = Kept()
    await pool.post("/", {}, b"", kept)
    return kept


def test_the_end_of_the_connection_may_end_an_answer() -> None:
    assert exchange(once(b"HTTP/1.0 200 OK\r\n\r\nall of it"), post).body == b"all of it"


@pytest.mark.parametrize("answer", [chunked([b"x" * 50])[:-5], b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_an_answer_that_breaks_off(answer: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        exchange(once(answer), post)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", EVENT_STREAM + b"zz\r\nx\r\n", b"x" * 70_000])
def test_what_is_no_answer(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"not HTTP|invalid literal"):
        exchange(once(answer), post)


def test_a_connection_that_was_closed_meanwhile_is_told_apart() -> None:
    async def use(pool: Pool) -> None:
        await post(pool)
        assert len(pool.idle) == 1
        await post(pool)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    with pytest.raises(StaleConnectionError):
        exchange(handle, use)


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    with pytest.raises(TimeoutError):
        exchange(handle, post, quiet_s=0.2)
