"""A rank of a pipeline that torchtitan cuts and steps, on CPUs: ``python torchtitan_stage.py ITERATIONS``.

Its pipeline split, its schedule and its loss; torchtitan asks which accelerator there is, and gets the CPU. Its models need
flex attention, whose masks its trainer gives to each micro-batch in a way that PyTorch 2.13 does not know yet.
"""

from __future__ import annotations

import os
import sys

import torch
import torch._utils
import torch.distributed as dist
from torch import nn

torch._utils._get_available_device_type = lambda: "cpu"

from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.config import ParallelismConfig  # noqa: E402
from torchtitan.distributed import pipeline_parallel  # noqa: E402

import wastenot as wn  # noqa: E402

MICRO_BATCHES, TOKENS, WORDS, WIDTH, LAYERS = 4, 16, 32, 8, 4


class Model(nn.Module):
    """A model as torchtitan's are built: parts that another stage has are ``None``, or missing among the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(each): nn.Linear(WIDTH, WIDTH) for each in range(LAYERS)})
        self.norm, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in (self.tok_embeddings, *self.layers.values(), self.norm, self.lm_head):
            x = x if part is None else part(x)
        return x


def main(iterations: int) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,), mesh_dim_names=("pp",))
    parallelism = ParallelismConfig(pipeline_parallel_degree=ranks, pipeline_parallel_schedule="1F1B")
    names = pipeline_parallel._generate_llm_fqn_per_model_part(ranks, LAYERS)
    stages, _ = pipeline_parallel._pipeline_module_split(Model(), mesh, "1F1B", torch.device("cpu"), names)
    schedule = pipeline_parallel._build_pipeline_schedule(
        parallelism=parallelism, local_batch_size=MICRO_BATCHES, stages=stages,
        loss_fn=CrossEntropyLoss(CrossEntropyLoss.Config()),
    )  # fmt: skip
    tokens = torch.randint(0, WORDS, (MICRO_BATCHES, TOKENS))
    with wn.apply("pipeline.json", device=os.environ["DEVICE"]) as applied:
        applied.watch_pipelining()
        for _ in range(iterations):
            schedule.step(*((tokens,) if rank == 0 else ()), **({"target": tokens} if rank == ranks - 1 else {}))
    pipeline = applied.summary.status.pipeline
    assert pipeline is not None
    print(rank, pipeline.requests > 0, pipeline.out_of_order, applied.summary.ended)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
