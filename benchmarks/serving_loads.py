"""Loads and engines that policies are judged with: an hour of a conversation service, pdblend's table, kernels of an H200.

The first ten minutes of the trace are for choosing and shaping; policies are judged on the fifty that follow.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import datetime

import numpy as np

from benchmarks.kept import BESIDE, DATA
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.from_steps import profile_of_steps
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.steps_csv import read_step_tables

TRACES = BESIDE / "serving"
PROFILES = DATA / "serving"
"""Of engines, made with ``wastenot serve profile llama-8b --device sim:h200``."""
SHAPED_S = 600.0
"""Of the trace, from its beginning: may shape a policy and never judges one."""


def conversation(begin_s: float = 0.0, end_s: float = 3600.0) -> Requests:
    """A part of the trace, its times counted from ``begin_s``."""
    with (TRACES / "AzureLLMInferenceTrace_conv.csv").open() as file:
        rows = list(csv.DictReader(file))
    at = np.array([datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows])
    at -= at[0]
    part = (at >= begin_s) & (at < end_s)
    prompt, output = (np.array([int(row[name]) for row in rows])[part] for name in ("ContextTokens", "GeneratedTokens"))
    return Requests(at[part] - begin_s, prompt, output)


def pdblend() -> Engine:
    """Qwen2.5-7B on a card with 48 GiB, fitted to pdblend's table; contexts beyond 4,096 tokens are by the law."""
    table = read_step_tables(TRACES / f"pdblend-qwen2.5-7b-{phase}.csv" for phase in ("prefill", "decode"))
    engine = profile_of_steps(table, most_context=16384.0).engine()
    return replace(engine, cache_blocks=20_000, device="pdblend")


def engines() -> dict[str, Engine]:
    """The engines that policies are judged on, by name, at clocks that were measured or fitted."""
    return {
        "sim:h200": read_engine(PROFILES / "llama-8b-sim-h200.json").engine().within_known_clocks(),
        "pdblend": pdblend(),
    }
