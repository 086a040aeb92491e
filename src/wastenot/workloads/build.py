"""Workloads by name: which there are, and the kernels of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from wastenot.core.errors import BadInputError
from wastenot.workloads.identity import ModelRun
from wastenot.workloads.kernel import DTYPE_BYTES, Workload
from wastenot.workloads.models import MODELS, Model
from wastenot.workloads.named import find_model, kernels_of
from wastenot.workloads.shape import Shape, ShapeOptions, default_batch, name_of, parse_name


def list_workloads() -> tuple[Model, ...]:
    """The models that :func:`build_workload` knows, family by family, small to large."""
    return tuple(MODELS.values())


def build_shape(**options: Unpack[ShapeOptions]) -> Shape:
    """A shape from what was said; the batch is by default that of the phase."""
    shape = Shape(**options)
    return shape if "batch" in options else replace(shape, batch=default_batch(shape.phase))


def build_workload(name: str, shape: Shape | None = None, **options: Unpack[ShapeOptions]) -> Workload:
    """The kernels of a model, in order of execution.

        build_workload("gpt3-xl")                               # the kernels of the paper's Table 1
        build_workload("llama-8b", phase="decode", batch=16)

    Args:
        name: of a model, such as ``gpt3-xl``.
        shape: how it is run; by default what the options say.
        options: fields of :class:`Shape`, which go before those of ``shape``.

    Returns:
        The workload, named after the model and what is not the default.

    Raises:
        BadInputError: there is no such model, or it cannot be run so.
    """
    model = find_model(name)
    chosen = build_shape(**options) if shape is None else replace(shape, **options)
    chosen.check(model)
    element_bytes = DTYPE_BYTES[chosen.dtype]
    typed = tuple(replace(kernel, element_bytes=element_bytes) for kernel in kernels_of(model, chosen))
    return Workload(name_of(model, chosen), typed, _description(model, chosen), ModelRun(model.name, chosen))


def run_named(name: str) -> ModelRun | None:
    """The model and shape that a person means by a name such as ``gpt3-xl-batch10-tp2``; ``None`` where it means none."""
    try:
        run = ModelRun(*parse_name(name))
        return run if build_workload(run.model, run.shape).name == name else None
    except BadInputError:
        return None


def run_description(run: ModelRun) -> str:
    """What is run, such as ``llama-8b, one training iteration of 40 × 1,024 tokens, bf16, flash attention``."""
    return _description(find_model(run.model), run.shape)


def _description(model: Model, shape: Shape) -> str:
    tokens = {
        "training": f"one training iteration of {shape.batch:,} × {shape.sequence:,} tokens",
        "prefill": f"prefill of {shape.batch:,} prompts of {shape.sequence:,} tokens",
        "decode": f"one decoding step of {shape.batch:,} sequences that attend to {shape.sequence:,} tokens",
    }[shape.phase]
    degree = shape.tensor_parallel
    shared = f", one of {degree} tensor-parallel GPUs" if degree > 1 else ""
    also = ", also sequence-parallel" if shape.sequence_parallel else ""
    optimizer = "" if shape.phase != "training" else f", {'no' if shape.optimizer == 'none' else shape.optimizer} optimizer"
    return f"{model.name}, {tokens}, {shape.dtype}, {shape.attention} attention{optimizer}{shared}{also}"
