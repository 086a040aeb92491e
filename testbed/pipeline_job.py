"""A rank of a pipeline that trains on CPUs over gloo, at the pace of a simulated GPU in wall time.

``python -m testbed.pipeline_job PLAN``, as torchrun starts it: PyTorch's own pipelining, whose instructions are marked
without a word in the training loop. A stage computes on the CPU, and then waits until its simulated GPU would be done, at
whatever clocks are in effect.

--iterations N   how many
--out FILE       what was seen, as JSON, one for each rank
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import wastenot as wn
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.rank_steps import PlanGraph

WIDTH = 32
_LOOK_S = 0.001


class WorkTime:
    """The wall's time, but for what a busy machine keeps an instruction waiting beyond what it sleeps."""

    def __init__(self) -> None:
        self._wall_s, self._behind_s = time.monotonic, 0.0

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self._wall_s() - self._behind_s

    def look(self) -> None:
        """Let the time between two looks pass."""
        began_s = self.monotonic()
        time.sleep(_LOOK_S)
        self._behind_s += max(self.monotonic() - began_s - 2.0 * _LOOK_S, 0.0)


class Gpu:
    """The simulated GPU of this rank, where instructions take what the plan's ways say, interpolated between clocks."""

    def __init__(self, device: SimulatedDevice, plan: PlanGraph, stage: int, work: WorkTime) -> None:
        self.device, self.work, self.seen = device, work, []
        self.clocks: dict[str, list[tuple[float, float]]] = {}
        for way in plan.plan.ways:
            if way.stage == stage:
                self.clocks.setdefault(way.instruction, []).append((way.clocks[0].core_mhz or 1980.0, way.time_s))
        self.began_s = time.monotonic()

    def run(self, name: str) -> None:
        """Take as long as the GPU does."""
        points = sorted(self.clocks[name])
        mhz, took_s = (np.array(column) for column in zip(*points, strict=True))
        done, now_s = 0.0, time.monotonic()
        record: dict[str, Any] = {"name": name, "begin_s": now_s - self.began_s, "at": []}
        while done < 1.0:
            self.work.look()
            self.device.time.now_s()
            core_mhz = self.device.engine.setting.core_mhz or 1980.0
            later_s = time.monotonic()
            done += (later_s - now_s) / float(np.interp(core_mhz, mhz, took_s))
            now_s = later_s
            if not record["at"] or record["at"][-1][0] != core_mhz:
                record["at"].append([core_mhz, now_s - self.began_s])
        record["end_s"] = now_s - self.began_s
        self.seen.append(record)


class Paced(torch.autograd.Function):
    """Nothing but the time that it takes, forward and backward."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, gpu: Gpu) -> torch.Tensor:
        """Take the forward's time."""
        context.gpu = gpu
        gpu.run("forward")
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        """Take the backward's."""
        context.gpu.run("backward")
        return gradients[0], None


class Stage(nn.Module):
    """A few layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.gpu: Gpu | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute, and keep pace with the GPU."""
        y: torch.Tensor = self.layers(x)
        return y if self.gpu is None else Paced.apply(y, self.gpu)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    work = WorkTime()
    time.monotonic = work.monotonic  # also for the session and the simulated GPU
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    plan = PlanGraph(read_pipeline_plan(asked.plan))
    module = Stage()
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    micro_batches = plan.plan.micro_batches
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    x, y = torch.randn(micro_batches, WIDTH), torch.zeros(micro_batches, WIDTH)
    begins = []
    with wn.apply(asked.plan, device="sim:h200") as applied:
        applied.watch_pipelining()
        device = applied.gpus[0]
        assert isinstance(device, SimulatedDevice)
        for iteration in range(asked.iterations + 1):
            if iteration == 1:  # the first one sets up connections and shapes
                module.gpu = Gpu(device, plan, rank, work)
            dist.barrier()
            begins.append(time.monotonic())
            schedule.step(*((x,) if rank == 0 else ()), **({"target": y} if rank == world - 1 else {}))
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        begins.append(time.monotonic())
    assert applied.summary is not None and module.gpu is not None
    if asked.out is not None:
        took_s = [later - earlier for earlier, later in pairwise(begins[1:])]
        content = {
            "rank": applied.pipeline_rank, "iterations_s": took_s, "instructions": module.gpu.seen,
            "auto_afterwards": device.engine.requested.is_auto, "summary": applied.summary.model_dump(mode="json"),
        }  # fmt: skip
        asked.out.with_name(f"{asked.out.name}-{rank}").write_text(json.dumps(content))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
