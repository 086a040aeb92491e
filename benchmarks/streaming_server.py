"""A server in a process of its own that sends tokens of many streams in bursts, as an engine does, and notes when.

python -m benchmarks.streaming_server STEP_S TOKENS        prints its port
"""

from __future__ import annotations

import asyncio
import json
import sys
import time


class _Stream(asyncio.Protocol):
    """A connection; HTTP is read no further than the client under test needs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.running.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, blank, body = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in lower else 0
        if len(body) < length:
            return
        self.data = body[length:]
        if head.startswith(b"GET"):
            log = json.dumps(self.engine.log).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(log), log))
            return
        self.key = json.loads(body)["prompt"]
        self.engine.log[self.key] = []
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.engine.running[self] = 0


class Engine:
    """Every so often, one token for each stream that runs."""

    def __init__(self, step_s: float, tokens: int) -> None:
        self.step_s, self.tokens = step_s, tokens
        self.running: dict[_Stream, int] = {}
        self.log: dict[str, list[float]] = {}

    async def run(self) -> None:
        """Serve until killed."""
        server = await asyncio.get_running_loop().create_server(lambda: _Stream(self), "127.0.0.1", 0, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        due = time.perf_counter()
        while True:
            due = max(due + self.step_s, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())
            for stream, made in list(self.running.items()):
                last = made + 1 == self.tokens
                usage = f'"usage":{{"prompt_tokens":8,"completion_tokens":{made + 1},"total_tokens":{made + 9}}}'
                end = '"length"' if last else "null"
                choice = f'{{"index":0,"text":" word","logprobs":null,"finish_reason":{end}}}'
                first = '"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"m"'
                event = f'data: {{{first},"choices":[{choice}],{usage}}}\n\n'
                data = (event + ("data: [DONE]\n\n" if last else "")).encode()
                self.log[stream.key].append(time.perf_counter())
                stream.transport.write(b"%x\r\n%s\r\n%s" % (len(data), data, b"0\r\n\r\n" if last else b""))
                if last:
                    del self.running[stream]
                else:
                    self.running[stream] = made + 1


if __name__ == "__main__":
    asyncio.run(Engine(float(sys.argv[1]), int(sys.argv[2])).run())
