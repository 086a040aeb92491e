"""One cap for a whole iteration, from curves whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.binomial import least_hits
from testbed.power_law_curves import LIMIT_W, curve, true_s, true_w
from wastenot.kernels.natural.whole import best_cap, under_each_cap, whole_iteration, whole_of_study
from wastenot.study.sweep import Kernel

KERNELS = (Kernel("product", 24), Kernel("softmax", 24), Kernel("permute", 12))
LIGHT = (Kernel("softmax", 24), Kernel("permute", 12))


def truth(kernels, limit_w, cap_mhz=np.inf):
    """Time and energy of an iteration: all kernels at the highest clock within the cap and the mean power."""
    clocks = np.arange(1200.0, 1980.5, 0.5)
    time_s = sum(kernel.count * true_s(kernel.name, clocks) for kernel in kernels)
    energy_j = sum(kernel.count * true_s(kernel.name, clocks) * true_w(kernel.name, clocks) for kernel in kernels)
    at = np.flatnonzero((energy_j <= limit_w * time_s) & (clocks <= cap_mhz))[-1]
    return clocks[at], np.array([time_s[at], energy_j[at]])


def whole(kernels=KERNELS, rng=None, limit_w=LIMIT_W):
    return whole_iteration(kernels, [curve(kernel.name, rng) for kernel in kernels], limit_w=limit_w)


def test_a_cap_above_the_clock_of_the_iteration_changes_nothing():
    found = whole()
    clock, _ = truth(KERNELS, LIMIT_W)
    assert found.default.core_mhz == pytest.approx(clock, abs=2.0) and found.default.core_mhz < 1700.0
    above = found.costs.core_mhz >= found.default.core_mhz + 15.0
    changes = under_each_cap(found)
    assert above.sum() > 10 and np.abs(changes[above]).max() < 1e-12
    below = found.costs.core_mhz < found.default.core_mhz - 15.0
    assert (changes[below, 0] > 0.0).all()


@pytest.mark.parametrize("bound", [0.05, 0.1])
@pytest.mark.parametrize("limit_w", [LIMIT_W, 560.0, 2000.0])
def test_the_best_cap_does_what_it_is_expected_to_do(bound, limit_w):
    hits, seeds = np.zeros(2, dtype=int), 12
    _, before = truth(KERNELS, limit_w)
    for seed in range(seeds):
        best = best_cap(whole(rng=np.random.default_rng((9, seed)), limit_w=limit_w), bound)
        assert best is not None
        _, after = truth(KERNELS, limit_w, best.core_mhz)
        low, high = np.percentile(best.drawn, (2.5, 97.5), axis=0)
        hits += (low - 1e-4 <= after / before - 1.0) & (after / before - 1.0 <= high + 1e-4)
        assert best.change[0] < bound and best.change[1] < 0.0
    assert hits.min() >= least_hits(seeds), hits


def test_no_slower_cap_saves_more():
    found = whole()
    best, changes = best_cap(found, 0.05), under_each_cap(found)
    allowed = changes[changes[:, 0] <= best.change[0]]
    assert best.change[1] == allowed[:, 1].min()
    assert best_cap(found, 0.0) is None


def test_kernels_below_the_limit_run_at_the_highest_clock_together():
    light = [replace(each, auto=replace(each.auto, limited=False)) for each in (curve("softmax"), curve("permute"))]
    found = whole_of_study(None, "light", LIGHT, light)  # no kernel reaches the limit, so the study need not say it
    assert found.default.core_mhz == 1980.0 and not found.default.limited
    best = best_cap(found, 0.05)
    _, before = truth(LIGHT, 2000.0)
    _, after = truth(LIGHT, 2000.0, best.core_mhz)
    assert best.change == pytest.approx(after / before - 1.0, abs=2e-3)
