"""Figures of an engine: Qwen2.5-7B, fitted to the steps that pdblend's authors measured."""

from __future__ import annotations

from functools import partial

from benchmarks.serving_loads import pdblend
from docs.make.page import Page, figure
from wastenot.serving.model.profile_file import EngineProfile
from wastenot.serving.page.engine_page import engine_page


def engine(name: str) -> bytes:
    """A figure of the engine's profile."""
    return figure(engine_page(EngineProfile((pdblend(),))).export, name)


PAGES = (Page("serving", pictures={"engine-clocks.png": partial(engine, "engine-clocks")}),)
