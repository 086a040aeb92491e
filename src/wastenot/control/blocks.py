"""Which stretches of a job run at the plan's clocks and which at the default clocks, to be compared.

    plan  ┊settle┊ head ┊      middle      ┊ tail ┊rest┊   default  ┊settle┊ block ┊rest┊   plan ┊settle┊ head ┊ …

Blocks at the default clocks follow each other soon at first, so that something is known within minutes, and later rarely.
How long the middle is, is drawn at random, so that nothing that returns at intervals always meets the same side. Iterations
right after a change settle, as clocks arrive late; those right before one rest, as the energy until then is known from how
the counter moves after it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wastenot.control.energy_edges import Edge
from wastenot.core.setting import Setting
from wastenot.planning.switching import PROFILE_S, SwitchTime

Part = Literal["settle", "head", "middle", "tail", "block", "rest"]

LEAST_ITERATIONS = 4  # of a stretch that is compared
SKIPPED = 2  # iterations of a job that say nothing of the others: it compiles, allocates, reads its first data
UNSTEADY = 30  # iterations, after which the job is as steady as it gets
PAUSE = 1.5  # iterations that take longer by this factor had something else in them
MOST_PAUSES = 3  # of these in a row are how the job runs now
LATE = 3.0  # a switch counts as arrived after so many times its usual time
STEPS = 2.3  # of the energy counter, within which it has moved twice
_STEADY = 0.1  # by which the latest iterations of a job may differ while they count as steady
_REGULATOR_S = 0.5  # that a card's regulator takes to come to rest under another power limit
_LEAST_S = 2.0
_PERIODS = 20.0  # of the energy counter, that such a stretch lasts at least
_FIRST_SHARE, _SLOWER = 0.25, 0.35  # of iterations at the default clocks at first, and how fast that falls from pair to pair


def alike(latest_s: Sequence[float]) -> bool:
    """Whether a job's latest iterations resemble each other."""
    return max(latest_s) <= (1.0 + _STEADY) * min(latest_s)


def settling_s(switching: SwitchTime, settings: Sequence[Setting]) -> float:
    """Time after a change to one of these settings in which iterations do not count."""
    limits = any(setting.power_limit_w is not None for setting in settings)
    profiles = any(setting.profile is not None for setting in settings)
    return max(LATE * switching.core_s, _REGULATOR_S if limits else 0.0, PROFILE_S if profiles else 0.0)


@dataclass(slots=True)
class Stretch:
    """Iterations that follow each other.

    Attributes:
        part: of the cycle that it is.
        rung: of the schedule that runs.
        default: whether it is at the default clocks for comparison.
        iterations: how many; 0 where that is not known before.
        temperatures_c: readings meanwhile.
        times_s: of its iterations so far.
        begin, end: energy there, by GPU.
        so_far_j: its energy as far as it was known when it ended, for as long as that at its end is not.
        spoiled: whether something else happened meanwhile, such as a checkpoint.
    """

    part: Part
    rung: int
    default: bool
    iterations: int = 0
    temperatures_c: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    begin: list[Edge] = field(default_factory=list)
    end: list[Edge] = field(default_factory=list)
    so_far_j: float = 0.0
    spoiled: bool = False

    @property
    def measured(self) -> bool:
        """Whether its iterations count."""
        return self.part not in ("settle", "rest")

    @property
    def temperature_c(self) -> float | None:
        """Mean temperature; ``None`` where none was read."""
        return math.fsum(self.temperatures_c) / len(self.temperatures_c) if self.temperatures_c else None

    @property
    def mean_s(self) -> float:
        """Mean time of an iteration."""
        return math.fsum(self.times_s) / len(self.times_s)

    @property
    def settled(self) -> bool:
        """Whether its energy is known, or never will be."""
        return all(edge.energy_j is not None for edge in (*self.begin, *self.end))

    @property
    def energy_j(self) -> float | None:
        """Energy of all GPUs; ``None`` where it is not known."""
        used = [(e.energy_j or 0.0) - (b.energy_j or 0.0) for b, e in zip(self.begin, self.end, strict=True)]
        total = math.fsum(used) if used else math.nan
        return total if math.isfinite(total) and total > 0.0 else None

    @property
    def iteration_j(self) -> float | None:
        """Mean energy of an iteration, of all GPUs; ``None`` where it is not known."""
        return None if self.energy_j is None else self.energy_j / len(self.times_s)

    @property
    def lasts_s(self) -> float:
        """Time between its ends."""
        return self.end[0].moment_s - self.begin[0].moment_s

    @property
    def power_w(self) -> float | None:
        """Mean power of all GPUs; ``None`` where it is not known."""
        return self.energy_j / self.lasts_s if self.settled and self.energy_j is not None else None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long stretches are.

    Attributes:
        settle_s: that clocks need to arrive, with what they may be late.
        share: of iterations at the default clocks in the long run.
    """

    settle_s: float
    share: float

    def measured(self, iteration_s: float, period_s: float, least: int = 0) -> int:
        """Iterations of a stretch that is compared."""
        return max(LEAST_ITERATIONS, least, math.ceil(max(_LEAST_S, _PERIODS * period_s) / iteration_s))

    def settling(self, iteration_s: float) -> int:
        """Iterations that settle."""
        return max(1, math.ceil(self.settle_s / iteration_s))

    def resting(self, iteration_s: float, period_s: float) -> int:
        """Iterations in which the counter moves twice."""
        return max(1, math.ceil(STEPS * period_s / iteration_s))

    def cycle(
        self,
        rung: int,
        default_rung: int,
        pairs: int,
        iteration_s: float,
        period_s: float,
        rng: random.Random,
        least: int = 0,
    ) -> Iterator[Stretch]:
        """A stretch of the plan's with a block at the default clocks at its end.

        Args:
            rung: present one.
            default_rung: the default clocks.
            pairs: that are known already.
            iteration_s: time of an iteration.
            period_s: time between steps of the energy counter.
            rng: draws how long the middle is.
            least: iterations of stretches that are compared.
        """
        settle, measured = self.settling(iteration_s), self.measured(iteration_s, period_s, least)
        rest = self.resting(iteration_s, period_s)
        share = max(self.share, _FIRST_SHARE / (1.0 + _SLOWER * pairs))
        middle = round(rng.uniform(0.4, 1.6) * max(measured / share - 2 * (settle + rest) - 3 * measured, 0.0))
        yield Stretch("settle", rung, False, settle)
        yield Stretch("head", rung, False, measured)
        if middle:
            yield Stretch("middle", rung, False, middle)
        yield Stretch("tail", rung, False, measured)
        yield Stretch("rest", rung, False, rest)
        yield Stretch("settle", default_rung, True, settle)
        yield Stretch("block", default_rung, True, measured)
        yield Stretch("rest", default_rung, True, rest)
