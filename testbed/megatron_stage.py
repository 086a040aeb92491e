"""A rank of a pipeline that Megatron-LM's own schedule runs, on CPUs: ``python megatron_stage.py RECIPE ITERATIONS``.

RECIPE is a file that defines ``watch_megatron``. Megatron asks for CUDA by name; here it gets the CPU.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment]
torch.cuda.synchronize = lambda *_: None

from megatron.core import parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.model_parallel_config import ModelParallelConfig  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402

import wastenot as wn  # noqa: E402

WIDTH, MICRO_BATCHES = 8, 4


class OnCpu(TorchFunctionMode):
    """Tensors that are to be made on a GPU are made on the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


class Stage(nn.Module):
    """A layer, as Megatron's schedule expects a model."""

    model_type = ModelType.encoder_or_decoder

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer, self.config, self.received = nn.Linear(WIDTH, WIDTH), config, None

    def set_input_tensor(self, tensors: Any) -> None:
        self.received = tensors[0]

    def forward(self, tensor: Any) -> Any:
        return self.layer(tensor if self.received is None else self.received)


def main(recipe: str, iterations: int) -> None:
    made: dict[str, Any] = {}
    exec(recipe, made)
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    parallel_state.initialize_model_parallel(1, ranks, create_gloo_process_groups=False)
    config = ModelParallelConfig(
        pipeline_model_parallel_size=ranks, pipeline_dtype=torch.float32, deallocate_pipeline_outputs=False,
        batch_p2p_sync=False,
    )  # fmt: skip
    config.hidden_size, config.fine_grained_activation_offloading = WIDTH, False
    model = Stage(config)

    def forward(_: Any, stage: Any) -> Any:
        return stage(torch.randn(4, 1, WIDTH)), lambda output: (output.square().mean(), {})

    with wn.apply("pipeline.json", device=os.environ["DEVICE"]) as applied, OnCpu():
        made["watch_megatron"](applied, schedules, MICRO_BATCHES)
        for _ in range(iterations):
            schedules.get_forward_backward_func()(
                forward_step_func=forward, data_iterator=iter(()), model=[model], num_microbatches=MICRO_BATCHES,
                seq_length=4, micro_batch_size=1, decoder_seq_length=4,
            )  # fmt: skip
    pipeline = applied.summary.status.pipeline
    assert pipeline is not None
    print(dist.get_rank(), pipeline.requests > 0, pipeline.out_of_order, applied.summary.ended)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
