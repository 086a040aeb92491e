"""Small sweeps, from rows or at random."""

from __future__ import annotations

import numpy as np

from wastenot.study.sweep import Kernel, Sweep

NAN = float("nan")


def make_sweep(rows, passes=None, counts=None, blocks=None, **columns) -> Sweep:
    """A sweep from (kernel, core, memory, time, energy); None is auto."""
    names = list(dict.fromkeys(row[0] for row in rows))
    kernels = tuple(
        Kernel(name, (counts or {}).get(name, 1), (passes or {}).get(name), (blocks or {}).get(name)) for name in names
    )
    absent = np.full(len(rows), NAN)

    def column(place):
        return np.array([NAN if row[place] is None else float(row[place]) for row in rows])

    return Sweep(
        kernels,
        np.array([names.index(row[0]) for row in rows]),
        column(1),
        column(2),
        columns.get("power_limit_w", absent),
        column(3),
        column(4),
        columns.get("time_se_s", absent),
        columns.get("energy_se_j", absent),
        absent,
        absent,
        absent,
        absent,
        workload="test",
        device="test",
    )


def random_sweep(rng: np.random.Generator, kernels: int, settings: int, passes: int = 1) -> Sweep:
    """Kernels with random times and energies at common settings, auto among them."""
    clocks = [(None, None)] + [(210 * (1 + place), 9501 - place) for place in range(settings)]
    rows = [(f"k{kernel}", *clock, rng.uniform(1, 3), rng.uniform(1, 3)) for kernel in range(kernels) for clock in clocks]
    return make_sweep(
        rows,
        passes={f"k{kernel}": f"p{kernel % passes}" for kernel in range(kernels)},
        counts={f"k{kernel}": int(rng.integers(1, 5)) for kernel in range(kernels)},
    )
