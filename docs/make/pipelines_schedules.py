"""Schedules of a pipeline as text, and what they make ranks wait, by the product itself."""

from __future__ import annotations

from functools import partial

from docs.make.page import Page, table
from testbed.pipeline_timeline import UNITS, Timeline, drawn, timeline
from wastenot.pipelines.model.schedules import SCHEDULES, build_schedule
from wastenot.workloads.communication import LINKS

DRAWN = (4, 8)  # ranks, micro-batches
COUNTED = ((8, 8), (8, 32))
CHUNKS = 2


def picture(name: str) -> str:
    """A schedule drawn as text."""
    return f"```text\n{drawn(run(name, *DRAWN))}\n```\n"


def bubbles() -> str:
    """How long ranks wait and how many micro-batches they hold, by schedule."""
    heads = "schedule"
    for ranks, micro_batches in COUNTED:
        heads += f" | {ranks} × {micro_batches}: waiting | held"
    rows = []
    for name in SCHEDULES:
        row = [f"`{name}`"]
        for ranks, micro_batches in COUNTED:
            if name == "dualpipe" and micro_batches < 2 * ranks:
                row += ["–", "–"]
                continue
            line = run(name, ranks, micro_batches)
            held = max(line.held) / (CHUNKS if name == "interleaved" else 1)
            row += [f"{100 * line.waiting[0]:.1f} %", f"{held:g}"]
        rows.append(row)
    return table(heads, rows)


def links() -> str:
    """Links between ranks, with their sources."""
    rows = [
        (f"`{link.name}`", f"{link.bytes_per_s / 1e9:g} GB/s", f"{1e6 * link.latency_s:g} µs", link.source)
        for link in LINKS.values()
    ]
    return table("link | each way | latency | source", rows)


def run(name: str, ranks: int, micro_batches: int) -> Timeline:
    """A schedule with a forward of one unit for a whole rank and a backward of two."""
    times = {each: unit / (CHUNKS if name == "interleaved" else 1) for each, unit in UNITS.items()}
    return timeline(build_schedule(name, ranks=ranks, micro_batches=micro_batches), times)


PAGES = (
    Page(
        "pipelines-schedules",
        {f"picture-{name}": partial(picture, name) for name in SCHEDULES if name != "gpipe"}
        | {"bubbles": bubbles, "links": links},
    ),
)
