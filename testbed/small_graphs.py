"""Small random graphs, and all of their plans."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np

from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph import Graph


@dataclass(frozen=True)
class SmallGraph:
    """What a :class:`Graph` is made of, as plain numbers."""

    kinds: tuple[tuple[tuple[float, float], ...], ...]
    kind: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    delay_s: tuple[float, ...]
    worker: tuple[int, ...]
    waiting_w: tuple[float, ...]

    def graph(self) -> Graph:
        frontiers: list[Frontier] = [choice(ways) for ways in self.kinds]
        return Graph(
            frontiers,
            np.array(self.kind),
            np.array(self.edges, dtype=np.intp).reshape(-1, 2),
            delay_s=np.array(self.delay_s),
            worker=np.array(self.worker),
            waiting_w=np.array(self.waiting_w),
        )

    @cache  # noqa: B019 - examples are few and small
    def plans(self) -> list[tuple[Fraction, Fraction]]:
        """Exact time of each plan, and its exact cost: energy without what is drawn from start to end."""
        order = _topological(len(self.kind), self.edges)
        found = []
        ways = [[(Fraction(t), Fraction(e)) for t, e in self.kinds[kind]] for kind in self.kind]
        before: list[list[tuple[int, Fraction]]] = [[] for _ in self.kind]
        for (earlier, later), delay in zip(self.edges, self.delay_s, strict=True):
            before[later].append((earlier, Fraction(delay)))
        power = [Fraction(self.waiting_w[each]) if each >= 0 else Fraction(0) for each in self.worker]
        for taken in product(*ways):
            end: dict[int, Fraction] = {}
            for part in order:
                begin = max((end[other] + delay for other, delay in before[part]), default=Fraction(0))
                end[part] = begin + taken[part][0]
            cost = sum((e - p * t for (t, e), p in zip(taken, power, strict=True)), Fraction(0))
            found.append((max(end.values()), cost))
        return found

    def least_j(self, within_s: Fraction | float | None, until_s: float | None) -> float | None:
        """The least energy of any plan, by trying all."""
        drawn = sum(map(Fraction, self.waiting_w))
        held = Fraction(until_s or 0.0)
        fitting = [cost + drawn * max(time, held) for time, cost in self.plans() if within_s is None or time <= within_s]
        return float(min(fitting)) if fitting else None


def _topological(parts: int, edges: tuple[tuple[int, int], ...]) -> list[int]:
    done: list[int] = []
    while len(done) < parts:
        done.append(next(p for p in range(parts) if p not in done and all(a in done for a, b in edges if b == p)))
    return done
