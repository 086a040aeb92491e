"""The simulator and the plain engine on the same case, and whether they found the same."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from testbed.plain_engine import plainly_served
from testbed.random_serving import Case
from wastenot.serving.simulation.policy import Policy
from wastenot.serving.simulation.served import Served
from wastenot.serving.simulation.simulate import simulate


def both(case: Case, one: Policy, other: Policy, timeline_s: float | None = None) -> tuple[Served, Served]:
    told: dict[str, Any] = {
        "deadlines": case.deadlines,
        "predicted_tokens": case.predicted_tokens,
    }
    return (
        simulate(case.requests, case.engine, one, timeline_s=timeline_s, **told),
        plainly_served(case.requests, case.engine, other, **told),
    )


def assert_alike(fast: Served, plain: Served) -> None:
    for each in fields(Served):
        if each.name in ("requests", "timeline"):
            continue
        one, other = getattr(fast, each.name), getattr(plain, each.name)
        if isinstance(one, dict):
            assert one.keys() == other.keys()
            one, other = list(one.values()), list(other.values())
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=each.name)
