"""A real pipeline of two stages, 1F1B over NCCL: when instructions ran, and what a GPU draws while it waits for the other.

    WASTENOT_READ_ONLY=1 PYTHONPATH=src:. python -m benchmarks.h200.pipeline --out pipeline.json

Only reads. The stages are layers of GPT-3 175B as one of eight tensor-parallel GPUs holds them (without their all-reduces),
random weights, one sequence of 2,048 tokens a micro-batch. CUDA events stand around every forward and backward.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LAYERS = ((8, 8), (8, 10), (6, 10))
MICRO_BATCHES = (4, 8, 16)
_WARM_UP, _BLOCK_S, _WAIT_S = 3, 4.0, 5.0


def make_stage(layers: int, tiny: bool) -> Any:
    """Layers of GPT-3 175B, an eighth of each."""
    import torch
    from torch import nn
    from torch.nn import functional

    width, heads, head, hidden = (64, 2, 16, 128) if tiny else (12288, 12, 128, 6144)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.qkv, self.out = nn.Linear(width, 3 * heads * head), nn.Linear(heads * head, width)
            self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

        def forward(self, x: Any) -> Any:
            rows, length = x.shape[:2]
            q, k, v = self.qkv(self.norms[0](x)).view(rows, length, 3, heads, head).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, heads * head))
            return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    stage = nn.Sequential(*(Layer() for _ in range(layers)))
    return stage.to(torch.bfloat16) if not tiny else stage


class Pipeline:
    """One rank of two, and what it saw."""

    def __init__(self, rank: int, layers: int, device: str, tiny: bool) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank, self.device = torch, dist, rank, device
        self.shape = (1, 32, 64) if tiny else (1, 2048, 12288)
        self.dtype = torch.float32 if tiny else torch.bfloat16
        torch.manual_seed(rank)
        self.stage = make_stage(layers, tiny).to(device)
        self.forwards, self.backwards = dist.new_group([0, 1]), dist.new_group([0, 1])
        self.batch = torch.randn(self.shape, device=device, dtype=self.dtype)
        self.events: list[tuple[str, int, Any, Any]] = []

    def moment(self) -> Any:
        """Now, on the GPU's own clock."""
        if self.device == "cpu":
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def iteration(self, micro_batches: int) -> None:
        """1F1B: stage 0 is one micro-batch ahead."""
        self.events = []
        kept: dict[int, tuple[Any, Any]] = {}
        sent: list[Any] = []
        self.began = self.moment()

        def forward(index: int) -> None:
            if self.rank:
                taken = self.torch.empty(self.shape, device=self.device, dtype=self.dtype)
                self.dist.irecv(taken, 0, group=self.forwards).wait()
                taken.requires_grad_()
            else:
                taken = self.batch
            begin = self.moment()
            given = self.stage(taken)
            kept[index] = taken, given
            self.events.append(("forward", index, begin, self.moment()))
            if not self.rank:
                sent.append((self.dist.isend(given.detach(), 1, group=self.forwards), given))

        def backward(index: int) -> None:
            taken, given = kept.pop(index)
            if self.rank:
                gradient = given.detach()
            else:
                gradient = self.torch.empty(self.shape, device=self.device, dtype=self.dtype)
                self.dist.irecv(gradient, 1, group=self.backwards).wait()
            begin = self.moment()
            given.backward(gradient)
            self.events.append(("backward", index, begin, self.moment()))
            if self.rank:
                sent.append((self.dist.isend(taken.grad, 0, group=self.backwards), taken))

        ahead = 1 - self.rank
        for index in range(ahead):
            forward(index)
        for index in range(micro_batches - ahead):
            forward(index + ahead)
            backward(index)
        for index in range(micro_batches - ahead, micro_batches):
            backward(index)
        for work, _ in sent:
            work.wait()
        self.ended = self.moment()
        for parameter in self.stage.parameters():
            parameter.grad = None
        if self.device != "cpu":
            self.torch.cuda.synchronize()
        self.dist.barrier()

    def seen(self) -> dict[str, Any]:
        """Moments of the last iteration, in seconds from its beginning."""

        def after(moment: Any) -> float:
            if self.device == "cpu":
                return float(moment - self.began)
            return float(self.began.elapsed_time(moment)) / 1e3

        rows = [(name, index, round(after(a), 7), round(after(b), 7)) for name, index, a, b in self.events]
        return {"instructions": rows, "iteration_s": after(self.ended)}


