"""Memory traffic as a proxy of progress on a real GPU, whose clocks nobody sets: is it proportional to iterations?

    export WASTENOT_READ_ONLY=1
    python -m benchmarks.h200.traffic_on_gpu OUT.json     # a minute and a half

1. Copies of a known size: traffic told, over bytes moved.
2. A training loop in a process of its own, which tells when its iterations end: traffic of an iteration over windows of five
   seconds, and the unit of traffic that would be chosen for it, beside the time of its iterations.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from wastenot.control.traffic import Traffic, unit_of
from wastenot.devices.open import open_device

COPY_BYTES, COPIES_S, TRAIN_S, WINDOW_S, SETTLE_S = 1 << 30, 10.0, 60.0, 5.0, 10.0
COPY = f"""
import time, torch
a = torch.empty({COPY_BYTES}, dtype=torch.uint8, device="cuda"); b = torch.empty_like(a)
while True:
    for _ in range(100):
        b.copy_(a)
    torch.cuda.synchronize(); print(time.monotonic(), flush=True)
"""
TRAIN = """
import time, torch
from torch import nn
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, dtype=torch.bfloat16, device="cuda")
model = nn.TransformerEncoder(layer, 8); optimizer = torch.optim.AdamW(model.parameters())
rows = torch.randn(8, 1024, 2048, dtype=torch.bfloat16, device="cuda")
while True:
    loss = model(rows).square().mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    torch.cuda.synchronize(); print(time.monotonic(), flush=True)
"""


def followed(program: str, lasts_s: float) -> tuple[Traffic, list[float], list[tuple[float, float]]]:
    """Traffic while a program runs, the moments that it told, and SM clocks by moment."""
    gpu = open_device("nvidia:0")
    traffic, clocks = Traffic([gpu]), []
    job = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    job.stdout.readline()  # it has begun
    begin_s = time.monotonic()
    while (now_s := time.monotonic()) < begin_s + lasts_s:
        traffic.act(now_s)
        if not traffic.known:
            raise SystemExit("this GPU does not report its memory traffic")
        clock = gpu.sensors.clocks().core_mhz
        clocks.append((now_s, float("nan") if clock is None else float(clock)))
        time.sleep(max(0.0, traffic.due_s - time.monotonic()))
    job.terminate()
    told = [float(line) for line in job.stdout.read().split()]
    return traffic, [each for each in told if each < begin_s + lasts_s], clocks


def copies() -> dict[str, float]:
    """Traffic told of copies of a known size."""
    traffic, told, _ = followed(COPY, COPIES_S)
    begin_s, end_s = told[len(told) // 5], told[-2]
    bytes_moved = 2 * COPY_BYTES * 100 * (len(told) - 2 - len(told) // 5)
    share = (traffic.between(begin_s, end_s) or float("nan")) / (end_s - begin_s)
    return {"bytes_per_s": bytes_moved / (end_s - begin_s), "traffic_share": share}


def training() -> dict[str, object]:
    """Traffic of iterations over windows."""
    traffic, told, clocks = followed(TRAIN, TRAIN_S)
    ends, moved, begin_s = np.array(told), [], told[0] + SETTLE_S
    while begin_s + WINDOW_S < told[-1]:
        first, last = np.searchsorted(ends, [begin_s, begin_s + WINDOW_S])
        between = traffic.between(ends[first], ends[last - 1])
        moved.append((between or float("nan")) / (last - 1 - first))
        begin_s += WINDOW_S
    unit_s, unlike = unit_of(*traffic.since(told[0] + SETTLE_S))
    settled = [mhz for at_s, mhz in clocks if at_s > told[0] + SETTLE_S]
    return {
        "iteration_s": float(np.diff(ends).mean()), "iterations": len(told), "core_mhz": float(np.nanmean(settled)),
        "traffic_per_iteration_s": moved, "scatter": float(np.std(moved, ddof=1) / np.mean(moved)),
        "unit_s": unit_s, "unlike": unlike,
    }  # fmt: skip


if __name__ == "__main__":
    found: dict[str, object] = {}
    for name, step in (("copies", copies), ("training", training)):
        found[name] = step()
        print(name, json.dumps(found[name]), flush=True)
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
