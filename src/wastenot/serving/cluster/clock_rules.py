"""Rules by which an instance's clock follows its batch: tables that are made once, and looked up before each step."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.frontiers import InstanceFrontier
from wastenot.serving.cluster.model import ClockRule
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.costs import StepCosts


def greatest(engine: Engine) -> ClockRule:
    """The greatest clock, whatever happens."""
    return ClockRule.fixed(len(engine.tables.settings) - 1, engine)


def rule_at(frontier: InstanceFrontier, rate_per_s: float) -> ClockRule:
    """The rule of the first level of load that takes a rate; beyond capacity, the greatest clock."""
    level = int(np.searchsorted(frontier.rate_per_s * (1 + 1e-9), rate_per_s))
    return frontier.rule[level] if level < len(frontier.rule) else greatest(frontier.engine)


def decode_s(engine: Engine, context: float) -> FloatArray:
    """The time of a decode step, by setting and batch, at a context; shape (settings, most_running + 1)."""
    batch = np.maximum(np.arange(engine.most_running + 1, dtype=np.float64), 1.0)
    return StepCosts(engine.tables).decode(batch, np.full(len(batch), context))[0] + engine.overhead_s
