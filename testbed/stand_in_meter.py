"""What stands in for an exporter of GPU metrics: it says what a test tells it to."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DCGM = """\
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"}} {power}
DCGM_FI_DEV_POWER_USAGE{{gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"}} 70.5
"""
ENERGY = """\
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3"}} {energy:.0f}
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="1",UUID="GPU-b",modelName="NVIDIA H100 80GB HBM3"}} 5000
"""


@contextmanager
def served(text_of):
    """A server of metrics; what it says is asked for anew each time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            text = text_of()
            self.send_response(200 if text is not None and self.path == "/metrics" else 503)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
