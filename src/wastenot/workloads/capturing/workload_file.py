"""A workload as a JSON file (schema ``wastenot.workload/1``), captured operations with everything needed to replay them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from wastenot.core.documents import Count, Name, NotNegative, Part, read_document
from wastenot.core.errors import BadInputError
from wastenot.core.files import write_text
from wastenot.workloads.identity import ModelRun
from wastenot.workloads.kernel import Call, KernelSpec, Op, Workload
from wastenot.workloads.shape import Shape

SCHEMA: Final = "wastenot.workload/1"


class _Tensor(Part):
    shape: list[Count]
    strides: list[Count]
    offset: Count
    dtype: Name
    storage: Count
    host: Literal[True] | None = None
    values: dict[str, Any]

    @model_validator(mode="after")
    def _same_dimensions(self) -> Self:
        if len(self.shape) != len(self.strides):
            raise ValueError(f"{len(self.shape)} sizes and {len(self.strides)} strides")
        return self


class _Opaque(Part):
    opaque: Name


class _Arguments(Part):
    args: list[Any]
    kwargs: dict[str, Any]
    tensors: list[_Tensor | _Opaque]
    storages: list[Count]
    matmul_precision: Literal["high", "medium"] | None = None

    @model_validator(mode="after")
    def _known_storages(self) -> Self:
        for index, tensor in enumerate(self.tensors):
            if isinstance(tensor, _Tensor) and tensor.storage >= len(self.storages):
                raise ValueError(f"tensor {index} lies in storage {tensor.storage}; there are {len(self.storages)}")
        for index in _tensors_named(self.args) + _tensors_named(list(self.kwargs.values())):
            if not isinstance(index, int) or not 0 <= index < len(self.tensors):
                raise ValueError(f"an argument is tensor {index!r}; there are {len(self.tensors)}")
        return self


class _Call(Part):
    op: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.\w+){1,2}$")]
    arguments: _Arguments


class _Kernel(Part):
    name: Name
    label: str
    op: Op
    shape: Annotated[tuple[Count, ...], Field(strict=False)]
    flops: NotNegative
    bytes_read: NotNegative
    bytes_written: NotNegative
    pass_name: Annotated[Name, Field(alias="pass")]
    block: str | None
    count: Annotated[int, Field(ge=1)]
    element_bytes: Count
    call: _Call | None


class _File(Part):
    schema_: Literal["wastenot.workload/1"] = Field(alias="schema")
    name: Name
    description: str
    model: Name | None = None
    shape: Shape | None = None
    captured_on: Name | None = None
    kernels: Annotated[list[_Kernel], Field(min_length=1)]

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.model is None) != (self.shape is None):
            raise ValueError("model and shape: give both or neither")
        return self

    @property
    def run(self) -> ModelRun | None:
        return None if self.model is None or self.shape is None else ModelRun(self.model, self.shape)


def write_workload(workload: Workload, path: str | os.PathLike[str]) -> None:
    """Write a workload to a JSON file, one kernel per line, atomically.

    For captured operations it holds the index values they ran with, such as a batch's token IDs, but no weights and no
    activations.

    Args:
        workload: the workload, captured or analytical.
        path: the file to create or replace.

    Raises:
        BadInputError: the file cannot be written.
    """
    head: dict[str, Any] = {"schema": SCHEMA, "name": workload.name, "description": workload.description}
    if workload.run is not None:
        head |= {"model": workload.run.model, "shape": asdict(workload.run.shape)}
    if workload.captured_on is not None:
        head["captured_on"] = workload.captured_on
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    kernels = ",\n".join(f"    {_json(_kernel_values(kernel))}" for kernel in workload.kernels)
    write_text(path, "\n".join(["{", *lines, '  "kernels": [', kernels, "  ]", "}", ""]))


def read_workload(path: str | os.PathLike[str]) -> Workload:
    """Read a workload that :func:`write_workload` wrote.

    Args:
        path: the file.

    Raises:
        BadInputError: it cannot be read or is not a workload file; names the line and the field.
    """
    document = read_document(path, _File, "make it with 'wastenot kernel capture'")
    read = document.content
    kernels = zip(read.kernels, document.values["kernels"], strict=True)
    try:
        specs = tuple(_spec(kernel, raw["call"]) for kernel, raw in kernels)
        return Workload(read.name, specs, read.description, read.run, read.captured_on)
    except BadInputError as error:
        raise document.error(("kernels",), str(error)) from error


def _spec(kernel: _Kernel, call: dict[str, Any] | None) -> KernelSpec:
    values = kernel.model_dump(exclude={"call"})
    return KernelSpec(**values, call=None if call is None else Call(call["op"], _json(call["arguments"])))


def _kernel_values(kernel: KernelSpec) -> dict[str, Any]:
    call = kernel.call
    values: dict[str, Any] = {
        field.alias or name: getattr(kernel, name) for name, field in _Kernel.model_fields.items() if name != "call"
    }
    return values | {"call": None if call is None else {"op": call.op, "arguments": json.loads(call.arguments)}}


def _json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _tensors_named(values: list[Any]) -> list[Any]:
    """Indices of tensors among arguments, including those in lists."""
    indices: list[Any] = []
    for value in values:
        if isinstance(value, list):
            indices += _tensors_named(value)
        elif isinstance(value, dict) and "tensor" in value:
            indices.append(value["tensor"])
    return indices
