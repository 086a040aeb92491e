"""What a GPU draws that does nothing: without a process, with one, with weights in its memory, and after work.

    WASTENOT_READ_ONLY=1 python benchmarks/h200/idle.py

Each line is one stretch of time: median, 5th and 95th percentile of NVML's power, and the clocks. Nothing is set.
"""

from __future__ import annotations

import time

import pynvml
import torch

GIB = 1 << 30


def sampled(what: str, lasts_s: float, card: object) -> None:
    """Ten readings a second."""
    power_w, core_mhz, until_s = [], [], time.monotonic() + lasts_s
    while time.monotonic() < until_s:
        power_w.append(pynvml.nvmlDeviceGetPowerUsage(card) / 1e3)
        core_mhz.append(pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM))
        time.sleep(0.1)
    power_w.sort()
    low, middle, high = (power_w[int(share * (len(power_w) - 1))] for share in (0.05, 0.5, 0.95))
    print(f"{what}: {middle:.1f} W ({low:.1f} to {high:.1f}), {sorted(core_mhz)[len(core_mhz) // 2]} MHz", flush=True)


def main() -> None:
    """One card, a minute and a half."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    print(pynvml.nvmlDeviceGetName(card), pynvml.nvmlSystemGetDriverVersion(), time.strftime("%Y-%m-%d"))
    sampled("no process", 15, card)
    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    sampled("a process, nothing in memory", 15, card)
    weights = [torch.full((GIB,), 1.0, dtype=torch.bfloat16, device="cuda") for _ in range(50)]
    torch.cuda.synchronize()
    for when, lasts_s in (("first 10 s", 10), ("later", 30)):
        sampled(f"{2 * len(weights)} GiB in memory, {when}", lasts_s, card)
    values = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    until_s = time.monotonic() + 5
    while time.monotonic() < until_s:
        values = (values @ values).clamp(-1, 1)
    torch.cuda.synchronize()
    for what, lasts_s in (("2 s after products", 2), ("10 s after that", 10), ("20 s after that", 20)):
        sampled(what, lasts_s, card)


if __name__ == "__main__":
    main()
