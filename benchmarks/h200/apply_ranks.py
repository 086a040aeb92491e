"""A training job of several ranks under ``wastenot apply --dry-run``, unchanged and followed from outside, on real GPUs.

    WASTENOT_READ_ONLY=1 PYTHONPATH=src:. python -m benchmarks.h200.apply_ranks --ranks 2 --out ranks.json

Only reads. First the job runs by itself, then under ``wastenot apply --dry-run``, then by itself again: DDP over NCCL, each
rank GPT-2 (124M). The plan is for this kind of card; its numbers are made up but for the time of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_STEPS = 300
_SKIPPED = 20


def train(steps: int, on_gpu: bool) -> None:
    """One rank; the first prints its mean time of a step."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.h200.apply_jobs import make_job

    rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{rank}" if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    job = make_job("gpt2", device, tiny=not on_gpu)
    job.tokens = torch.randint(0, 50257, (16, 1024) if on_gpu else (2, 64), device=device)
    job.model = DistributedDataParallel(job.model, device_ids=[rank] if on_gpu else None)
    for step in range(steps):
        if step == _SKIPPED:
            _wait(torch, on_gpu)
            began_s = time.perf_counter()
        job.step()
    _wait(torch, on_gpu)
    if rank == 0:
        print(json.dumps({"step_s": (time.perf_counter() - began_s) / (steps - _SKIPPED)}), flush=True)
    dist.destroy_process_group()


def _wait(torch: Any, on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def run(before: list[str], ranks: int, steps: int, device: str) -> tuple[float, int]:
    """Run the job; time of a step, and the exit code."""
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "-m", __spec__.name]
    command = [*before, *program, "--train", "--steps", str(steps), "--device", device]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    print(ended.stderr[-1500:], flush=True)
    line = next((line for line in ended.stdout.splitlines() if line.startswith('{"step_s"')), None)
    return (json.loads(line)["step_s"] if line else float("nan")), ended.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="be a rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=_STEPS)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.train:
        train(asked.steps, asked.device == "cuda")
        return
    os.environ["WASTENOT_READ_ONLY"] = "1"
    alone = [run([], asked.ranks, asked.steps, asked.device)]
    plan, summary = asked.out.with_name("ranks-plan.json"), asked.out.with_name("ranks-summary.json")
    from benchmarks.h200.apply_jobs import made_up_plan, own_name

    made_up_plan(alone[0][0], plan.with_suffix(".csv"), "gpt2", own_name()).write(plan)
    gpus = "nvidia:" + ",".join(map(str, range(asked.ranks)))
    apply = [
        sys.executable,
        "-m",
        "wastenot",
        "apply",
        str(plan),
        "--dry-run",
        "--device",
        gpus,
        "--out",
        str(summary),
        "--",
    ]
    under = run(apply, asked.ranks, asked.steps, asked.device)
    alone.append(run([], asked.ranks, asked.steps, asked.device))
    status = json.loads(summary.read_text())["status"] if summary.exists() else None
    found = {
        "ranks": asked.ranks, "steps": asked.steps,
        "alone_step_s": [step_s for step_s, _ in alone], "under_step_s": under[0],
        "exit_codes": [alone[0][1], under[1], alone[1][1]], "status": status,
    }  # fmt: skip
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    seen = None if status is None else (status["iteration"], status["marker"], [gpu["energy_j"] for gpu in status["gpus"]])
    print({key: value for key, value in found.items() if key != "status"}, seen)


if __name__ == "__main__":
    main()
