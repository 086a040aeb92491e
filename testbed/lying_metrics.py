"""A proxy in front of a server's metrics, which tells lies about them."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def _with(name: str, value: str) -> Callable[[str], str]:
    return lambda page: re.sub(rf"^({name}(?:\{{.*\}})?) \S+$", rf"\1 {value}", page, flags=re.MULTILINE)


def _fewer(page: str) -> str:
    pattern = r"^(\S+(?:_total|_bucket|_count|_sum)(?:\{.*\})?) (\S+)$"
    return re.sub(pattern, lambda found: f"{found[1]} {float(found[2]) // 2}", page, flags=re.MULTILINE)


LIES: dict[str, tuple[Callable[[str], str], float]] = {
    "not a number": (_with("vllm:num_requests_running", "NaN"), 3.0),
    "below zero": (_with("vllm:num_requests_waiting", "-3"), 3.0),
    "1e300 tokens": (_with("vllm:generation_tokens_total", "1e300"), 3.0),
    "1e12 prompt tokens": (_with("vllm:prompt_tokens_total", "1e12"), 3.0),
    "1e9 requests running": (_with("vllm:num_requests_running", "1e9"), 3.0),
    "half the counts": (_fewer, 3.0),
    "half a page": (lambda page: page[: len(page) // 2], 3.0),
    "not metrics": (lambda page: "<html>busy</html>", 3.0),
    "10 MB": (lambda page: page + "# padding\n" * 1_000_000, 3.0),
    "frozen": (lambda page: page, 10.0),
}
"""What the proxy makes of a page, and after how many seconds at most the clocks are the driver's."""


class LyingProxy:
    """The server's metrics, or a lie about them while one is set."""

    def __init__(self, url: str) -> None:
        self.lie, self.frozen = "", ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    with urllib.request.urlopen(f"{url}/metrics", timeout=120.0) as reply:
                        content = outer.told(reply.read().decode()).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def told(self, page: str) -> str:
        """A page, as it is told."""
        if self.lie == "frozen":  # at work, since a server without requests may stand still
            at_work = re.search(r"^vllm:num_requests_running\{.*\} [1-9]", page, re.MULTILINE)
            self.frozen = self.frozen or (page if at_work else "")
            return self.frozen or page
        self.frozen = ""
        return LIES[self.lie][0](page) if self.lie else page
