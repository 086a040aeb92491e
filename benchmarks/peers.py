"""What people would use instead of our solver, on the same instances."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from wastenot.frontiers.pareto import Groups


def solve_with_milp(groups: Groups, budget_s: float) -> np.ndarray | None:
    """The chosen option of each group by SciPy's HiGHS to proven optimality, or ``None`` where it finds none.

    The budget row is scaled to 1e6: HiGHS' feasibility tolerance is absolute, and without that it breaks budgets.
    """
    options = len(groups.time_s)
    one_each = csr_matrix((np.ones(options), (groups.group, np.arange(options))))
    scaled = csr_matrix(groups.time_s[None, :] * (1e6 / budget_s))
    found = milp(
        groups.energy_j,
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(scaled, -np.inf, 1e6)],
        integrality=np.ones(options),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    return None if found.x is None else np.flatnonzero(found.x > 0.5)


def cp_sat_model(groups: Groups, budget_s: float) -> Callable[[], tuple[float, bool]]:
    """The same for OR-Tools' CP-SAT, which wants whole numbers: times rounded up, energies to nine digits.

    OR-Tools cannot share a process with HiGHS' own wheel; call this in a process of its own.

    Returns:
        What solves it: seconds, and whether the optimum was proven.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in groups.time_s]
    for begin, end in zip(groups.start[:-1].tolist(), groups.start[1:].tolist(), strict=True):
        model.add_exactly_one(taken[begin:end])
    time_units = np.ceil(groups.time_s * (1e9 / budget_s)).astype(int).tolist()
    energy_units = np.rint(groups.energy_j * (1e9 / groups.energy_j.max())).astype(int).tolist()
    # The budget is eased by the rounding, so that no plan is shut out by it.
    model.add(sum(t * x for t, x in zip(time_units, taken, strict=True)) <= 10**9 + len(groups))
    model.minimize(sum(e * x for e, x in zip(energy_units, taken, strict=True)))
    solver = cp_model.CpSolver()

    def solve() -> tuple[float, bool]:
        began = time.perf_counter()
        status = solver.solve(model)
        return time.perf_counter() - began, status == cp_model.OPTIMAL

    return solve
