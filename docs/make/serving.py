"""Steps of a server on an H200, from data/h200/serving, and figures of a simulated engine.

The engine is data/serving/llama-8b-sim-h200.json, which 'wastenot serve profile llama-8b --device sim:h200' wrote: simulated.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from functools import partial

import numpy as np

from benchmarks.kept import BESIDE, DATA
from docs.make.commands import Commands, pictures_by
from docs.make.page import Page, figure, percent, read_json, signed, table
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.page.engine_page import engine_page

ENGINE = DATA / "serving" / "llama-8b-sim-h200.json"


def steps() -> str:
    """Steps measured, and how far off they are put together from kernels."""
    from benchmarks.h200.serving_steps import judge

    record = read_json(DATA / "h200" / "serving" / "steps.json")
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
    return table("step | sequences × tokens | time, measured | power | time from kernels | energy from kernels", cells) + (
        f"\nMean of absolute differences: {percent(time.mean())} in time and {percent(energy.mean())} in energy; "
        f"{(time <= 0.05).sum()} and {(energy <= 0.05).sum()} of {len(rows)} steps are within 5 %, and all within "
        f"{100 * time.max():.1f} and {100 * energy.max():.1f} %.\n"
    )


def engine(name: str) -> bytes:
    """A figure of the engine's profile."""
    return figure(engine_page(read_engine(ENGINE)).export, name)


RECOMMENDED = Commands(
    (
        "wastenot serve recommend ml-energy.csv --task lm-arena-chat --model 3.1-8B --itl 50ms --clocks engine.json --figures figures",
    ),
    (("ml-energy.csv", BESIDE / "serving" / "ml-energy-h100.csv"), ("engine.json", ENGINE)),
)

PAGES = (
    Page(
        "serving",
        {"h200-steps": steps},
        {"engine-clocks.png": partial(engine, "engine-clocks")}
        | pictures_by(RECOMMENDED, [("recommendations.png", "figures/recommendations.png")]),
    ),
    Page("engine-profiles", pictures={"engine-latency.png": partial(engine, "engine-latency")}),
)
