"""Clients of a real server who send requests at rates of a curve, whatever becomes of them."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.bench.http_streams import Pool
from wastenot.serving.bench.loads import Ask, Prompts
from wastenot.serving.bench.point import find
from wastenot.serving.bench.server import Target
from wastenot.serving.bench.streams import Stream, answer

_MEDIAN_TOKENS, _SPREAD, _TOKENS = (96, 40), 0.7, (4, 256)  # of prompts and answers: log-normal
_PATIENCE_S = 120.0  # for the last answers


class CurveClients:
    """Sends requests from a thread, at random times.

    Args:
        url: of the server.
        rates_per_s: one after another, and again from the first.
        slot_s: time of each.

    Attributes:
        streams: of all requests so far.
        open: how many are being answered.
    """

    def __init__(self, url: str, rates_per_s: FloatArray, slot_s: float) -> None:
        self._url, self._rates_per_s, self._slot_s = url, rates_per_s, slot_s
        self.streams: list[Stream] = []
        self.open = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()), daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Send no more, and wait for the answers."""
        self._ends.set()
        self._thread.join()

    async def _send(self) -> None:
        found = await asyncio.to_thread(find, Target(self._url))
        rng, pool = np.random.default_rng(), Pool(self._url)
        prompts = Prompts(found.tokens_per_word, found.tokens_beside)

        async def one() -> None:
            lengths = (int(np.clip(rng.lognormal(np.log(median), _SPREAD), *_TOKENS)) for median in _MEDIAN_TOKENS)
            prompt, tokens = lengths
            stream = Stream(Ask(prompts.of_length(prompt), tokens, exact=True))
            self.streams.append(stream)
            self.open += 1
            await answer(pool, found.server, stream.ask, began=lambda _: None, stream=stream)
            self.open -= 1

        begun_s, tasks = time.monotonic(), set[asyncio.Task[None]]()
        while not self._ends.is_set():
            slot = int((time.monotonic() - begun_s) / self._slot_s) % len(self._rates_per_s)
            await asyncio.sleep(rng.exponential(1.0 / self._rates_per_s[slot]))
            task = asyncio.create_task(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)
        await pool.close()
