"""The list of objectives, and the search for plans that no question of a frontier answers by itself."""

from __future__ import annotations

from typing import get_args

import pytest

from testbed.small_sweeps import random_sweep
from wastenot.core.errors import InfeasibleError
from wastenot.planning.objective import Objective
from wastenot.planning.objective_kinds import (
    CLUSTERS,
    JOBS,
    KERNELS,
    ClusterObjectiveKind,
    JobObjectiveKind,
    ObjectiveKind,
    search,
)
from wastenot.planning.planner import Planner


def test_the_list_is_complete():
    for offered, names in ((KERNELS, ObjectiveKind), (JOBS, JobObjectiveKind), (CLUSTERS, ClusterObjectiveKind)):
        assert tuple(offered) == get_args(names)
    own = [each for rules in KERNELS.values() for each in rules.parameters]
    assert len(own) == len(set(own))


@pytest.mark.parametrize("exponent", [0.3, 1.0, 3.0])
def test_search_finds_what_a_solver_finds(rng, exponent):
    for _ in range(5):
        plans = Planner(random_sweep(rng, kernels=6, settings=5)).measured.plans
        objective = Objective("edp", 0.3, exponent)
        exact = plans.changes(objective.least(plans))

        def edp(*changes, objective=objective):
            return objective.rules.change(objective, *changes)

        near = edp(*plans.changes(plans.least_energy(search(plans, edp, 0.3))))
        step = (0.3 - plans.changes(plans.least_time())[0]) / 16
        assert edp(*exact) - 1e-12 <= near <= edp(exact[0] + step, exact[1]) + 1e-12


def test_search_needs_a_plan_that_is_fast_enough(rng):
    with pytest.raises(InfeasibleError):
        search(Planner(random_sweep(rng, kernels=3, settings=3)).measured.plans, lambda _, energy: energy, -0.99)
