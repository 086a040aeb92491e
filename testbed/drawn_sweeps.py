"""Sweeps for pages, under names that try to break out of them."""

from __future__ import annotations

import numpy as np

from wastenot.study.sweep import Kernel, Origin, Sweep

NASTY = '</script><b onload="x">&\' \\ "quoted" \u2028 ends <!-- `${1}` 漢字'


def make_sweep(
    kernels: list[Kernel], settings: int, *, origin: Origin = "simulated", extreme: bool = False, seed: int = 7
) -> Sweep:
    """Kernels with auto and ``settings`` more settings each; some save, some lose, ``extreme`` by factors of 1,000."""
    random = np.random.default_rng(seed)
    rows = settings + 1
    size = len(kernels) * rows
    core = np.tile(np.concatenate([[np.nan], 300.0 + 30.0 * (np.arange(settings) // 3)]), len(kernels))
    memory = np.tile(np.concatenate([[np.nan], np.array([810.0, 5001.0, 9501.0])[np.arange(settings) % 3]]), len(kernels))
    spread = 3.0 if extreme else 0.25
    time = np.repeat(10.0 ** random.uniform(-5, -2, len(kernels)), rows)
    energy = 200.0 * time
    moved = ~np.isnan(core)
    time[moved] *= 10.0 ** random.uniform(-0.05 * spread, spread, moved.sum())
    energy[moved] *= 10.0 ** random.uniform(-spread, spread, moved.sum())
    absent = np.full(size, np.nan)
    return Sweep(
        tuple(kernels),
        np.repeat(np.arange(len(kernels)), rows),
        core,
        memory,
        absent,
        time,
        energy,
        absent,
        absent,
        absent,
        absent,
        absent,
        absent,
        workload=f"work <i>{NASTY}</i>",
        device=f"device <i>{NASTY}</i>",
        origin=origin,
    )
