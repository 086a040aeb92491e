"""What is believed of the truth after a noisy sweep, and plans that keep a budget with confidence: over many seeds."""

import numpy as np
import pytest

from testbed.synthetic_gpu import CORE_MHZ, costs
from wastenot.core.errors import BadInputError
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.study.sweep import Kernel, Sweep

KERNELS, NOISE, SEEDS = 20, 0.004, 60
CLOCKS = [(core, memory) for memory in (5001.0, 9501.0) for core in CORE_MHZ]


def experiment(seed):
    """A sweep with two noisy readings of each point, and the true (time, energy) of each kernel and setting."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-4, -2, (KERNELS, 1))
    core, memory = scale * rng.uniform(0.1, 1, (KERNELS, 1)), scale * rng.uniform(0.1, 1, (KERNELS, 1))
    core_mhz, memory_mhz = (np.array([CORE_MHZ[-1], *column]) for column in zip(*[(c, m) for c, m in CLOCKS], strict=True))
    memory_mhz[0] = 9501.0
    swept = costs(core, memory, rng.uniform(0.4, 1, (KERNELS, 1)), core_mhz, memory_mhz)
    true = {(k, s): (swept.time_s[k, s], swept.time_s[k, s] * swept.power_w[k, s]) for k in range(KERNELS)
            for s in range(len(core_mhz))}  # fmt: skip
    rows = [(k, s) for k, s in true for _ in range(2)]
    time = np.array([true[row][0] for row in rows]) * np.exp(NOISE * rng.standard_normal(len(rows)))
    power = np.array([true[row][1] / true[row][0] for row in rows]) * np.exp(NOISE * rng.standard_normal(len(rows)))
    auto = np.array([s == 0 for _, s in rows])
    asked = [np.where(auto, np.nan, column[[s for _, s in rows]]) for column in (core_mhz, memory_mhz)]
    absent = np.full(len(rows), np.nan)
    sweep = Sweep(tuple(Kernel(f"k{k}", 10) for k in range(KERNELS)), np.array([k for k, _ in rows]), *asked, absent, time,
                  time * power, absent, absent, core_mhz[[s for _, s in rows]], memory_mhz[[s for _, s in rows]], absent,
                  absent, workload="w", device="d")  # fmt: skip
    return sweep, true


def true_change(plan, true):
    place = {(None, None): 0} | {clock: index + 1 for index, clock in enumerate(CLOCKS)}
    rows = [(k, place[row.core_mhz, row.memory_mhz]) for k, row in enumerate(plan.assignments)]
    totals = np.array([true[row] for row in rows]).sum(axis=0)
    return totals / np.array([true[k, 0] for k in range(KERNELS)]).sum(axis=0) - 1


@pytest.mark.slow
def test_naive_predictions_promise_too_much_and_ours_less_so():
    """On a GPU whose kernels bend more sharply than the estimate supposes."""
    naive, ours, broken = [], [], []
    for seed in range(SEEDS):
        sweep, true = experiment(seed)
        plan = Planner(sweep).plan(Objective("waste", 0.0, as_measured=True))
        time, energy = true_change(plan, true)
        assert plan.expected is not None
        naive.append(plan.predicted.energy_change - energy)
        ours.append(plan.expected.energy_change - energy)
        broken.append(time > 0)
    assert np.mean(naive) < -3 * np.std(naive) / np.sqrt(SEEDS)  # promises too much
    assert np.mean(broken) > 0.7  # and breaks the budget most of the time
    assert abs(np.mean(ours)) < 0.4 * abs(np.mean(naive))


def test_confidence_needs_to_know_the_noise_and_a_bound():
    sweep, _ = experiment(0)
    for wrong in ({"confidence": 0.5}, {"confidence": 1.0}, {"kind": "energy", "confidence": 0.9}):
        with pytest.raises(BadInputError, match="confidence"):
            Objective(**wrong)
    once = np.flatnonzero(np.arange(len(sweep)) % (2 * (len(CLOCKS) + 1)) < 4)  # two settings, too few for a shape
    first = {name: getattr(sweep, name)[once][::2] for name in (
        "kernel_index", "core_mhz", "memory_mhz", "power_limit_w", "time_s", "energy_j", "time_se_s", "energy_se_j",
        "effective_core_mhz", "effective_memory_mhz", "calls", "temperature_c")}  # fmt: skip
    bare = Sweep(sweep.kernels, **first, workload="w", device="d")
    assert Planner(bare).plan(Objective()).expected is None
    with pytest.raises(BadInputError, match="how noisy"):
        Planner(bare).plan(Objective("waste", 0.1, confidence=0.9))


def test_more_confidence_saves_less():
    sweep, _ = experiment(1)
    planner = Planner(sweep)
    saved = [planner.plan(Objective("waste", 0.02, confidence=c)).expected.energy_change for c in (0.6, 0.9, 0.99)]
    assert saved[0] <= saved[1] <= saved[2] < 0
