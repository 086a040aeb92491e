"""A server with OpenAI's interface whose latencies are known exactly, because it keeps to a schedule; it fails on demand."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from testbed.virtual_time import virtual_time


@dataclass
class Behaviour:
    """How the server behaves; may be changed while it runs.

    Attributes:
        ttft_s: from a request until its first token.
        gap_s: between chunks.
        tokens_per_chunk: in each chunk.
        usage: "every" chunk, at the "end", or "never".
        most_running: requests at once; others wait.
        takes: fields beyond OpenAI's that it accepts; others are refused with 422.
        api: of the two that stream texts.
        metrics: whether it has ``/metrics``, in vLLM's names.
        key: what a request's Authorization must be; ``None`` for anything.
        limit_first: requests that are turned away with 429.
        cut_after: chunks, then the connection is closed.
        answer_tokens: ends answers at this length, whatever was asked for.
        fails: with this status, after ``fails_after`` requests.
        words_per_token: of prompts.
        template_tokens: beside a prompt's words.
        others_per_s: tokens a second that others were answered with, in the metrics.
        cached_share: of prompts' tokens that come from its prefix cache, in the metrics.
        moved: address that it sends requests on to.
    """

    ttft_s: float = 0.02
    gap_s: float = 0.01
    tokens_per_chunk: int = 1
    usage: str = "every"
    most_running: int = 10_000
    takes: tuple[str, ...] = ("ignore_eos", "continuous_usage_stats")
    api: tuple[str, ...] = ("completions", "chat")
    models: tuple[str, ...] = ("stand-in",)
    metrics: bool = True
    key: str | None = None
    limit_first: int = 0
    retry_after: str | None = "0.1"
    cut_after: int | None = None
    answer_tokens: int | None = None
    fails: int | None = None
    fails_after: int = 0
    words_per_token: float = 0.8
    template_tokens: int = 3
    others_per_s: float = 0.0
    cached_share: float = 0.0
    moved: str | None = None


@dataclass
class StandIn:
    """A running stand-in: its address and behaviour, and what it saw and did, by ``time.perf_counter``."""

    url: str
    behaviour: Behaviour
    requests: list[dict[str, Any]] = field(default_factory=list)
    came_s: list[float] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    made: int = 0
    died: bool = False
    _site: Any = None
    _loop: Any = None
    _over: Any = None
    _tasks: set[Any] = field(default_factory=set)
    _transports: set[Any] = field(default_factory=set)
    _ended: asyncio.Condition = field(default_factory=asyncio.Condition)
    _stopping: Any = None

    def die(self) -> None:
        """Stop at once, as if killed."""
        self.died = True
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        for transport in self._transports:
            transport.abort()
        self._stopping = self._loop.create_task(self._site.stop())


def _chunk(chat: bool, text: str | None, usage: dict[str, int] | None, finish: str | None = None) -> bytes:
    if text is None:
        choices: list[dict[str, Any]] = []
    elif chat:
        choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    else:
        choices = [{"index": 0, "text": text, "finish_reason": finish}]
    kind = "chat.completion.chunk" if chat else "text_completion"
    fields: dict[str, Any] = {"id": "1", "object": kind, "choices": choices}
    if usage is not None:
        fields["usage"] = usage
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


async def _begin(server: StandIn) -> None:
    """Wait until fewer requests run than may."""
    server._tasks.add(asyncio.current_task())
    server.waiting += 1
    async with server._ended:
        await server._ended.wait_for(lambda: server.running < server.behaviour.most_running)
        server.waiting -= 1
        server.running += 1


async def _answer(request: web.Request, server: StandIn, chat: bool) -> web.StreamResponse:
    how = server.behaviour
    server._transports.add(request.transport)
    body = await request.json()
    if how.key is not None and request.headers.get("Authorization") != how.key:
        return web.json_response({"error": {"message": "no such key"}}, status=401)
    unknown = [name for name in ("ignore_eos",) if name in body and name not in how.takes]
    options = body.get("stream_options", {})
    unknown += [name for name in options if name == "continuous_usage_stats" and name not in how.takes]
    if unknown:
        return web.json_response({"detail": f"Unexpected fields in the request: {unknown}"}, status=422)
    server.requests.append(body)
    server.came_s.append(time.perf_counter())
    if len(server.requests) <= how.limit_first:
        headers = {} if how.retry_after is None else {"Retry-After": how.retry_after}
        return web.json_response({"error": {"message": "slow down"}}, status=429, headers=headers)
    if how.fails is not None and len(server.requests) > how.fails_after:
        return web.json_response({"error": {"message": "out of memory"}}, status=how.fails)
    text = body["messages"][-1]["content"] if chat else body["prompt"]
    prompt = round(len(text.split()) / how.words_per_token) + how.template_tokens
    wanted = body.get("max_tokens", 16)
    tokens = min(wanted, how.answer_tokens or wanted)
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    await _begin(server)
    try:
        due = time.perf_counter() + how.ttft_s
        sent = chunks = 0
        if chat:
            await reply.write(b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n')
        while sent < tokens:
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            now = min(how.tokens_per_chunk, tokens - sent)
            sent += now
            server.made += now
            usage = {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}
            finish = ("length" if tokens == wanted else "stop") if sent == tokens else None
            await reply.write(_chunk(chat, " word" * now, usage if how.usage == "every" else None, finish))
            chunks += 1
            if chunks == how.cut_after:
                request.transport.close()
                return reply
            due += how.gap_s
        if how.usage != "never":
            await reply.write(_chunk(chat, None, usage))
        await reply.write(b"data: [DONE]\n\n")
    except ConnectionResetError:  # the client went
        return reply
    finally:
        server.running -= 1
        server._tasks.discard(asyncio.current_task())
        async with server._ended:
            server._ended.notify_all()
    return reply


async def _started(server: StandIn) -> web.AppRunner:
    """Listen, on a port that is free."""
    how = server.behaviour
    begun_s = time.perf_counter()

    async def models(request: web.Request) -> web.Response:
        if how.moved is not None:
            raise web.HTTPMovedPermanently(how.moved)
        if how.key is not None and request.headers.get("Authorization") != how.key:
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        return web.json_response({"data": [{"id": name} for name in how.models]})

    async def metrics(_: web.Request) -> web.Response:
        if not how.metrics:
            raise web.HTTPNotFound
        others = how.others_per_s * (time.perf_counter() - begun_s)
        looked_up = 100.0 * len(server.requests)
        values = {
            "num_requests_running": server.running,
            "num_requests_waiting": server.waiting,
            "generation_tokens_total": server.made + others,
            "prefix_cache_queries_total": looked_up,
            "prefix_cache_hits_total": how.cached_share * looked_up,
        }
        lines = (f'vllm:{name}{{model_name="stand-in"}} {value}' for name, value in values.items())
        return web.Response(text="\n".join(lines))

    async def completions(request: web.Request) -> web.StreamResponse:
        return await _answer(request, server, chat=False)

    async def chat(request: web.Request) -> web.StreamResponse:
        return await _answer(request, server, chat=True)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/metrics", metrics)
    if "completions" in how.api:
        app.router.add_post("/v1/completions", completions)
    if "chat" in how.api:
        app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    server._site, server._loop = site, asyncio.get_running_loop()
    server._over = asyncio.Event()
    server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    return runner


async def _ended(server: StandIn, runner: web.AppRunner) -> None:
    for task in list(server._tasks):
        task.cancel()
    await runner.cleanup()


@contextmanager
def stand_in_server(behaviour: Behaviour | None = None) -> Iterator[StandIn]:
    """Run a stand-in in a thread of its own."""
    server = StandIn("", behaviour or Behaviour())
    ready = threading.Event()

    async def serve() -> None:
        runner = await _started(server)
        ready.set()
        await server._over.wait()
        await _ended(server, runner)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60.0)
    try:
        yield server
    finally:
        server._loop.call_soon_threadsafe(server._over.set)
        thread.join(60.0)


@contextmanager
def virtual_server(behaviour: Behaviour | None = None) -> Iterator[StandIn]:
    """Run a stand-in and whoever asks it in one loop, in virtual time: the machine may be as busy as it likes."""
    server = StandIn("", behaviour or Behaviour())
    with virtual_time() as virtual:
        runner = virtual.run(_started(server))
        yield server
        virtual.run(_ended(server, runner))
