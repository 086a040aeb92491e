"""The multiple-choice knapsack solved by SciPy's HiGHS, an independent reference for our solver."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from wastenot.frontiers.pareto import Groups


def solve_with_milp(groups: Groups, budget_s: float) -> np.ndarray | None:
    """The chosen option of each group, solved to proven optimality, or ``None`` where there is no solution.

    The budget row is scaled to 1e6: HiGHS' feasibility tolerance is absolute, and without scaling it breaks budgets.
    """
    options = len(groups.time_s)
    one_each = csr_matrix((np.ones(options), (groups.group, np.arange(options))))
    scaled = csr_matrix(groups.time_s[None, :] * (1e6 / budget_s))
    result = milp(
        groups.energy_j,
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(scaled, -np.inf, 1e6)],
        integrality=np.ones(options),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    return None if result.x is None else np.flatnonzero(result.x > 0.5)
