"""Searches of tables whose every point is known, and how much of the best saving they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from testbed.known_truth import best_changes, rows_of, saving_of_measured
from wastenot.devices.recorded import recorded_device
from wastenot.kernels.run.search import search_sweep
from wastenot.meters.tasks import tasks_by_name
from wastenot.study.store import open_study
from wastenot.study.sweep import Sweep
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.measure import SweepOutcome
from wastenot.sweeping.point import PointOptions


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        points: that it measured, as name of the kernel, core and memory clock.
        fraction: of the best saving that a plan of these points saves.
    """

    points: frozenset[tuple[str, float | None, float | None]]
    fraction: float
    outcome: SweepOutcome


def search_table(table: Sweep, study: Path, share: float, max_slowdown: float = 0.0) -> Found:
    """Search a table, replayed without noise, into a new study."""
    device = recorded_device(table, "recorded:table")
    kept = open_study(study, create=True)
    settings = Grid().settings(device.clocks.supported_clocks())
    outcome = search_sweep(
        device, tasks_by_name(table.key, table.kernels), kept, settings,
        share=share, max_slowdown=max_slowdown, options=PointOptions(0.0, 5.0),
    )  # fmt: skip
    measured = kept.read()
    points = frozenset(
        (measured.kernels[kernel].name, measured.setting(row).core_mhz, measured.setting(row).memory_mhz)
        for row, kernel in enumerate(measured.kernel_index.tolist())
    )
    best = -best_changes(table, (max_slowdown,))[0]
    return Found(points, saving_of_measured(table, measured, max_slowdown) / best, outcome)


def with_kernels(table: Sweep, order: Sequence[int]) -> Sweep:
    """Some of the kernels of a table, in this order."""
    kept = rows_of(table, np.concatenate([np.flatnonzero(table.kernel_index == kernel) for kernel in order]))
    place = {kernel: index for index, kernel in enumerate(order)}
    index = np.array([place[kernel] for kernel in kept.kernel_index.tolist()])
    return replace(kept, kernels=tuple(table.kernels[kernel] for kernel in order), kernel_index=index)


def with_names(table: Sweep, names: Sequence[str]) -> Sweep:
    """The same table with other names of its kernels."""
    renamed = (replace(kernel, name=name) for kernel, name in zip(table.kernels, names, strict=True))
    return replace(table, kernels=tuple(renamed))


def with_equal_times(table: Sweep) -> Sweep:
    """The same table with such counts that every kernel takes about as long as the others, as in an LLM's iteration."""
    auto = np.isnan(table.core_mhz) & np.isnan(table.memory_mhz)
    time_s = np.array([table.time_s[auto & (table.kernel_index == kernel)].mean() for kernel in range(len(table.kernels))])
    counts = np.maximum(1, np.rint(10.0 * time_s.max() / time_s)).astype(int).tolist()
    return replace(
        table, kernels=tuple(replace(kernel, count=count) for kernel, count in zip(table.kernels, counts, strict=True))
    )


def subset(table: Sweep, kernels: int, seed: int) -> Sweep:
    """So many of the kernels of a table, drawn at random and in random order."""
    chosen = np.random.default_rng(seed).permutation(len(table.kernels))[:kernels]
    return with_kernels(table, chosen.tolist())
