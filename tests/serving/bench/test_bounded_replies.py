"""Replies that are too long, or compressed: refused, before they take memory."""

import asyncio
import gzip
import tracemalloc

import numpy as np
import pytest

from wastenot.core.errors import ServerError
from wastenot.serving.bench.replies import plain_session, text_of
from wastenot.serving.bench.server_metrics import by_name, samples
from wastenot.study.packing import Packed, pack, unpack

web = pytest.importorskip("aiohttp.web")


async def _served(body: bytes, headers: dict[str, str], most: int) -> str:
    async def reply(request: object) -> object:
        return web.Response(body=body, headers=headers)

    app = web.Application()
    app.router.add_get("/metrics", reply)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        async with plain_session() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            return await text_of(answer, most)
    finally:
        await runner.cleanup()


def test_a_page_of_metrics_is_read():
    assert asyncio.run(_served("vllm:läuft 1\n".encode(), {}, 1 << 20)) == "vllm:läuft 1\n"


def test_a_page_that_does_not_end_is_not_kept():
    with pytest.raises(ServerError, match="more than 1 MB"):
        asyncio.run(_served(b"x" * (3 << 20), {}, 1 << 20))


def test_a_compressed_page_is_not_unpacked():
    with pytest.raises(ServerError, match="compresses its replies"):
        asyncio.run(_served(gzip.compress(b"x" * (64 << 20)), {"Content-Encoding": "gzip"}, 1 << 20))


def test_a_page_of_countless_samples_is_refused():
    page = "".join(f'vllm:num_requests_running{{engine="{number}"}} 1\n' for number in range(50_001))
    assert len(by_name(samples(page[: len(page) // 2], ("vllm:",)))) == 1
    with pytest.raises(ServerError, match="more than 50,000 samples"):
        list(samples(page, ("vllm:",)))


def test_packed_arrays_that_would_fill_the_memory_are_not_unpacked():
    small = pack(Packed({"kind": "test"}, {"a": np.zeros(1000)}))
    assert unpack(small).arrays["a"].shape == (1000,)
    bomb = pack(Packed({"kind": "test"}, {"a": np.zeros(70_000_000)}))
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"packed arrays of 0.6 GB: more than any measurement has"):
        unpack(bomb)
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()
