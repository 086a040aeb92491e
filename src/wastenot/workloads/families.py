"""The kernels of each family of models."""

from __future__ import annotations

from wastenot.workloads.gpt3 import gpt3_kernels
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.llama import llama_kernels
from wastenot.workloads.models import Model
from wastenot.workloads.shape import Shape
from wastenot.workloads.sizes import Sizes


def family_kernels(model: Model, shape: Shape) -> tuple[KernelSpec, ...]:
    """The kernels of a model that is run so, in order of execution."""
    return tuple((gpt3_kernels if model.family == "gpt3" else llama_kernels)(Sizes(model, shape)))
