"""Policies of one engine's clock by name: the same for an engine alone, each instance of a cluster, and live servers.

All have the interface of :mod:`wastenot.serving.simulation.policy`, and each is named after its algorithm. ``by-metrics`` is
the one that needs nothing but what servers publish, so it is what ``wastenot serve control`` runs; the others see a
scheduler's own queues and predicted lengths, which no server publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, get_args

from wastenot.serving.policies.by_metrics import ByMetrics
from wastenot.serving.policies.price import Price
from wastenot.serving.policies.throttle import Throttle
from wastenot.serving.policies.two_loops import TwoLoops
from wastenot.serving.simulation.policy import Policy

Name = Literal["throttllem", "greenllm", "price", "by-metrics"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)

_MAKE: Final[dict[Name, Callable[[float], Policy]]] = {
    "throttllem": lambda length_error: Throttle(inflate=1.0 + length_error),
    "greenllm": lambda _: TwoLoops(),
    "price": lambda _: Price(),
    "by-metrics": lambda _: ByMetrics(),
}


def maker_of(name: Name, *, length_error: float = 0.0) -> Callable[[], Policy]:
    """What makes a new policy for each engine.

    Args:
        name: of the policy.
        length_error: how far predicted lengths of answers are off, for policies that are to be on the safe side of it.
    """
    return partial(_MAKE[name], length_error)
