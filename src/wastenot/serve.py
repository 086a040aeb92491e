"""The verbs of serving by the names of their commands: ``wn.serve.bench`` is ``wastenot serve bench``."""

from __future__ import annotations

from wastenot.serving.bench.bench import serve_bench as bench
from wastenot.serving.cluster.simulated import simulate_scenario
from wastenot.serving.control.instance import Rules
from wastenot.serving.control.verbs import control, replay
from wastenot.serving.model.configurations import Only, recommend
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine_kernels import profile_from_kernels as profile
from wastenot.serving.model.recommend import Bounds, Prices
from wastenot.serving.model.steering import steer as simulate

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
