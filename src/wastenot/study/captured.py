"""Captured operations in a study: what a kernel, a pass or the iteration runs, with all it takes to run them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from sqlalchemy import Connection, insert, select

from wastenot.study import schema
from wastenot.workloads.kernel import Call, KernelSpec, Op

Steps = tuple[tuple[KernelSpec, int], ...]
"""What one measured kernel, pass or iteration runs: kernels in order, each with its number of calls."""

# Columns that hold an attribute of KernelSpec under its own name.
_CAPTURED_AS_IT_IS = (
    "name", "label", "op", "flops", "bytes_read", "bytes_written", "block", "count", "place", "element_bytes",
)  # fmt: skip


def store_captured(connection: Connection, steps: Mapping[str, Steps], kernel_ids: Mapping[str, int]) -> None:
    """Store the captured operations that kernels, passes or the iteration run, where they are not stored yet.

    Args:
        connection: in a writing transaction.
        steps: of each by name; those with kernels that were not captured are passed over.
        kernel_ids: the id in the store of each.
    """
    table = schema.captured
    captured = {kernel_ids[name]: each for name, each in steps.items() if all(spec.call is not None for spec, _ in each)}
    stored = set(connection.scalars(select(table.c.kernel_id).where(table.c.kernel_id.in_(captured))))
    rows = [
        {"kernel_id": kernel_id, "position": position, "calls": calls} | _captured_values(spec)
        for kernel_id, each in captured.items()
        if kernel_id not in stored
        for position, (spec, calls) in enumerate(each)
    ]
    if rows:
        connection.execute(insert(table), rows)


def read_captured(connection: Connection, workload: int) -> dict[str, Steps]:
    """The captured operations that each kernel, pass or the iteration of a workload runs, by its name.

    Raises:
        ValueError: what is stored cannot be.
    """
    table, owners = schema.captured, schema.kernels
    query = (
        select(table, owners.c.name.label("owner"))
        .join(owners, owners.c.id == table.c.kernel_id)
        .where(owners.c.workload_id == workload)
        .order_by(owners.c.position, table.c.position)
    )
    found: dict[str, Steps] = {}
    for row in connection.execute(query).mappings():
        if row["op"] not in get_args(Op):
            raise ValueError(f"an operation of kind {row['op']!r}")
        spec = KernelSpec(
            **{name: row[name] for name in _CAPTURED_AS_IT_IS},
            shape=tuple(int(size) for size in row["shape"].split("x") if size),
            pass_name=row["pass"],
            call=Call(row["operation"], row["arguments"]),
        )
        found[row["owner"]] = (*found.get(row["owner"], ()), (spec, row["calls"]))
    return found


def _captured_values(spec: KernelSpec) -> dict[str, object]:
    assert spec.call is not None
    values = {name: getattr(spec, name) for name in _CAPTURED_AS_IT_IS}
    values |= {"pass": spec.pass_name, "shape": "x".join(map(str, spec.shape))}
    return values | {"operation": spec.call.op, "arguments": spec.call.arguments}
