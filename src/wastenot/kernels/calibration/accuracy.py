"""How good a calibration is: on what it was fitted to, on held-out points, and on held-out kernels.

Clocks are chosen, and kernels split, without looking at what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.kernels.calibration.fit import Calibration, calibrate, fit_kernels
from wastenot.kernels.calibration.points import FEWEST_KERNELS, FEWEST_POINTS, Points, choose_points

CHOSEN_POINTS = 8
"""Points of a kernel that make a good calibration; more change little."""

_FOLDS = 5


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Median, mean and 90th percentile of absolute relative errors; 0.01 is 1 %."""

    median: float
    mean: float
    p90: float

    @classmethod
    def of(cls, ratio: FloatArray) -> ErrorSummary:
        """From predicted over measured values."""
        size = np.abs(ratio - 1.0)
        return cls(float(np.median(size)), float(size.mean()), float(np.quantile(size, 0.9)))


@dataclass(frozen=True, slots=True)
class PredictionErrors:
    """Errors of predicted times and energies of a call; ``what`` describes the points predicted."""

    what: str
    points: int
    time: ErrorSummary
    energy: ErrorSummary

    @classmethod
    def of(cls, what: str, ratio: FloatArray) -> PredictionErrors:
        """From :func:`ratios`."""
        return cls(what, ratio.shape[1], ErrorSummary.of(ratio[0]), ErrorSummary.of(ratio[1]))

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.points} points, time median {self.time.median:.2%} mean {self.time.mean:.2%}, "
            f"energy median {self.energy.median:.2%} mean {self.energy.mean:.2%}"
        )


def ratios(device: DeviceParameters, kernels: KernelParameters, points: Points, mask: FloatArray) -> FloatArray:
    """Predicted over measured time and energy of the masked points, shape (2, points)."""
    time = model.time_s(device, kernels, points.core_mhz, points.memory_mhz)
    energy = time * model.power_w(device, kernels, points.core_mhz, points.memory_mhz, time)
    return np.stack([time / points.time_s, energy / points.energy_j])[:, mask > 0]


def held_out_points(points: Points, power_limit_w: float | None = None) -> PredictionErrors | None:
    """Errors on points left out of the fit; ``None`` where there are too few to leave any out.

    Kernels with more than 8 points are fitted on 8 chosen ones. Where no kernel has more, every point is left out of one of
    five fits, which each leave out other clocks of every kernel.
    """
    fits = fits_without_some(points, power_limit_w)
    if not fits:
        return None
    how = "five-fold cross-validation" if len(fits) > 1 else f"each kernel fitted on {CHOSEN_POINTS} of its points"
    parts = [ratios(fit.device, fit.kernels, points, left_out) for fit, left_out in fits]
    return PredictionErrors.of(f"held-out points, {how}", np.concatenate(parts, axis=1))


def fits_without_some(points: Points, power_limit_w: float | None = None) -> list[tuple[Calibration, FloatArray]]:
    """Fits and the mask of the points left out of each, as in :func:`held_out_points`; none where there are too few."""
    per_kernel = (points.mask > 0).sum(axis=1)
    if per_kernel.max() > CHOSEN_POINTS:
        masks = [choose_points(points, CHOSEN_POINTS)]
    elif per_kernel.min() > FEWEST_POINTS:
        masks = _folds(points)
    else:
        masks = []
    return [(calibrate(points.with_mask(mask), power_limit_w=power_limit_w), points.mask - mask) for mask in masks]


def held_out_kernels(points: Points, power_limit_w: float | None = None, *, seed: int = 0) -> PredictionErrors | None:
    """Errors on kernels that the GPU's own parameters were not fitted to: each half, on the GPU fitted to the other half.

    Each other kernel is fitted to its chosen points (or all but a fifth) on that fixed GPU; the rest are predicted.

    Returns:
        The errors; ``None`` where there are too few kernels or points.
    """
    used = points.mask > 0
    few = used.sum(axis=1).max() <= CHOSEN_POINTS
    if len(used) < 2 * FEWEST_KERNELS or (few and used.sum(axis=1).min() <= FEWEST_POINTS):
        return None
    order = np.random.default_rng(seed).permutation(len(used))
    parts = []
    for fitted, unfitted in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        learn, test = points.of_kernels(fitted), points.of_kernels(unfitted)
        base = calibrate(learn if few else learn.with_mask(choose_points(learn, CHOSEN_POINTS)), power_limit_w=power_limit_w)
        masks = _folds(test) if few else [choose_points(test, CHOSEN_POINTS)]
        fits = [(fit_kernels(test.with_mask(mask), base), test.mask - mask) for mask in masks]
        parts += [ratios(base.device, kernels, test, left_out) for kernels, left_out in fits]
    return PredictionErrors.of("held-out kernels, with the GPU fitted to the other half", np.concatenate(parts, axis=1))


def _folds(points: Points) -> list[FloatArray]:
    """Masks that together leave out each point once, each of them another clock of every kernel."""
    used = points.mask > 0
    clock = np.where(used, points.core_mhz * 1e6 + points.memory_mhz, np.inf)
    rank = clock.argsort(axis=1).argsort(axis=1)
    folds = min(_FOLDS, int(used.sum(axis=1).max()))
    left_out = (rank + np.arange(len(used))[:, None]) % folds
    return [points.mask * (left_out != fold) for fold in range(folds)]
