"""Every objective × granularity × scope against enumeration, and the optima of real sweeps."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from testbed.small_sweeps import make_sweep, random_sweep
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner, plan
from wastenot.workloads.identity import GRANULARITIES

OBJECTIVES = [
    *(Objective("waste", bound) for bound in (0.0, 0.05, 0.3, -0.05)),
    *(Objective("edp", bound, exponent) for bound in (None, 0.0, 0.05) for exponent in (0.0, 0.5, 1.0, 3.0)),
    Objective("energy"),
    Objective("time"),
]


def groups_of(sweep, granularity):
    names = [kernel.name for kernel in sweep.kernels]
    if granularity == "kernel":
        return [[name] for name in names]
    if granularity == "iteration":
        return [names]
    passes = {}
    for kernel in sweep.kernels:
        passes.setdefault(kernel.pass_name, []).append(kernel.name)
    return list(passes.values())


def unit_options(sweep, members):
    """(exact time, energy) of a unit at each common setting, auto first."""
    table = {}
    for row in range(len(sweep)):
        kernel = sweep.kernels[sweep.kernel_index[row]]
        if kernel.name in members:
            time, energy = table.get(sweep.setting(row), (Fraction(0), 0.0))
            table[sweep.setting(row)] = (
                time + kernel.count * Fraction(sweep.time_s[row]),
                energy + kernel.count * sweep.energy_j[row],
            )
    return list(table.values())


def score(objective, time, energy):
    match objective.kind:
        case "edp":
            return np.log(energy) + objective.edp_exponent * np.log(float(time))
        case "time":
            return float(time)
    return energy


def reference(sweep, objective, granularity, scope):
    """Best score by enumeration, or None where nothing is allowed."""
    units = [unit_options(sweep, members) for members in groups_of(sweep, granularity)]
    allowance = None if objective.max_slowdown is None else 1 + Fraction(objective.max_slowdown)
    if scope == "local":
        chosen = []
        for unit in units:
            allowed = [way for way in unit if allowance is None or way[0] <= unit[0][0] * allowance]
            if not allowed:
                return None
            chosen.append(min(allowed, key=lambda way: score(objective, *way)))
        plans = [chosen]
    else:
        plans = list(product(*units))
    budget = None if allowance is None else sum(unit[0][0] for unit in units) * allowance
    totals = [(sum(way[0] for way in p), sum(way[1] for way in p)) for p in plans]
    scores = [score(objective, *t) for t in totals if scope == "local" or budget is None or t[0] <= budget]
    return min(scores) if scores else None


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("scope", ["global", "local"])
def test_every_combination_is_best(rng, objective, granularity, scope):
    for _ in range(3):
        sweep = random_sweep(rng, kernels=4, settings=4, passes=2)
        planner = Planner(sweep, granularity)
        best = reference(sweep, objective, granularity, scope)
        if best is None:
            with pytest.raises(InfeasibleError, match="possible") as refused:
                planner.plan(objective, scope)
            least = refused.value.least_slowdown
            eased = Objective("waste", least + 1e-9)
            assert planner.plan(eased, scope)
            with pytest.raises(InfeasibleError):
                planner.plan(Objective("waste", least - 1e-9), scope)
            continue
        made = planner.plan(objective, scope)
        assert score(objective, made.predicted.time_s, made.predicted.energy_j) == pytest.approx(best, rel=1e-12)
        assert made.certificate.gap == 0.0
        rows = made.assignments
        assert sum(r.count * r.energy_j for r in rows) == pytest.approx(made.predicted.energy_j)
        if objective.max_slowdown is not None:
            auto = sum(o[0][0] for o in (unit_options(sweep, [k.name]) for k in sweep.kernels))
            exact = sum(r.count * Fraction(r.time_s) for r in rows)
            assert exact <= auto * (1 + Fraction(objective.max_slowdown))
        for unit in {r.unit for r in rows}:
            assert len({r.setting for r in rows if r.unit == unit}) == 1


REAL = {
    "sweep": {
        "auto": (1.4157536952969, 257.7024687481523),
        "global": {0: 235.069186938176, 0.01: 233.490498684537, 0.02: 219.558552475907, 0.05: 215.778182150485,
                   0.1: 215.778182150485},
        "local": {0: 7.7838, 0.01: 7.8328, 0.02: 8.1697, 0.05: 15.3232, 0.1: 15.3282},
    },
    "sweep-share": {
        "auto": (58.005505079, 14181.357857),
        "global": {0: 10602.059409722, 0.01: 10258.606013631, 0.02: 10010.485364158, 0.05: 9410.888859414,
                   0.1: 8798.926235614},
        "local": {0: 12.5868, 0.01: 18.4776, 0.02: 23.2178, 0.05: 28.4364, 0.1: 30.1652},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ["sweep", pytest.param("sweep-share", marks=pytest.mark.slow)])
def test_optima_of_a_real_sweep(shared_data, name):
    """Found before by two independent exact methods."""
    from wastenot.study.sweep_file import read_sweep

    sweep = read_sweep(shared_data / "rtx3080ti-polybench" / f"{name}.csv")
    planner = Planner(sweep)
    known = REAL[name]
    for bound, energy in known["global"].items():
        made = planner.plan(Objective("waste", bound))
        assert (made.baseline.time_s, made.baseline.energy_j) == pytest.approx(known["auto"], rel=1e-10)
        assert made.predicted.energy_j == pytest.approx(energy, rel=1e-12)
        assert made.certificate.gap == 0.0
        exact = sum(row.count * Fraction(row.time_s) for row in made.assignments)
        assert exact <= planner.measured.baseline_time_s * (1 + Fraction(bound))
    for bound, saved in known["local"].items():
        made = planner.plan(Objective("waste", bound), "local")
        assert -100 * made.predicted.energy_change == pytest.approx(saved, abs=5e-5)


def test_edp_and_coarse_plans_of_a_real_sweep(shared_data):
    from wastenot.study.sweep_file import read_sweep

    sweep = read_sweep(shared_data / "rtx3080ti-polybench" / "sweep.csv")

    def best(planner, objective, scope="global"):
        return planner.totals(planner.measured.rows(planner.choose(objective, scope).options))

    edp = best(Planner(sweep), Objective("edp", as_measured=True), "local")
    assert (100 * edp.time_change, 100 * edp.energy_change) == pytest.approx((3.241, -16.161), abs=5e-4)
    for tolerance, time, energy in ((0, 0, 0), (15, 0, 0), (30, -0.47, -6.61)):
        found = best(Planner(sweep, "iteration", tolerance), Objective(as_measured=True))
        assert (100 * found.time_change, 100 * found.energy_change) == pytest.approx((time, energy), abs=5e-3)


def test_waste_is_that_of_the_paper_whatever_the_objective(rng):
    sweep = random_sweep(rng, kernels=5, settings=4)
    strict = plan(sweep, Objective("waste", 0.0))
    for objective in OBJECTIVES:
        try:
            found = plan(sweep, objective)
        except InfeasibleError:
            continue
        assert found.waste == strict.waste
    assert strict.waste.joules == pytest.approx(strict.baseline.energy_j - strict.predicted.energy_j)


def test_a_sweep_with_nothing_but_auto_keeps_auto():
    made = plan(make_sweep([("a", None, None, 1, 2), ("b", None, None, 3, 4)]))
    assert all(row.setting.is_auto for row in made.assignments)
    assert made.predicted.energy_change == 0.0 and made.waste.joules == 0.0
    assert made.switches.per_iteration == 0 and made.switches.mean_dwell_s is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "waste", "max_slowdown": -1.0},
        {"kind": "waste", "max_slowdown": float("nan")},
        {"kind": "energy", "max_slowdown": 0.1},
        {"kind": "time", "max_slowdown": 0.0},
        {"kind": "edp", "edp_exponent": -1.0},
        {"kind": "waste", "edp_exponent": 2.0},
        {"kind": "speed"},
    ],
)
def test_objectives_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInputError):
        Objective(**wrong)
