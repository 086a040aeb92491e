"""What happened in a run, and its GPUs, as tables."""

from __future__ import annotations

from wastenot.control.page.time_line_figure import listed
from wastenot.control.status import GpuStatus, Summary
from wastenot.pages.formatting import duration, quantity
from wastenot.pages.table import Column, Row, Table

_KINDS = {
    "started": "started",
    "stepped": "step",
    "drift": "drift",
    "refused": "refused",
    "restored": "clocks restored",
    "stopped": "stopped",
    "ended": "ended",
    "note": "note",
}


def events_table(summary: Summary) -> Table | None:
    """What happened, in order; ``None`` where nothing did between start and end."""
    events = listed(summary.status)
    if not events:
        return None
    rows = []
    for number, event in events:
        at = f"{event.at_s:,.1f} s" if event.at_s < 600.0 else duration(event.at_s)
        rows.append(
            Row(None, (str(number), at, _KINDS[event.kind], event.text), (number, event.at_s, event.kind, event.text))
        )
    columns = (Column("Event", numeric=True), Column("After", numeric=True), Column("What"), Column("Details"))
    return Table("What happened", columns, tuple(rows))


def gpus_table(summary: Summary) -> Table | None:
    """What each GPU used, and how it stood at the end; ``None`` for one alone, of which the rest of the page tells."""
    if len(summary.status.gpus) < 2:
        return None
    columns = (
        Column("GPU"), Column("Model"), Column("Energy", numeric=True), Column("Power", numeric=True),
        Column("Temperature", numeric=True), Column("Clocks in effect"),
    )  # fmt: skip
    note = "Energy since the plan was applied; other values as last read before the clocks were reset. –: unknown."
    if summary.status.rehearsal is not None:
        note = "Simulated GPUs, which ran nothing of the program, as last read before the clocks were reset. –: unknown."
    return Table("GPUs", columns, tuple(map(_gpu_row, summary.status.gpus)), note)


def _gpu_row(gpu: GpuStatus) -> Row:
    texts = (
        gpu.device,
        gpu.model,
        "–" if gpu.energy_j is None else quantity(gpu.energy_j, "J", 4),
        "–" if gpu.power_w is None else f"{gpu.power_w:.0f} W",
        "–" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        _clocks(gpu.core_mhz, gpu.memory_mhz),
    )
    return Row(None, texts, (gpu.device, gpu.model, gpu.energy_j, gpu.power_w, gpu.temperature_c, texts[-1]))


def _clocks(core_mhz: float | None, memory_mhz: float | None) -> str:
    core, memory = ("–" if each is None else f"{each:,.0f} MHz" for each in (core_mhz, memory_mhz))
    return f"core {core}, memory {memory}"
