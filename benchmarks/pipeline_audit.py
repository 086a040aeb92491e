"""Plans of 1F1B pipelines recomputed from rows of a profile, and a linear relaxation, with no code of the package.

Its own 1F1B, its own longest path in fractions, its own linear program: what other parts claim is held against this.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

Key = tuple[int, str, int]
Kind = tuple[int, str]
Rows = dict[Kind, dict[float, tuple[float, float]]]


def rows_of(path: Path) -> Rows:
    """Time in s and energy in J by (stage, instruction) and clock in MHz."""
    rows: Rows = {}
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            key = int(row["stage"]), row["instruction"]
            rows.setdefault(key, {})[float(row["frequency"])] = float(row["time"]), float(row["energy"])
    return rows


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A plan's time in s, exactly and rounded, and the energy in J of all GPUs until it ends or ``until_s``."""

    exact_s: Fraction
    time_s: float
    energy_j: float
    cost_j: float


class Pipeline:
    """1F1B of so many stages and micro-batches."""

    def __init__(self, stages: int, micro_batches: int) -> None:
        self.stages, self.micro_batches = stages, micro_batches
        self.before: dict[Key, list[Key]] = {}
        for stage in range(stages):
            ahead = min(stages - 1 - stage, micro_batches)
            steps: list[Key] = [(stage, "forward", each) for each in range(ahead)]
            for each in range(micro_batches):
                if ahead + each < micro_batches:
                    steps.append((stage, "forward", ahead + each))
                steps.append((stage, "backward", each))
            for place, (_, name, each) in enumerate(steps):
                needs = [steps[place - 1]] if place else []
                if name == "forward" and stage > 0:
                    needs.append((stage - 1, "forward", each))
                if name == "backward" and stage < stages - 1:
                    needs.append((stage + 1, "backward", each))
                self.before[stage, name, each] = needs
        self.order: list[Key] = []
        done: set[Key] = set()
        stack = list(self.before)
        while stack:
            key = stack[-1]
            missing = [each for each in self.before[key] if each not in done]
            if missing:
                stack += missing
                continue
            stack.pop()
            if key not in done:
                done.add(key)
                self.order.append(key)

    def recompute(self, rows: Rows, clock_mhz: Mapping[Key, float], waiting_w: float, until_s: float = 0.0) -> Recomputed:
        """Time and energy of a plan, each instruction at its clock."""
        points = {key: rows[key[:2]][float(clock_mhz[key])] for key in self.order}
        return self.recompute_points(points, waiting_w, until_s)

    def recompute_points(
        self, points: Mapping[Key, tuple[float, float]], waiting_w: float, until_s: float = 0.0
    ) -> Recomputed:
        """Time and energy of a plan, given each instruction's time and energy."""
        end: dict[Key, Fraction] = {}
        for key in self.order:
            begin = max((end[each] for each in self.before[key]), default=Fraction(0))
            end[key] = begin + Fraction(points[key][0])
        exact = max(end.values())
        cost = float(sum(Fraction(energy) - Fraction(waiting_w) * Fraction(time) for time, energy in points.values()))
        lasts = max(float(exact), until_s)
        return Recomputed(exact, float(exact), cost + waiting_w * self.stages * lasts, cost)

    def fastest(self, rows: Rows) -> dict[Key, float]:
        """Each instruction at the clock of its shortest time."""
        return {key: min(rows[key[:2]], key=lambda mhz: rows[key[:2]][mhz][0]) for key in self.order}

    def highest(self, rows: Rows) -> dict[Key, float]:
        """Each instruction at its highest clock."""
        return {key: max(rows[key[:2]]) for key in self.order}

    def bound(self, rows: Rows, waiting_w: float, within_s: float, until_s: float = 0.0) -> float:
        """Least energy when parts may mix their points, ending by ``within_s``; workers are held until ``until_s`` at least.

        Variables: a weight of each point of each instruction, when each instruction ends, when all are done.
        """
        index = {key: place for place, key in enumerate(self.order)}
        kinds: dict[Kind, Sequence[tuple[float, float]]] = {key: list(each.values()) for key, each in rows.items()}
        first, weights = {}, 0
        for key in self.order:
            first[key] = weights
            weights += len(kinds[key[:2]])
        count = weights + len(index) + 1
        last = count - 1
        cost, upper = np.zeros(count), np.full(count, np.inf)
        cost[last], upper[last] = waiting_w * self.stages, max(within_s, until_s)
        upper[weights:last] = within_s
        lower = np.zeros(count)
        lower[last] = until_s
        row, column, value, limit = [], [], [], []
        equal_row, equal_column = [], []
        for key in self.order:
            points = kinds[key[:2]]
            span = range(first[key], first[key] + len(points))
            for variable, (time, energy) in zip(span, points, strict=True):
                cost[variable] = energy - waiting_w * time
                equal_row.append(index[key])
                equal_column.append(variable)
            for earlier in [*self.before[key], None]:  # end of the earlier one + own time <= own end
                row += [len(limit)] * (len(points) + 1 + (earlier is not None))
                column += [*span, weights + index[key]]
                value += [*(time for time, _ in points), -1.0]
                if earlier is not None:
                    column.append(weights + index[earlier])
                    value.append(1.0)
                limit.append(0.0)
            row += [len(limit)] * 2
            column += [weights + index[key], last]
            value += [1.0, -1.0]
            limit.append(0.0)
        solved = linprog(  # type: ignore[call-overload]
            cost,
            A_ub=coo_array((value, (row, column)), shape=(len(limit), count)).tocsr(),
            b_ub=np.array(limit),
            A_eq=coo_array((np.ones(len(equal_row)), (equal_row, equal_column)), shape=(len(index), count)).tocsr(),
            b_eq=np.ones(len(index)),
            bounds=np.stack([lower, upper], axis=1),
            method="highs",
        )
        if solved.status != 0:
            raise RuntimeError(solved.message)
        return float(solved.fun)
