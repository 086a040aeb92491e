"""Cards drawn to judge natural sweeps on: repeatable, different, and still like an H200."""

from pathlib import Path

import numpy as np

from benchmarks.drawn_cards import JUDGES, natural_card
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.workloads.build import build_workload

KERNELS = build_workload("gpt3-xl").kernels


def test_a_card_is_the_same_each_time_and_another_with_another_seed(tmp_path):
    texts = []
    for turn, seed in enumerate((JUDGES, JUDGES, JUDGES + 1)):
        (folder := tmp_path / str(turn)).mkdir()
        name = natural_card(seed, KERNELS, folder)
        texts.append(Path(name.removeprefix("sim:")).read_text(encoding="utf-8"))
    assert texts[0] == texts[1] != texts[2]


def test_cards_differ_in_all_that_a_natural_sweep_finds_out_and_hold_their_products(tmp_path):
    by_clock, products_mhz = [], []
    for seed in range(JUDGES, JUDGES + 6):
        device = open_device(natural_card(seed, KERNELS, tmp_path))
        points = [[device.truth_at(kernel, core_mhz) for core_mhz in (1500.0, 1980.0)] for kernel in KERNELS]
        by_clock.append([[low.time_s / high.time_s, low.power_w / high.power_w] for low, high in points])
        large = [kernel for kernel in KERNELS if kernel.op == "gemm" and kernel.flops > 1e12]
        products_mhz += [device.truth(Task.of_kernel(kernel), AUTO).core_mhz for kernel in large]
    times, powers = np.moveaxis(np.array(by_clock), 2, 0)
    assert times.min() < 1.02 and times.max() > 1.3
    assert np.median(np.ptp(times, axis=0)) > 0.05 and np.median(np.ptp(powers, axis=0)) > 0.05
    assert 1300 < np.median(products_mhz) < 1600
