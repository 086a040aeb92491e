"""Draws the figures of the pages about pipelines.

PYTHONPATH=src:. python docs/make_pipelines.py [plan] [lowtime]

``pipeline-schedule``, ``-power``, ``-frontier`` and ``-savings``: GPT-3 175B on simulated H200s, as the run on
docs/pipelines.md, were switching free. ``pipeline-lowtime``: a made-up profile like an A100's, ours beside the plans of lowtime 0.3.0 in
data/pipelines/lowtime-8x64.json, which were recomputed from the same profile.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import vl_convert

import wastenot as wn
from benchmarks.synthetic_pipeline import CLOCKS_MHZ, synthetic_rows
from wastenot.core.origin import Origin
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.pages.figure import Figure, export_figures
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.page.frontier_figure import frontier_figure
from wastenot.pipelines.page.page import pipeline_figures
from wastenot.pipelines.plan.overview import OthersPoints, PipelineOverview, pipeline_overview
from wastenot.pipelines.plan.planner import frontier_rungs, plan_pipeline, with_rungs
from wastenot.pipelines.plan.savings import savings_by_shape

ROOT = Path(__file__).parents[1]
LOWTIME, IMAGES = ROOT / "data/pipelines/lowtime-8x64.json", ROOT / "docs/images"
SHOWN = ("pipeline-schedule", "pipeline-power", "pipeline-frontier", "pipeline-savings", "pipeline-lowtime")
POINTS, SCALE = 30, 1.6


def main(*names: str) -> None:
    """Draw the sets that are named, or both."""
    if "plan" in (names or ("plan",)):
        made = wn.pipeline("gpt3-175b", stages=8, micro_batches=48, device="sim:h200", switch_time_s=0.0, frontier=POINTS)
        savings = savings_by_shape(made.profile, made.schedule)
        _draw(pipeline_figures(pipeline_overview(made.plan, savings=savings)), made.plan.origin)
    if "lowtime" in (names or ("lowtime",)):
        beside = beside_lowtime()
        _draw([replace(frontier_figure(beside), name="pipeline-lowtime")], beside.plan.origin)


def beside_lowtime() -> PipelineOverview:
    """Our frontier and the points of lowtime, both of the same profile."""
    kept = json.loads(LOWTIME.read_text())
    rows = synthetic_rows(kept["stages"])
    ways: dict[tuple[int, str], list[tuple[float, float, Setting]]] = {}
    for stage, name, clock, time_s, energy_j in rows:
        ways.setdefault((stage, name), []).append((time_s, energy_j, Setting(float(clock))))
    fastest = max(CLOCKS_MHZ)
    profile = PipelineProfile(
        "eight uneven stages",
        "a made-up A100",
        "synthetic",
        {key: choice(each) for key, each in ways.items()},
        {(stage, name): (time_s, energy_j) for stage, name, clock, time_s, energy_j in rows if clock == fastest},
        kept["waiting_w"],
        baseline_clocks="highest",
    )
    made = plan_pipeline(profile, one_forward_one_backward(kept["stages"], kept["micro_batches"]))
    time_at, energy_at = (kept["columns"].index(name) for name in ("time_s", "energy_j"))
    points = tuple((point[time_at], point[energy_at]) for point in kept["points"])
    made = with_rungs(made, frontier_rungs(made, POINTS))
    return replace(pipeline_overview(made.plan, others=[OthersPoints(f"lowtime {kept['lowtime']}", points)]), stragglers=())


def _draw(figures: Sequence[Figure], origin: Origin) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in export_figures(figures, origin, folder):
            if path.suffix == ".svg" and path.stem in SHOWN:
                picture = packed(vl_convert.svg_to_png(path.read_text(), scale=SCALE))
                (IMAGES / f"{path.stem}.png").write_bytes(picture)


def packed(png: bytes) -> bytes:
    """The same picture in a fifth of the bytes: what draws it compresses for speed."""
    head, chunks, at = png[:8], [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    pixels = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    end = chunks.pop()
    kept = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    written = [*kept, (b"IDAT", zlib.compress(pixels, 9)), end]
    return head + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in written
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
