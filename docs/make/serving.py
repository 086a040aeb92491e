"""Figures of a simulated engine.

The engine is data/serving/llama-8b-sim-h200.json, which 'wastenot serve profile llama-8b --device sim:h200' wrote: simulated.
"""

from __future__ import annotations

from functools import partial

from benchmarks.kept import DATA
from docs.make.page import Page, figure
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.page.engine_page import engine_page

ENGINE = DATA / "serving" / "llama-8b-sim-h200.json"


def engine(name: str) -> bytes:
    """A figure of the engine's profile."""
    return figure(engine_page(read_engine(ENGINE)).export, name)


PAGES = (Page("serving", pictures={"engine-clocks.png": partial(engine, "engine-clocks")}),)
