"""Recommendations sent to an address, such as that of an autoscaler. Whatever becomes of that, control continues."""

from __future__ import annotations

import json
import queue
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError, first_line

TIMEOUT_S = 3.0


class Hook:
    """Sends documents from a thread of its own, the latest only where several wait.

    Args:
        url: that takes them, by POST as JSON.
    """

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.netloc:
            raise BadInputError(f"`hook` {url}: not an address; write one such as http://localhost:8080/recommendation")
        self._url = url
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._problem: str | None = None
        self._told: str | None = None

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a document soon."""
        self._waiting.put(json.dumps(document, ensure_ascii=False, allow_nan=False).encode())

    def news(self) -> str | None:
        """What went wrong, or that it no longer does, if that has changed since it was asked last."""
        problem = self._problem
        if problem == self._told:
            return None
        self._told = problem
        return f"the hook works again: {self._url}" if problem is None else f"the hook {self._url} {problem}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send inside the context."""
        thread = threading.Thread(target=self._run, name="wastenot-hook", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._waiting.put(None)
            thread.join(2.0 * TIMEOUT_S)

    def _run(self) -> None:
        while (content := self._waiting.get()) is not None:
            over = False
            while not self._waiting.empty():
                later = self._waiting.get()
                over = later is None
                content = content if later is None else later
            try:
                self._post(content)
                self._problem = None
            except Exception as error:  # whatever the other side does
                self._problem = f"failed: {first_line(error)}"
            if over:
                return

    def _post(self, content: bytes) -> None:
        request = urllib.request.Request(self._url, content, {"Content-Type": "application/json"}, method="POST")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=TIMEOUT_S) as reply:
            reply.read(1 << 16)
