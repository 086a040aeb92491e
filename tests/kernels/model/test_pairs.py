"""Complementary pairs: the bound, its pieces, and how kernels are told apart."""

import dataclasses

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.kernels.model.pairs import complementary_pairs
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.bound import Roofline
from wastenot.workloads.kernel import KernelSpec

CARD = Roofline("card", "bf16", 1e15, 1e12, "test")  # 1,000 FLOPs for a byte
NAMES = ("product", "copy", "tiny")
TIMES, POWERS = np.array([2e-3, 1e-3, 1e-4]), np.array([400.0, 300.0, 100.0])


def spec(name, flops, moved):
    return KernelSpec(name, name, "other", (), flops, moved / 2, moved / 2, "forward", None, 1)


SPECS = {"product": spec("product", 1e12, 1e8), "copy": spec("copy", 1e9, 5e8), "tiny": spec("tiny", 1e6, 1e6)}


def sweep():
    auto = np.full(3, np.nan)
    kernels = tuple(Kernel(name, count) for name, count in zip(NAMES, (24, 12, 1), strict=True))
    return Sweep(
        kernels, np.arange(3), auto, auto, auto, TIMES, TIMES * POWERS, auto, auto, auto, auto, auto, auto,
        workload="w", device="card",
    )  # fmt: skip


def test_with_room_the_shorter_one_hides_behind_the_longer():
    found = complementary_pairs(sweep(), 10_000.0, specs=SPECS, roofline=CARD)
    best = found.pairs[0]
    assert (best.compute, best.memory, best.times) == ("product", "copy", 12)
    assert found.shared_w == pytest.approx(100.0)
    assert best.together_s == pytest.approx(2e-3) and best.saved_s == pytest.approx(1e-3)
    assert best.iteration_j == pytest.approx(12 * 100.0 * 1e-3)
    assert best.headroom_w == pytest.approx(10_000 - 600)
    assert [pair.memory for pair in found.pairs] == ["copy", "tiny"]


def test_the_limit_makes_both_at_once_take_longer_until_nothing_is_saved():
    own_j = 2e-3 * 300 + 1e-3 * 200  # above what is shared
    for limit_w in (500.0, 400.0, 366.7, 300.0):
        best = complementary_pairs(sweep(), limit_w, specs=SPECS, roofline=CARD).pairs[0]
        least_s = max(2e-3, own_j / (limit_w - 100.0))
        assert best.together_s == pytest.approx(least_s)
        assert best.saved_j == pytest.approx(max(0.0, 100.0 * (3e-3 - least_s)), abs=1e-9)


def test_the_peaks_bound_it_too():
    slow = dataclasses.replace(CARD, peak_bytes_per_s=2.4e11, peak_flops=2.4e14)
    specs = SPECS | {"product": spec("product", 1e12, 1e8)}
    best = complementary_pairs(sweep(), 10_000.0, specs=specs, roofline=slow).pairs[0]
    assert best.together_s == pytest.approx(1.001e12 / 2.4e14)


def test_measured_memory_power_tells_kernels_apart_where_the_card_is_not_known():
    found = complementary_pairs(sweep(), 1_000.0, memory_power_w={"product": 40.0, "copy": 150.0, "tiny": 20.0})
    assert {one.kernel: one.stress for one in found.kernels} == {"product": "compute", "copy": "memory", "tiny": "compute"}
    assert "memory power" in found.told_by


def test_without_either_it_says_what_to_name():
    with pytest.raises(BadInputError, match="device sim:h200"):
        complementary_pairs(sweep(), 1_000.0)
