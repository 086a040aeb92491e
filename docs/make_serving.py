"""Draws the figures of docs/serving.md, and computes its table of steps on an H200 from data/h200/serving.

PYTHONPATH=src:. python docs/make_serving.py
PYTHONPATH=src:. python docs/make_serving.py ML-ENERGY.csv    draws the recommendation, too

The engine is data/serving/llama-8b-sim-h200.json, which 'wastenot engine llama-8b --device sim:h200' wrote: simulated.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from docs.blocks import signed, table, write_blocks
from docs.make_pipelines import packed
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.page.engine_page import write_engine_figures

ROOT = Path(__file__).parents[1]
PAGE, IMAGES = ROOT / "docs" / "serving.md", ROOT / "docs" / "images"
STEPS = ROOT / "data" / "h200" / "serving" / "steps.json"
ENGINE = ROOT / "data" / "serving" / "llama-8b-sim-h200.json"
SHOWN = ("engine-latency", "engine-clocks")
ASKED = ("--task", "lm-arena-chat", "--model", "3.1-8B", "--itl", "50ms", "--clocks", str(ENGINE))


def steps() -> str:
    """Steps measured, and how far off they are put together from kernels."""
    from benchmarks.serving_on_gpu import judge  # with PyTorch

    record = json.loads(STEPS.read_text())
    with redirect_stdout(io.StringIO()):
        rows = [{**row, **off} for row, off in zip(record["steps"], judge(record), strict=True)]
    cells = [
        [
            row["phase"],
            f"{row['batch']} × {row['tokens']:,}",
            f"{1e3 * row['time_s']:.2f} ms",
            f"{row['power_w']:.0f} W",
            signed(100 * row["time"], 1, " %"),
            signed(100 * row["energy"], 1, " %"),
        ]
        for row in rows
    ]
    time, energy = (np.abs([row[what] for row in rows]) for what in ("time", "energy"))
    return table(
        ["step", "sequences × tokens", "time, measured", "power", "time from kernels", "energy from kernels"], cells
    ) + (
        f"\nMean of absolute differences: {100 * time.mean():.1f} % in time and {100 * energy.mean():.1f} % in energy; "
        f"{(time <= 0.05).sum()} and {(energy <= 0.05).sum()} of {len(rows)} steps are within 5 %, and all within "
        f"{100 * time.max():.1f} and {100 * energy.max():.1f} %.\n"
    )


def blocks() -> dict[str, str]:
    """All computed blocks of the page."""
    return {"h200-steps": steps()}


def draw(table_of_servers: str | None) -> None:
    """Write the figures."""
    with tempfile.TemporaryDirectory() as folder:
        for path in write_engine_figures(read_engine(ENGINE), folder):
            if path.suffix == ".png" and path.stem in SHOWN:
                (IMAGES / path.name).write_bytes(packed(path.read_bytes()))
    if table_of_servers is not None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "wastenot", "recommend", table_of_servers, *ASKED, "--figures", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            picture = (Path(folder) / "recommendations.png").read_bytes()
            (IMAGES / "recommendations.png").write_bytes(packed(picture))


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
    draw(sys.argv[1] if sys.argv[1:] else None)
