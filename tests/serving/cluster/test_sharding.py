"""Layouts that share a load: as cheap as an independent solver of integer programs finds it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.sharding import Option, shardings, worth_it


def drawn(seed: int) -> list[Option]:
    """Three layouts with five levels of load each."""
    random = np.random.default_rng(seed)
    found = []
    for layout, gpus in enumerate((2, 4, 8)):
        most, idle_w = gpus * random.uniform(0.8, 2.5), 80.0 * gpus
        for level in range(1, 6):
            power_w = idle_w + random.uniform(100, 400) * gpus * (level / 5) ** random.uniform(0.7, 1.5)
            found.append(Option(layout, gpus, most * level / 5, power_w))
    return found


def by_highs(options: list[Option], gpus: int, rate_per_s: float, unit_per_s: float, spare_gpu_w: float) -> float:
    """Least power by HiGHS, rates in the same units."""
    units = np.array([math.floor(each.rate_per_s / unit_per_s + 1e-9) for each in options])
    taken, power_w = np.array([each.gpus for each in options]), np.array([each.power_w for each in options])
    found = milp(
        power_w - spare_gpu_w * taken,
        constraints=[
            LinearConstraint(taken[None, :], -np.inf, gpus),
            LinearConstraint(units[None, :], math.ceil(rate_per_s / unit_per_s - 1e-9), np.inf),
        ],
        integrality=np.ones(len(options)),
        bounds=Bounds(0, np.inf),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun) + spare_gpu_w * gpus if found.success else math.inf


@pytest.mark.parametrize("seed", range(12))
def test_it_is_as_cheap_as_an_integer_program(seed: int) -> None:
    options, random = drawn(seed), np.random.default_rng(100 + seed)
    gpus, spare_w = int(random.integers(4, 64)), float(random.choice([0.0, 70.0]))
    rate_per_s = float(random.uniform(0.1, 1.2)) * gpus
    unit_per_s = rate_per_s / 50
    found = shardings(options, gpus, rate_per_s, unit_per_s=unit_per_s, spare_gpu_w=spare_w)
    assert found.power_w[gpus] == pytest.approx(by_highs(options, gpus, rate_per_s, unit_per_s, spare_w), rel=1e-9)
    plan = found.on(gpus)
    assert (plan is None) == math.isinf(found.power_w[gpus])
    if plan is not None:
        assert plan.gpus <= gpus
        assert sum(each.rate_per_s for each in plan.options) >= rate_per_s * (1 - 1e-9)
        spare = spare_w * (gpus - plan.gpus)
        assert sum(each.power_w for each in plan.options) + spare == pytest.approx(plan.power_w)


@given(st.integers(0, 1000), st.integers(2, 24), st.floats(0.5, 20.0))
@settings(max_examples=25, deadline=None)
def test_more_gpus_are_never_worse_and_more_load_never_better(seed: int, gpus: int, rate_per_s: float) -> None:
    options = drawn(seed)
    found = shardings(options, gpus, rate_per_s, unit_per_s=0.2).power_w
    assert (found[1:] <= found[:-1]).all()
    assert (shardings(options, gpus, rate_per_s + 1.0, unit_per_s=0.2).power_w >= found).all()


def test_no_load_needs_nothing() -> None:
    found = shardings(drawn(0), 8, 0.0, spare_gpu_w=10.0)
    plan = found.on(8)
    assert plan is not None
    assert plan.options == ()
    assert plan.power_w == 80.0
    with pytest.raises(BadInputError, match="cannot be shared"):
        shardings(drawn(0), 8, -1.0)


def test_a_change_is_made_only_if_it_pays() -> None:
    assert worth_it(1000.0, 900.0, horizon_s=300.0, change_j=20_000.0)
    assert not worth_it(1000.0, 900.0, horizon_s=300.0, change_j=40_000.0)
    assert worth_it(math.inf, 900.0, horizon_s=300.0, change_j=1e9)
    assert not worth_it(1000.0, math.inf, horizon_s=300.0, change_j=0.0)