class Meter:
    """Energy, power and clock of a GPU."""

    def __init__(self, index: int, on_gpu: bool) -> None:
        self.gpu = None
        if on_gpu:
            import pynvml as nvml  # type: ignore[import-untyped,unused-ignore]

            nvml.nvmlInit()
            self.nvml, self.gpu = nvml, nvml.nvmlDeviceGetHandleByIndex(index)

    def energy_j(self) -> float:
        """Counted so far, read right after it has moved, which it does ten times a second."""
        if self.gpu is None:
            return time.perf_counter()
        before = self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu)
        until = time.perf_counter() + 0.3
        while (now := self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu)) == before and time.perf_counter() < until:
            pass
        return float(now) / 1e3

    def facts(self) -> dict[str, Any]:
        """Clock and temperature now."""
        if self.gpu is None:
            return {}
        return {
            "core_mhz": self.nvml.nvmlDeviceGetClockInfo(self.gpu, self.nvml.NVML_CLOCK_SM),
            "temperature_c": self.nvml.nvmlDeviceGetTemperature(self.gpu, self.nvml.NVML_TEMPERATURE_GPU),
        }

    def drawn(self, seconds: float) -> dict[str, Any]:
        """Mean power over a while in which this process sleeps."""
        begin_j, begin = self.energy_j(), time.perf_counter()
        time.sleep(seconds / 2)
        facts = self.facts()
        time.sleep(seconds / 2)
        end_j, end = self.energy_j(), time.perf_counter()
        return {"mean_w": (end_j - begin_j) / (end - begin), "seconds": end - begin, **facts}


def waiting(rank: int, device: str, meter: Meter, seconds: float) -> dict[str, Any]:
    """Power of a GPU that has nothing to do, and of one whose stream waits in a receive while the other sleeps."""
    import torch
    import torch.distributed as dist

    found: dict[str, Any] = {}
    for sender in (0, 1):  # connects both ways before anything is measured
        first = torch.zeros(1 << 20, device=device)
        dist.send(first, 1 - rank) if rank == sender else dist.recv(first, 1 - rank)
        _synchronize(torch, device)
    for turn in range(3):
        for waits in (0, 1):
            dist.barrier()
            _synchronize(torch, device)
            time.sleep(1.0)
            if rank == waits:
                taken = torch.empty(1 << 20, device=device)
                work = dist.irecv(taken, 1 - rank)
                if device != "cpu":
                    work.wait()  # the stream waits, not this process
                time.sleep(0.5)
                found[f"receiving {turn}"] = meter.drawn(seconds)
                dist.send(torch.zeros(1, device=device), 1 - rank)
                _synchronize(torch, device)
            else:
                time.sleep(0.5)
                found[f"idle {turn}"] = meter.drawn(seconds)
                time.sleep(1.5)
                dist.send(torch.zeros(1 << 20, device=device), waits)
                dist.recv(torch.zeros(1, device=device), waits)
                _synchronize(torch, device)
    return found


def _synchronize(torch: Any, device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def rank_main(out: Path, tiny: bool) -> None:
    """One rank: every pipeline, then what waiting takes."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    device = "cpu" if tiny else f"cuda:{rank}"
    if not tiny:
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if tiny else "nccl", device_id=None if tiny else torch.device(device))
    meter = Meter(rank, not tiny)
    runs: list[dict[str, Any]] = []
    for layers in LAYERS:
        pipeline = Pipeline(rank, layers[rank], device, tiny)
        for micro_batches in MICRO_BATCHES:
            for _ in range(_WARM_UP):
                pipeline.iteration(micro_batches)
            lasts = torch.tensor([pipeline.seen()["iteration_s"]], device=device)
            dist.all_reduce(lasts, dist.ReduceOp.MAX)
            count = max(4, int((0.1 if tiny else _BLOCK_S) / float(lasts)))
            dist.barrier()
            begin_j, begin = meter.energy_j(), time.perf_counter()
            iterations = []
            for _ in range(count):
                pipeline.iteration(micro_batches)
                iterations.append(pipeline.seen())
            end = time.perf_counter()
            runs.append({
                "layers": layers, "micro_batches": micro_batches, "iterations": iterations,
                "energy_j": meter.energy_j() - begin_j, "seconds": end - begin, **meter.facts(),
            })  # fmt: skip
        del pipeline
    found = {"rank": rank, "runs": runs, "waiting": waiting(rank, device, meter, 0.2 if tiny else _WAIT_S)}
    out.with_name(f"{out.stem}-rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true", help="on the CPU, to try the script")
    parser.add_argument("--rank", action="store_true", help="be a rank")
    asked = parser.parse_args(arguments)
    if asked.rank:
        rank_main(asked.out, asked.tiny)
        return
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", __spec__.name, "--rank"]
    subprocess.run([*program, "--out", str(asked.out), *(["--tiny"] if asked.tiny else [])], check=True, timeout=400)
    parts = [asked.out.with_name(f"{asked.out.stem}-rank{rank}.json") for rank in (0, 1)]
    ranks = [json.loads(part.read_text()) for part in parts]
    facts: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "command": " ".join(sys.argv)}
    if not asked.tiny:
        import pynvml as nvml
        import torch

        nvml.nvmlInit()
        facts |= {
            "gpu": torch.cuda.get_device_name(0),
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "torch": torch.__version__,
        }
    asked.out.write_text(json.dumps({**facts, "ranks": ranks}, separators=(",", ":")) + "\n")
    for part in parts:
        part.unlink()
    for rank in ranks:
        print(rank["rank"], {name: round(each["mean_w"], 1) for name, each in rank["waiting"].items()})
        for run in rank["runs"]:
            last = run["iterations"][-1]
            print(
                run["layers"],
                run["micro_batches"],
                len(run["iterations"]),
                f"{last['iteration_s']:.4f} s",
                last["instructions"][:3],
            )


if __name__ == "__main__":
    main()
