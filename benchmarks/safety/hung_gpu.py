"""How long a ``set`` takes while the driver of another GPU does not return from a call; in the end it does.

Eight clients have the lease of a GPU each and set a clock ten times a second; the ninth's GPU hangs in a ``set`` at the
beginning. Its client must be told, and when the driver answers again the GPU must be as its journal says: restored.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.safety.flood import (
    FIRST_USER,
    GPUS,
    GROUP,
    LASTS_S,
    LONGEST_P99_S,
    connected_as,
    p99_of,
    set_all,
)
from benchmarks.safety.trial import Trial
from testbed.daemon_process import Daemon, until
from testbed.stand_in.fixtures import start_stand_in


def main() -> Trial:
    """Measure; needs root, which can become other users."""
    with start_stand_in("h200", gpus=GPUS + 1, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        daemon = Daemon(stand_in, folder)
        daemon.start(f"group = {GROUP}\n[[allow]]\nusers = {[FIRST_USER + number for number in range(GPUS + 1)]}\n")
        try:
            return _measured(daemon)
        finally:
            stand_in.control.clear_faults()
            daemon.stop()


def _measured(daemon: Daemon) -> Trial:
    control, failed = daemon.stand_in.control, list[str]()
    clients = [connected_as(daemon, FIRST_USER + number) for number in range(GPUS + 1)]
    *gpus, hung = list(clients[0].ask("hello")["ok"]["gpus"])
    victim = clients.pop()
    if "ok" not in victim.ask("acquire", gpu=hung) or "ok" not in victim.ask("set", gpu=hung, core_mhz=1200):
        failed.append("no lease of the GPU that is to hang")
    control.fault("nvmlDeviceSet*", index=GPUS, hangs=True)
    told_s: list[float] = []

    def wait_to_be_told() -> None:
        began_s, reply = time.perf_counter(), victim.ask("set", gpu=hung, core_mhz=1305)
        told_s.append(time.perf_counter() - began_s)
        if reply is None or "does not answer" not in str(reply.get("text")):
            failed.append(f"the user of the GPU that hangs was answered by {reply}")

    waiting = threading.Thread(target=wait_to_be_told)
    waiting.start()
    took_s = set_all(clients, gpus, failed, LASTS_S)
    waiting.join()
    control.clear_faults()
    if not until(lambda: control.state(GPUS).untouched and not list(daemon.state.glob("*.json"))):
        failed.append("the GPU that hung was not restored when its driver answered")
    p99_s = p99_of(took_s)
    if p99_s > LONGEST_P99_S:
        failed.append(f"the 99th percentile of a set is {p99_s * 1e3:.1f} ms, more than {LONGEST_P99_S * 1e3:g} ms")
    numbers = {
        "gpus": GPUS, "p99_s": round(p99_s, 4), "longest_s": round(max(took_s), 4),
        "median_s": round(statistics.median(took_s), 4), "told_after_s": round(told_s[0], 1),
    }  # fmt: skip
    return Trial(len(took_s), failed, numbers)
