"""What a plan at work has saved so far, and how sure that is: pairs of stretches, and the energy used at the plan's clocks.

With ρ the mean logarithm of energy at a rung against the default clocks, energy E that was used at that rung would have been
E/exp(ρ) at the default clocks: E·(exp(−ρ) − 1) was saved. Iterations that settle count as nothing saved.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from wastenot.runtime.blocks import Stretch
from wastenot.runtime.estimate import LogMean, log_mean
from wastenot.runtime.status import Estimate, Proof


@dataclass(slots=True)
class OfRung:
    """Pairs at a rung, as logarithms of ratios, and energy used in stretches of it."""

    time: list[float] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)
    used_j: float = 0.0


class Ledger:
    """Pairs and energy of a job, rung by rung."""

    def __init__(self) -> None:
        self.of_rung: dict[int, OfRung] = {}
        self.plan_iterations = 0
        self.default_iterations = 0
        self.blocks = 0
        self._open: deque[Stretch] = deque()  # ended, but their energy is not known yet
        self._tail: Stretch | None = None
        self._block: Stretch | None = None

    def add(self, stretch: Stretch) -> None:
        """Take note of a stretch that has ended; in the order in which they do."""
        if stretch.default:
            self.default_iterations += len(stretch.times_s)
        else:
            self.plan_iterations += len(stretch.times_s)
        if stretch.measured:
            self._open.append(stretch)

    def settle(self) -> None:
        """Take over stretches whose energy has become known."""
        while self._open and self._open[0].settled:
            self._take(self._open.popleft())

    def forget_pairs(self) -> None:
        """Begin anew to compare, as what was compared is no more what runs; energy stays."""
        self._tail = self._block = None

    def time(self, rung: int) -> LogMean | None:
        """Time at a rung against the default clocks."""
        return log_mean(self.of_rung[rung].time) if rung in self.of_rung else None

    def energy(self, rung: int) -> LogMean | None:
        """Energy at a rung against the default clocks."""
        return log_mean(self.of_rung[rung].energy) if rung in self.of_rung else None

    def saved_j(self, present: int = 0, running_j: float = 0.0) -> Estimate | None:
        """All that was saved, at those rungs of which there are pairs.

        Args:
            present: rung of a stretch that runs.
            running_j: that it has used so far.
        """
        value = variance = 0.0
        known = False
        for rung, of_rung in self.of_rung.items():
            ratio = self.energy(rung)
            used_j = of_rung.used_j + (running_j if rung == present else 0.0)
            if ratio is None or used_j <= 0.0:
                continue
            known = True
            value += used_j * math.expm1(-ratio.mean)
            variance += (used_j * math.exp(-ratio.mean) * ratio.half) ** 2
        half = math.sqrt(variance)
        return Estimate(value=value, low=value - half, high=value + half) if known else None

    def proof(self, rung: int, running_j: float = 0.0) -> Proof:
        """What is known so far; arguments as of :meth:`saved_j`."""
        time, energy = self.time(rung), self.energy(rung)
        return Proof(
            time_change=None if time is None else time.change,
            energy_change=None if energy is None else energy.change,
            saved_j=self.saved_j(rung, running_j),
            plan_iterations=self.plan_iterations,
            default_iterations=self.default_iterations,
            blocks=self.blocks,
        )

    def _take(self, stretch: Stretch) -> None:
        if stretch.default:
            self.blocks += 1
            self._block = stretch if self._tail is not None else None
            return
        of_rung = self.of_rung.setdefault(stretch.rung, OfRung())
        of_rung.used_j += stretch.energy_j or 0.0
        if stretch.part == "head" and self._tail is not None and self._block is not None:
            self._pair(self._tail, self._block, stretch, of_rung)
        self._block = None
        self._tail = stretch if stretch.part == "tail" else None

    def _pair(self, before: Stretch, block: Stretch, after: Stretch, of_rung: OfRung) -> None:
        three = (before, block, after)
        if before.rung != after.rung or any(stretch.spoiled for stretch in three):
            return
        of_rung.time.append(0.5 * math.log(before.mean_s * after.mean_s) - math.log(block.mean_s))
        each_j = [stretch.energy_j and stretch.energy_j / len(stretch.times_s) for stretch in three]
        if None not in each_j:
            first_j, default_j, second_j = (each or 0.0 for each in each_j)
            of_rung.energy.append(0.5 * math.log(first_j * second_j) - math.log(default_j))
