"""What the captured kernels of a workload compute: no name tells it, so a study that measured them keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from sqlalchemy import Connection, insert, inspect, select

from wastenot.study import schema
from wastenot.workloads.call import Call
from wastenot.workloads.kernel import KernelSpec, Op


def store_captured(connection: Connection, specs: Mapping[str, KernelSpec], kernel_ids: Mapping[str, int]) -> None:
    """Keep what captured kernels compute, where it is not kept yet.

    Args:
        connection: in a writing transaction.
        specs: by name; those that were not captured are passed over.
        kernel_ids: the id in the store of each kernel.
    """
    table = schema.captured
    wanted = {kernel_ids[name]: spec for name, spec in specs.items() if spec.call is not None}
    there = set(connection.scalars(select(table.c.kernel_id).where(table.c.kernel_id.in_(wanted))))
    rows = [_row(kernel_id, spec) for kernel_id, spec in wanted.items() if kernel_id not in there]
    if rows:
        connection.execute(insert(table), rows)


def read_captured(connection: Connection, workload_id: int) -> dict[str, KernelSpec]:
    """What the captured kernels of a workload compute, by name, in order of execution.

    Raises:
        ValueError: what is stored cannot be.
    """
    table, kernels = schema.captured, schema.kernels
    if not inspect(connection).has_table(table.name):  # studies of before the table have none
        return {}
    query = (
        select(table, kernels.c.name, kernels.c.count.label("times"), kernels.c["pass"].label("pass_name"), kernels.c.block)
        .join(kernels, kernels.c.id == table.c.kernel_id)
        .where(kernels.c.workload_id == workload_id)
        .order_by(kernels.c.position)
    )
    found: dict[str, KernelSpec] = {}
    for row in connection.execute(query):
        if row.op not in get_args(Op):
            raise ValueError(f"an operation of kind {row.op!r}")
        found[row.name] = KernelSpec(
            name=row.name,
            label=row.label,
            op=row.op,
            shape=tuple(int(size) for size in row.shape.split("x") if size),
            flops=row.flops,
            bytes_read=row.bytes_read,
            bytes_written=row.bytes_written,
            pass_name=row.pass_name or "",
            block=row.block,
            count=row.times,
            place=len(found) + 1,
            call=Call(row.operation, row.arguments),
            element_bytes=row.element_bytes,
        )
    return found


def _row(kernel_id: int, spec: KernelSpec) -> dict[str, object]:
    assert spec.call is not None
    return {
        "kernel_id": kernel_id,
        "label": spec.label,
        "op": spec.op,
        "shape": "x".join(map(str, spec.shape)),
        "flops": spec.flops,
        "bytes_read": spec.bytes_read,
        "bytes_written": spec.bytes_written,
        "element_bytes": spec.element_bytes,
        "operation": spec.call.op,
        "arguments": spec.call.arguments,
    }
