"""One request to a server and the stream that answers it: when its chunks came, and how it ended."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from wastenot.core.errors import first_line
from wastenot.serving.bench.chunks import StreamError, TokenTimes, read_chunk, skim_chunk, token_times, tokens_of_chunks
from wastenot.serving.bench.http_streams import Pool, StaleConnectionError
from wastenot.serving.bench.loads import Ask
from wastenot.serving.bench.server import Server, message_of, unreachable

Outcome = Literal["running", "done", "refused", "limited", "cut off", "unreachable", "stopped"]
"""How a request ended: ``refused`` by the server with an error, ``limited`` by its rate limit, ``cut off`` in the middle of
its stream, ``unreachable`` where no answer began, ``stopped`` by us."""

_TRIES = 3  # where the server closes connections that were kept open
_LONGEST_REFUSAL = 4096


@dataclass(slots=True, eq=False)
class Stream:
    """An answer as it comes.

    Attributes:
        ask: that is answered.
        sent_s: when, by the clock of ``time.perf_counter``.
        answered: whether the server began to answer, with an error perhaps.
        ended_s: when the stream ended; ``None`` before.
        outcome: of the request.
        reason: what the server or the network said, where it is not done.
        retry_s: how long a server that limits its rate asked to wait; ``None`` where it did not.
        prompt_tokens: as the server counted them; ``None`` where it did not.
        total: tokens of the answer so far, by the server; ``None`` where it does not say.
        finish: why the answer ended; ``None`` before.
        arrival_s: of chunks with text.
        characters: of their texts.
        counted: tokens so far at each, by the server.
    """

    ask: Ask
    sent_s: float = 0.0
    answered: bool = False
    ended_s: float | None = None
    outcome: Outcome = "running"
    reason: str = ""
    retry_s: float | None = None
    prompt_tokens: int | None = None
    total: int | None = None
    finish: str | None = None
    arrival_s: array[float] = field(default_factory=lambda: array("d"))
    characters: array[int] = field(default_factory=lambda: array("l"))
    counted: array[int] = field(default_factory=lambda: array("l"))

    @property
    def counts_tokens(self) -> bool:
        """Whether the server said how many tokens the answer has."""
        return self.total is not None

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer so far; of a stream that does not count them, as many as were asked for or as chunks came."""
        if self.total is not None:
            return self.total
        if self.finish == "length" and self.ask.output_tokens is not None:
            return self.ask.output_tokens
        return len(self.arrival_s)

    def tokens(self) -> TokenTimes:
        """When its tokens came."""
        known = self.counts_tokens or (self.finish == "length" and self.ask.output_tokens is not None)
        total = self.answer_tokens if known and self.outcome == "done" else None
        return token_times(self.arrival_s, tokens_of_chunks(self.characters, self.counted, total))

    def read(self, line: bytes, now_s: float) -> None:
        """Take in a line of the stream."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.finish = self.finish or "stop"
            return
        skimmed = skim_chunk(data) if self.arrival_s else None
        if skimmed is not None:
            characters, counted = skimmed
        else:
            chunk = read_chunk(data)
            characters, counted = chunk.characters, chunk.counted
            self.finish = chunk.finish or self.finish
            self.prompt_tokens = chunk.prompt_tokens or self.prompt_tokens
        if counted >= 0:
            self.total = counted
        before = self.counted[-1] if self.counted else 0
        if characters or (self.finish is None and 0 <= before < counted):
            self.arrival_s.append(now_s)
            self.characters.append(characters)
            self.counted.append(counted)


async def answer(
    pool: Pool, server: Server, ask: Ask, *, began: Callable[[Stream], None], stream: Stream | None = None
) -> Stream:
    """Send one request and read its answer to the end. Whatever goes wrong is in the stream's outcome.

    Args:
        pool: of connections to the server.
        server: to ask.
        ask: it.
        began: called when the first token has come.
        stream: to fill; a new one by default.
    """
    stream = stream or Stream(ask)
    body, headers = server.body(ask), dict(server.headers)
    reply = _Reply(stream, began)
    try:
        for tries in reversed(range(_TRIES)):
            stream.sent_s = time.perf_counter()
            try:
                await pool.post(server.path, headers, body, reply)
                break
            except StaleConnectionError:
                if tries == 0:
                    raise
        reply.end()
    except asyncio.CancelledError:
        stream.outcome = "stopped"
        raise
    except StreamError as error:
        stream.outcome, stream.reason = "cut off", message_of(str(error))
    except OSError as error:  # TimeoutError is one
        stream.outcome = "cut off" if stream.answered else "unreachable"
        stream.reason = unreachable(error)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        stream.outcome, stream.reason = "cut off", f"a chunk that is not as OpenAI's are ({first_line(error)})"
    finally:
        stream.ended_s = time.perf_counter()
    return stream


@dataclass(slots=True)
class _Reply:
    """Fills a stream from what comes."""

    stream: Stream
    began: Callable[[Stream], None]
    status: int = 0
    retry_after: str | None = None
    rest: bytes = b""

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.retry_after = status, headers.get("retry-after")
        self.stream.answered = True

    def data(self, data: bytes, now_s: float) -> None:
        if self.status != 200:
            self.rest = (self.rest + data)[:_LONGEST_REFUSAL]
            return
        stream = self.stream
        first = not stream.arrival_s
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if line:
                stream.read(line, now_s)
        if first and stream.arrival_s:
            self.began(stream)

    def end(self) -> None:
        """The answer is complete."""
        stream = self.stream
        if self.status == 200:
            if self.rest.strip():
                stream.read(self.rest, time.perf_counter())
            ended = stream.finish is not None
            stream.outcome = "done" if ended else "cut off"
            stream.reason = "" if ended else "the stream ended before its answer did"
            return
        said = message_of(self.rest.decode(errors="replace"))
        limited = self.status == 429 or (self.status == 503 and self.retry_after is not None)
        stream.outcome = "limited" if limited else "refused"
        stream.reason = f"{self.status}: {said}" if said else str(self.status)
        stream.retry_s = _seconds(self.retry_after)


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(float(text), 0.0)
    except ValueError:
        return None
