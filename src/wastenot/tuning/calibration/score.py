"""How good a calibration is on what it was fitted to, on points it never saw, and on kernels it never saw.

Clocks are chosen, and kernels split, without a look at what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.tuning.calibration.design import choose_points
from wastenot.tuning.calibration.fit import calibrate, fit_kernels
from wastenot.tuning.calibration.measured_points import FEWEST_KERNELS, FEWEST_POINTS, Array, Points

CHOSEN_POINTS = 8
"""Points of a kernel that a calibration needs to be good; more change little."""

_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Spread:
    """Absolute relative errors; 0.01 is 1 %.

    Attributes:
        median: half are below.
        mean: of all.
        p90: nine in ten are below.
    """

    median: float
    mean: float
    p90: float

    @classmethod
    def of(cls, ratio: Array) -> Spread:
        """Of predicted over measured values."""
        size = np.abs(ratio - 1.0)
        return cls(float(np.median(size)), float(size.mean()), float(np.quantile(size, 0.9)))


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of predicted times and energies.

    Attributes:
        what: the points they are of.
        points: how many.
        time: of one call.
        energy: of one call.
    """

    what: str
    points: int
    time: Spread
    energy: Spread


def ratios(device: DeviceParameters, kernels: KernelParameters, points: Points, mask: Array) -> Array:
    """Predicted over measured time and energy of the masked points, shape (2, points)."""
    time = model.time_s(device, kernels, points.core_mhz, points.memory_mhz)
    energy = time * model.power_w(device, kernels, points.core_mhz, points.memory_mhz, time)
    return np.stack([time / points.time_s, energy / points.energy_j])[:, mask > 0]


def errors_of(what: str, found: Array) -> Errors:
    """Errors from :func:`ratios`."""
    return Errors(what, found.shape[1], Spread.of(found[0]), Spread.of(found[1]))


def held_out_points(points: Points, power_limit_w: float | None = None) -> Errors | None:
    """Errors on points of kernels of which others were fitted.

    Kernels with more than 8 points are fitted on 8 that the product chooses. Where no kernel has more, a fifth of the
    points is left out in turn, other clocks of every kernel.

    Returns:
        The errors; ``None`` where there are too few points to hold any out.
    """
    used = points.mask > 0
    if used.sum(axis=1).max() > CHOSEN_POINTS:
        mask = choose_points(points, CHOSEN_POINTS)
        found = calibrate(points.used(mask), power_limit_w=power_limit_w)
        left = points.mask - mask
        what = f"held-out points, each kernel fitted on {CHOSEN_POINTS} of its points"
        return errors_of(what, ratios(found.device, found.kernels, points, left))
    if used.sum(axis=1).min() <= FEWEST_POINTS:
        return None
    parts = []
    for fold in _folds(points):
        found = calibrate(points.used(fold), power_limit_w=power_limit_w)
        parts.append(ratios(found.device, found.kernels, points, points.mask - fold))
    return errors_of("held-out points, a fifth of them in turn", np.concatenate(parts, axis=1))


def held_out_kernels(points: Points, power_limit_w: float | None = None, *, seed: int = 0) -> Errors | None:
    """Errors on kernels that had no part in the GPU's own parameters: each half, with the other half's GPU.

    Of the unseen kernels the chosen points (or all but a fifth) are fitted, the GPU as it is, and the others predicted.

    Returns:
        The errors; ``None`` where there are too few kernels or points.
    """
    used = points.mask > 0
    few = used.sum(axis=1).max() <= CHOSEN_POINTS
    if len(used) < 2 * FEWEST_KERNELS or (few and used.sum(axis=1).min() <= FEWEST_POINTS):
        return None
    order = np.random.default_rng(seed).permutation(len(used))
    parts = []
    for seen, unseen in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        learn, test = points.kernels(seen), points.kernels(unseen)
        base = calibrate(learn if few else learn.used(choose_points(learn, CHOSEN_POINTS)), power_limit_w=power_limit_w)
        masks = _folds(test) if few else [choose_points(test, CHOSEN_POINTS)]
        parts += [ratios(base.device, fit_kernels(test.used(mask), base), test, test.mask - mask) for mask in masks]
    return errors_of("held-out kernels, with the GPU fitted to the other half", np.concatenate(parts, axis=1))


def _folds(points: Points) -> list[Array]:
    """Masks that leave out each point once, staggered: another clock of every kernel."""
    used = points.mask > 0
    clock = np.where(used, points.core_mhz * 1e6 + points.memory_mhz, np.inf)
    rank = clock.argsort(axis=1).argsort(axis=1)
    folds = min(_FOLDS, int(used.sum(axis=1).max()))
    turn = (rank + np.arange(len(used))[:, None]) % folds
    return [points.mask * (turn != fold) for fold in range(folds)]
