"""The verbs of serving by the names of their commands: ``wn.serve.bench`` is ``wastenot serve bench``."""

from __future__ import annotations

from wastenot.serving.bench.bench import serve_bench as bench
from wastenot.serving.control.instance import Rules
from wastenot.serving.control.verbs import control, replay
from wastenot.serving.model.configurations import Only
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.recommend import Bounds, Prices
from wastenot.serving.verbs import profile, recommend, simulate, simulate_scenario

__all__ = [
    "Bounds",
    "Deadlines",
    "Only",
    "Prices",
    "Rules",
    "bench",
    "control",
    "profile",
    "recommend",
    "replay",
    "simulate",
    "simulate_scenario",
]
