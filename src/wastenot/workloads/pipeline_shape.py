"""How a model is run in a pipeline by default: a sequence a micro-batch, and as few GPUs a stage as hold it."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from wastenot.workloads.models import Model
from wastenot.workloads.named import find_model
from wastenot.workloads.shape import Shape, ShapeOptions, tensor_parallel_degrees

_STATE_BYTES = 18  # of a parameter in mixed precision: weight and gradient of 2, and fp32 master, moments and gradient sum
_ROOM_BYTES = 64e9  # for them, of a GPU's 80 GB or more
_MOST_TENSOR_PARALLEL = 8  # GPUs of one machine
_SEQUENCE = {"gpt3": 2048, "llama": 4096}


def pipeline_shape(name: str, stages: int, **given: Unpack[ShapeOptions]) -> Shape:
    """The shape of a model's training in a number of stages.

    A micro-batch is one sequence of 2,048 tokens (Llama 4,096); the tensor-parallel degree is the least power of two at
    which weights, gradients and optimizer states leave room on a GPU of 80 GB, and norms, embedding and loss are split along
    the sequence then; attention is one kernel, and an iteration ends with AdamW.

    Args:
        name: of a model, such as ``gpt3-175b``.
        stages: of the pipeline.
        given: fields of :class:`Shape` that go before these.

    Raises:
        BadInputError: there is no such model, or it cannot be run so.
    """
    model = find_model(name)
    degree = given.get("tensor_parallel", _degree(model, max(stages, 1)))
    default = Shape(
        batch=1,
        sequence=_SEQUENCE[model.family],
        tensor_parallel=degree,
        sequence_parallel=degree > 1,
        attention="flash",
        optimizer="adamw",
    )
    shape = replace(default, **given)
    shape.check(model)
    return shape


def _degree(model: Model, stages: int) -> int:
    powers = [each for each in tensor_parallel_degrees(model) if each & (each - 1) == 0 and each <= _MOST_TENSOR_PARALLEL]
    held = _STATE_BYTES * model.parameters / stages
    return next((each for each in powers if held <= _ROOM_BYTES * each), powers[-1])
