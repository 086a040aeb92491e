"""Models by name, and their kernels; and what a name that is no workload probably meant, with the command."""

from __future__ import annotations

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import nearest, suggestion
from wastenot.workloads.gpt3 import gpt3_kernels
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.llama import llama_kernels
from wastenot.workloads.models import MODELS, Model
from wastenot.workloads.primitives import PRIMITIVES, example_of
from wastenot.workloads.shape import Shape
from wastenot.workloads.sizes import Sizes

_KERNELS_OF = ("gpt3-xl", "llama-8b")  # one model of each family: the others have kernels of the same names


def find_model(name: str) -> Model:
    """The model of a name.

    Raises:
        BadInputError: there is none; says what was probably meant, and which there are.
    """
    if name not in MODELS:
        raise unknown_workload(name)
    return MODELS[name]


def kernels_of(model: Model, shape: Shape) -> tuple[KernelSpec, ...]:
    """The kernels of a model that is run so, in order of execution."""
    return tuple((gpt3_kernels if model.family == "gpt3" else llama_kernels)(Sizes(model, shape)))


def unknown_workload(name: str) -> BadInputError:
    """The error about a workload that does not exist, by its name as it was typed."""
    head, _, tail = name.partition(":")
    if name.endswith((".json", ".db")):
        return BadInputError(f"workload '{name}': there is no such file; check the name")
    if head in MODELS and tail:
        return BadInputError(
            f"workload '{name}': is a kernel of {head}; sweep all of {head}, or profile this one "
            f"alone: wastenot profile run {name} --device DEVICE"
        )
    operation = nearest(head, PRIMITIVES)
    if operation is not None:
        what = f"{operation}:{tail}" if tail else example_of(operation)
        return BadInputError(
            f"workload '{name}': {operation} is a single operation, not a model; profile it: "
            f"wastenot profile run {what} --device DEVICE"
        )
    kernel = kernel_named(name)
    if kernel is not None:
        return BadInputError(
            f"workload '{name}': there is no such workload; did you mean the kernel {kernel}? Profile "
            f"it: wastenot profile run {kernel} --device DEVICE"
        )
    return BadInputError(
        f"workload '{name}': there is no such model, file or study; {suggestion(name, MODELS)}; "
        "for your own model: wastenot kernel capture"
    )


def kernel_named(name: str) -> str | None:
    """``MODEL:KERNEL`` for the name of a kernel, or one near to it, in one of the models; ``None`` if there is none."""
    for model in _KERNELS_OF:
        found = nearest(name, [kernel.name for kernel in kernels_of(MODELS[model], Shape())])
        if found is not None:
            return f"{model}:{found}"
    return None
