"""CP-SAT on saved instances: python -m benchmarks.cp_sat_process FILE CASES.

A process of its own, because OR-Tools cannot be imported beside HiGHS' own wheel.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

from wastenot.frontiers.pareto import Groups


def cp_sat_model(groups: Groups, budget_s: float) -> Callable[[], tuple[float, bool]]:
    """The model for OR-Tools' CP-SAT, which needs integers: times rounded up, energies to nine digits.

    Returns:
        A function that solves it and returns the seconds taken, and whether the optimum was proven.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in groups.time_s]
    for begin, end in zip(groups.start[:-1].tolist(), groups.start[1:].tolist(), strict=True):
        model.add_exactly_one(taken[begin:end])
    time_units = np.ceil(groups.time_s * (1e9 / budget_s)).astype(int).tolist()
    energy_units = np.rint(groups.energy_j * (1e9 / groups.energy_j.max())).astype(int).tolist()
    # The budget is relaxed by the rounding error, so that rounding excludes no plan.
    model.add(sum(t * x for t, x in zip(time_units, taken, strict=True)) <= 10**9 + len(groups))
    model.minimize(sum(e * x for e, x in zip(energy_units, taken, strict=True)))
    solver = cp_model.CpSolver()

    def solve() -> tuple[float, bool]:
        began = time.perf_counter()
        status = solver.solve(model)
        return time.perf_counter() - began, status == cp_model.OPTIMAL

    return solve


def main(file: str, cases: int) -> None:
    saved = np.load(file)
    seconds = []
    for index in range(cases):
        groups = Groups(saved[f"t{index}"], saved[f"e{index}"], saved[f"s{index}"])
        solve = cp_sat_model(groups, float(saved[f"b{index}"]))
        wall_s, optimal = solve()
        assert optimal
        seconds.append(wall_s)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
