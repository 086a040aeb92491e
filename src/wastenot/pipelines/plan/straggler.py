"""Which plan of a pipeline's frontier is done just when a slower pipeline is: a look-up, as everything was solved before.

replica 0   |######## its fastest plan, throttled ########|           all wait for the slowest at the end
replica 1   |#### fastest ####|········ waits ············|
replica 1   |######## the plan done just then ###########|           the same iteration, with less energy
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.plan import PipelinePlan

_SAME = 1e-9  # relative difference of two times that are one time computed twice


@dataclass(frozen=True, slots=True)
class Saving:
    """Energy of one pipeline in an iteration that lasts until the straggler is done.

    Attributes:
        until_s: that it lasts.
        energy_j: with the plan done just then, waiting for what is left.
        default_j: at the default clocks, and then waiting.
        own_j: with the plan for no straggler, and then waiting.
    """

    until_s: float
    energy_j: float
    default_j: float
    own_j: float

    @property
    def energy_change(self) -> float:
        """Relative to the default clocks and waiting; negative is saved."""
        return self.energy_j / self.default_j - 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What pipelines that wait for each other take.

    Attributes:
        until_s: when the slowest is done.
        rungs: of each pipeline, an index into the plan's rungs.
    """

    until_s: float
    rungs: tuple[int, ...]


class Rungs:
    """The plans along a pipeline's frontier, ready to be looked up.

    Args:
        plan: with rungs (``wastenot pipeline plan --frontier N``).

    Attributes:
        time_s: of an iteration, by rung, as expected.
        energy_j: likewise, of all GPUs.
        own: the rung for no straggler: the plan itself, or in older files the one of least energy within its deadline.

    Raises:
        BadInputError: the plan has none.
    """

    def __init__(self, plan: PipelinePlan) -> None:
        if not plan.rungs:
            raise BadInputError(
                f"{plan.name}: the plan has no frontier; make it with 'wastenot pipeline plan --frontier 100'"
            )
        self.plan = plan
        self.time_s = tuple(rung.time_s for rung in plan.rungs)
        self.energy_j = tuple(rung.energy_j for rung in plan.rungs)
        self._waiting_w = plan.waiting_w * plan.gpus
        done = sorted((rung.sure_s or rung.time_s, index) for index, rung in enumerate(plan.rungs))
        self._done_s = [done_s for done_s, _ in done]
        self._cheapest: list[int] = []  # of the rungs done by then, as waiting costs the same whoever waits
        for _, index in done:
            before = self._cheapest[-1] if self._cheapest else index
            self._cheapest.append(index if self._cost_j(index) <= self._cost_j(before) else before)
        ways = tuple(tuple(way for way, _ in rank.instructions) for rank in plan.ranks)
        within_s = plan.baseline.time_s * (1.0 + max(plan.max_slowdown or 0.0, 0.0))
        own = None if plan.until_s is not None else next((i for i, rung in enumerate(plan.rungs) if rung.ways == ways), None)
        self.own = self.within(within_s) if own is None else own

    def __len__(self) -> int:
        return len(self.time_s)

    def within(self, until_s: float) -> int:
        """The rung of least energy of those done by then, with the plan's confidence; the fastest where none is.

        Args:
            until_s: until which the pipeline waits anyway.
        """
        return self._cheapest[max(bisect_right(self._done_s, until_s * (1.0 + _SAME)) - 1, 0)]

    def answer(self, slower: Sequence[float], margin: float = 0.0) -> Answer:
        """What each of several pipelines takes, the slowest of which runs its own plan.

        Args:
            slower: how many times as long as planned each takes, at any rung.
            margin: fraction of the time until the slowest is done that is kept free, for noise.

        Raises:
            BadInputError: a number is out of range.
        """
        if not slower or not all(0.0 < each < float("inf") for each in slower):
            raise BadInputError("`slower`: give a factor above 0 for each pipeline")
        if not 0.0 <= margin < 1.0:
            raise BadInputError(f"`margin` {margin:g}: must be from 0 to below 1")
        until_s = max(slower) * self.time_s[self.own]
        free_s = (1.0 - margin) * until_s
        # A pipeline that is not slow enough to be worth a rung keeps its own, as the margin may not make it faster.
        return Answer(until_s, tuple(max(self.own, self.within(free_s / each)) for each in slower))

    def saving(self, rung: int, until_s: float) -> Saving:
        """What a rung saves one pipeline that waits until then.

        Args:
            rung: that it runs.
            until_s: when the straggler is done.
        """
        return Saving(
            until_s,
            self._until_j(self.energy_j[rung], self.time_s[rung], until_s),
            self._until_j(self.plan.own_baseline_j, self.plan.baseline.time_s, until_s),
            self._until_j(self.energy_j[self.own], self.time_s[self.own], until_s),
        )

    def _until_j(self, energy_j: float, time_s: float, until_s: float) -> float:
        return energy_j + self._waiting_w * max(until_s - time_s, 0.0)

    def _cost_j(self, rung: int) -> float:
        return self.energy_j[rung] - self._waiting_w * self.time_s[rung]
