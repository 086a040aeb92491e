"""A small pipeline's plan with the plans along its frontier, and replicas that take so long."""

from __future__ import annotations

import math
import random
from functools import cache

from testbed.pipeline_runs import made_profile
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.planner import frontier_rungs, plan_pipeline, with_rungs
from wastenot.pipelines.run.stragglers import Order, Stragglers


@cache
def planned_frontier(stages: int = 2, micro_batches: int = 3, rungs: int = 16, forward_s: float = 0.1) -> PipelinePlan:
    """A plan at no slowdown, and its frontier."""
    profile = made_profile(stages, forward_s=forward_s)
    made = plan_pipeline(profile, one_forward_one_backward(stages, micro_batches))
    return with_rungs(made, frontier_rungs(made, rungs)).plan


class Job:
    """Replicas of two ranks that run what they are told, and report to whoever decides.

    Attributes:
        orders: of each replica, the newest last.
        iteration: that runs next.
    """

    def __init__(self, stragglers: Stragglers, replicas: int, *, noise: float = 0.0, ranks: int = 2, seed: int = 0) -> None:
        self.stragglers, self.noise, self.ranks = stragglers, noise, ranks
        self.rng = random.Random(seed)
        self.orders: list[list[Order]] = [[] for _ in range(replicas)]
        self.iteration = 0
        for replica in range(replicas):
            for rank in range(ranks):
                self.orders[replica] = [stragglers.join(replica, rank, 0.0)]

    def run(self, iterations: int, *slower: float, throttled: str | None = None) -> None:
        """Run iterations in which replicas are slower than planned by these factors; those left out are not."""
        for _ in range(iterations):
            for replica in range(len(self.orders)):
                factor = slower[replica] if replica < len(slower) else 1.0
                drawn = factor * math.exp(self.rng.gauss(0.0, self.noise))
                for rank in range(self.ranks):
                    self.take(
                        self.stragglers.report(
                            replica, rank, self.iteration, drawn, float(self.iteration),
                            throttled if factor > 1.0 and rank == 0 else None,
                        )
                    )  # fmt: skip
            self.iteration += 1

    def take(self, orders: dict[int, Order]) -> None:
        """What ranks are told."""
        for replica, order in orders.items():
            self.orders[replica].append(order)

    def rung(self, replica: int, iteration: int | None = None) -> int:
        """That a replica runs in an iteration."""
        at = self.iteration if iteration is None else iteration
        return next(order.rung for order in reversed(self.orders[replica]) if order.begin <= at)
