"""Policies of one engine's clock by name: the same for an engine alone and for each instance of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from wastenot.serving.policies.by_metrics import ByMetrics
from wastenot.serving.policies.price import Price
from wastenot.serving.policies.throttle import Throttle
from wastenot.serving.policies.two_loops import TwoLoops
from wastenot.serving.simulation.policy import Policy

_MAKE: Final[dict[str, Callable[[float], Policy]]] = {
    "throttllem": lambda length_error: Throttle(inflate=1.0 + length_error),
    "greenllm": lambda _: TwoLoops(),
    "price": lambda _: Price(),
    "by-metrics": lambda _: ByMetrics(),
}


def maker_of(name: str, *, length_error: float = 0.0) -> Callable[[], Policy]:
    """What makes a new policy for each engine.

    Args:
        name: ``throttllem``, ``greenllm``, ``price`` or ``by-metrics``.
        length_error: how far predicted lengths of answers are off, for policies that are to be on the safe side of it.
    """
    return partial(_MAKE[name], length_error)
