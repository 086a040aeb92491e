"""``wastenot kernel workloads``: the models that are known, and the kernels of one."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

from wastenot.core.wording import counted
from wastenot.terminal import completing
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption, ShapeOptions, WorkloadOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.workloads.bound import Roofline
    from wastenot.workloads.kernel import KernelSpec, Workload
    from wastenot.workloads.models import Model


def workloads(
    shape_options: ShapeOptions,
    name: Annotated[
        str | None,
        argument(
            "A model such as gpt3-xl, a captured workload (.json), or a study; without it, all models are listed.",
            "[NAME]",
            autocompletion=completing.workloads,
        ),
    ] = None,
    workload: WorkloadOption = None,
    device: Annotated[
        str | None,
        option(
            "Show what bounds each kernel on this GPU: h200, sim:rtx-3080-ti, ...",
            "GPU",
            autocompletion=completing.simulated,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the known models, or show the kernels of one.

    For a model, a captured workload or a study: shapes, FLOPs, bytes, and whether each kernel is compute- or
    memory-bound on a GPU.
    """
    from wastenot.core.values import as_values
    from wastenot.meters.tasks import find_workload
    from wastenot.terminal.output import console, print_json
    from wastenot.workloads.bound import find_roofline
    from wastenot.workloads.build import list_workloads

    if name is None:
        models = list_workloads()
        if as_json:
            known = [as_values(model) | {"parameters": model.parameters} for model in models]
            print_json("workloads", {"workloads": known})
        else:
            console().print(_models_text(models))
        return
    shape = shape_options.shape()
    built = find_workload(name, shape, workload)
    roofline = None if device is None else find_roofline(device, built.run.shape.dtype if built.run else shape.dtype)
    if as_json:
        print_json("kernels", _document(built, roofline))
    else:
        console().print(workload_text(built, roofline))


def _document(built: Workload, roofline: Roofline | None) -> dict[str, Any]:
    from wastenot.core.values import as_values
    from wastenot.workloads.named import find_model

    run = built.run
    return {
        "workload": built.name,
        "description": built.description,
        "model": None if run is None else run.model,
        "parameters": None if run is None else find_model(run.model).parameters,
        "shape": None if run is None else as_values(run.shape),
        "captured_on": built.captured_on,
        "flops": built.flops,
        "bytes": built.bytes_moved,
        "calls": built.calls,
        "device": None if roofline is None else as_values(roofline) | {"flops_per_byte": roofline.flops_per_byte},
        "kernels": [_kernel_values(kernel, roofline) for kernel in built.kernels],
    }


def _kernel_values(kernel: KernelSpec, roofline: Roofline | None) -> dict[str, Any]:
    from wastenot.core.values import as_values

    values: dict[str, Any] = as_values(kernel)
    values["pass"] = values.pop("pass_name")
    del values["call"], values["element_bytes"]  # not a captured kernel, and the data type is part of the shape
    return values | {
        "flops_per_byte": kernel.intensity if kernel.bytes_moved else None,
        "bound": None if roofline is None or not kernel.bytes_moved else roofline.bound(kernel),
    }


def _models_text(models: tuple[Model, ...]) -> RenderableType:
    from wastenot.terminal.tables import plain_table

    numbers = ("layers", "width", "heads", "key-value heads", "feed forward", "vocabulary", "parameters")
    table = plain_table(("workload",), numbers)
    for model in models:
        sizes = (model.layers, model.width, model.heads, model.groups, model.hidden, model.vocabulary)
        table.add_row(model.name, *(f"{size:,}" for size in sizes), _parameters(model))
    return table


def workload_text(built: Workload, roofline: Roofline | None = None) -> RenderableType:
    """The kernels of a workload, for a terminal; with a GPU's roofline also what bounds each."""
    from wastenot.terminal.tables import Group, Text, plain_table
    from wastenot.workloads.named import find_model

    table = plain_table(("kernel", "", "shape"), ("GFLOP", "MB", "FLOP/B", "count"), less_important=("", "MB"))
    if roofline is not None:
        table.add_column(Text("bound"))
    for pass_name, kernels in groupby(built.kernels, key=lambda kernel: kernel.pass_name):
        table.add_row(Text(pass_name.replace("_", " "), style="bold"))
        for kernel in kernels:
            known = kernel.bytes_moved > 0.0
            table.add_row(
                Text(f"  {kernel.name}"),
                Text(kernel.label),
                shape_text(kernel),
                f"{kernel.flops / 1e9:,.3f}" if known else "–",
                f"{kernel.bytes_moved / 1e6:,.3f}" if known else "–",
                f"{kernel.intensity:,.1f}" if known else "–",
                f"{kernel.count:,}",
                *(() if roofline is None else (roofline.bound(kernel) if known else "–",)),
            )
    totals = (
        f"{counted(built.calls, 'call')} of {counted(len(built.kernels), 'kernel')}: {built.flops / 1e12:,.3f} TFLOP, "
        f"{built.bytes_moved / 1e9:,.3f} GB"
    )
    if built.run is not None:
        totals += f"; the model has {_parameters(find_model(built.run.model))} parameters"
    unknown = sum(not kernel.bytes_moved for kernel in built.kernels)
    if unknown:
        totals += f"; FLOPs and bytes of {counted(unknown, 'kernel')} are not known"
    bounds = () if roofline is None else (Text(_roofline_text(roofline)),)
    return Group(Text(built.name, style="bold"), Text(built.description), "", table, "", Text(totals), *bounds)


def _roofline_text(roofline: Roofline) -> str:
    return (
        f"{roofline.device}: {roofline.peak_flops / 1e12:,.1f} TFLOP/s in {roofline.dtype}, "
        f"{roofline.peak_bytes_per_s / 1e9:,.0f} GB/s; a kernel of more than {roofline.flops_per_byte:.1f} FLOP/B "
        "is compute-bound"
    )


def shape_text(kernel: KernelSpec) -> str:
    """The sizes of a kernel: ``m×n×k`` of a matrix product, after their number if there are several."""
    if kernel.op != "gemm":
        return "×".join(map(str, kernel.shape))
    batches, *sizes = kernel.shape
    product = "×".join(map(str, sizes))
    return product if batches == 1 else f"{batches} of {product}"


def _parameters(model: Model) -> str:
    count = model.parameters
    return f"{count / 1e9:,.2f} B" if count >= 1e9 else f"{count / 1e6:,.0f} M"
