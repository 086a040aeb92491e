"""A whole iteration from curves whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.binomial import least_hits
from testbed.power_law_curves import LIMIT_W, RANGES, curve, true_s, true_w
from wastenot.core.errors import BadInputError
from wastenot.kernels.natural import iteration
from wastenot.kernels.natural.held import held_power_w
from wastenot.kernels.natural.iteration import predict_iteration
from wastenot.kernels.natural.whole import clock_costs, whole_iteration
from wastenot.planning.power_limit import run_iteration
from wastenot.study.sweep import Kernel

KERNELS = (Kernel("product", 24), Kernel("softmax", 24), Kernel("permute", 12))


def true_costs(core_mhz):
    curves = [replace(curve(kernel.name), core_mhz=core_mhz, time_s=true_s(kernel.name, core_mhz),
                      power_w=true_w(kernel.name, core_mhz)) for kernel in KERNELS]  # fmt: skip
    return clock_costs(KERNELS, curves, core_mhz)


def test_the_iteration_is_predicted_beyond_what_products_were_seen_at():
    found = predict_iteration(whole_iteration(KERNELS, [curve(kernel.name) for kernel in KERNELS]))
    truth = run_iteration(true_costs(np.arange(1200.0, 1981.0)), LIMIT_W)
    assert found.whole.limit_w == pytest.approx(LIMIT_W)
    assert found.whole.default.core_mhz > 1480.0  # where the product was never seen
    assert [name for name, *_ in found.extrapolated] == ["product"]
    assert found.extrapolated[0][1:] == RANGES["product"]
    assert found.whole.default.core_mhz == pytest.approx(truth.core_mhz, rel=1e-3)
    assert found.whole.default.time_s == pytest.approx(truth.time_s, rel=1e-3)
    assert found.whole.default.energy_j == pytest.approx(truth.energy_j, rel=1e-3)
    alone_s = sum(kernel.count * curve(kernel.name).auto.time_s for kernel in KERNELS)
    assert found.alone_s == pytest.approx(alone_s)
    assert abs(alone_s / truth.time_s - 1) > 0.0015  # kernels by themselves run at other clocks


def test_plans_gain_what_they_truly_gain():
    found = predict_iteration(whole_iteration(KERNELS, [curve(kernel.name) for kernel in KERNELS]))
    clocks = np.arange(1200.0, 1981.0, 15.0)
    truth = true_costs(clocks)
    before = run_iteration(truth, LIMIT_W)
    for plan in (found.fastest, found.saving):
        ceiling = [len(clocks) - 1 if mhz is None else int(np.argmin(np.abs(clocks - mhz))) for mhz in plan.plan.ceiling_mhz]
        after = run_iteration(truth, LIMIT_W, np.array(ceiling))
        for known, true in ((plan.time_change, after.time_s / before.time_s - 1),
                            (plan.energy_change, after.energy_j / before.energy_j - 1)):  # fmt: skip
            assert known.low - 1e-4 <= true <= known.high + 1e-4
    assert found.fastest.plan.iteration.time_s < found.whole.default.time_s
    assert found.saving.plan.iteration.energy_j < found.whole.default.energy_j
    permute = [kernel.name for kernel in KERNELS].index("permute")
    assert found.fastest.plan.ceiling_mhz[permute] < 1450.0


def test_errors_cover_the_truth(monkeypatch):
    monkeypatch.setattr(iteration, "_CHOSEN", 1)  # plans are not looked at
    truth = run_iteration(true_costs(np.arange(1200.0, 1981.0)), LIMIT_W)
    inside = {"time_s": 0, "energy_j": 0, "core_mhz": 0}
    seeds = 20
    for seed in range(seeds):
        rng = np.random.default_rng((5, seed))
        found = predict_iteration(whole_iteration(KERNELS, [curve(kernel.name, rng) for kernel in KERNELS], limit_w=LIMIT_W))
        for name in inside:
            known = getattr(found, name)
            inside[name] += known.low <= getattr(truth, name) <= known.high
    assert min(inside.values()) >= least_hits(seeds), inside


def test_errors_grow_with_the_distance_from_what_was_seen():
    far = dict(zip(("core_mhz", "time_s", "power_w"), (each[:3] for each in
               (curve("product").core_mhz, curve("product").time_s, curve("product").power_w)), strict=True))  # fmt: skip
    cov = curve("product").log_time_cov[:3, :3]
    near = [curve(kernel.name) for kernel in KERNELS]
    less = [replace(near[0], **far, log_time_cov=cov, log_power_cov=cov), *near[1:]]
    assert (
        predict_iteration(whole_iteration(KERNELS, less)).core_mhz.error
        > 1.5 * predict_iteration(whole_iteration(KERNELS, near)).core_mhz.error
    )


def test_the_power_held_is_that_of_limited_kernels():
    own = [curve(kernel.name) for kernel in KERNELS]
    assert held_power_w(KERNELS, own) == pytest.approx(LIMIT_W)
    odd = replace(own[2], auto=replace(own[2].auto, power_w=496.0, limited=True))  # held by something else
    assert held_power_w(KERNELS, [*own[:2], odd]) == pytest.approx(LIMIT_W)
    free = [replace(each, auto=replace(each.auto, limited=False)) for each in own]
    with pytest.raises(BadInputError, match="power_limit_w"):
        held_power_w(KERNELS, free)


def test_a_kernel_without_a_curve_is_named():
    with pytest.raises(BadInputError, match="'permute' was not measured"):
        predict_iteration(whole_iteration(KERNELS, [curve("product"), curve("softmax")]))
