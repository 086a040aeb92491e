"""``wastenot device calibrate``: from a sweep of a card to a simulated GPU that behaves like it, and how far to trust it.

Errors are those on what it was fitted to, on held-out points and on held-out kernels. Clocks are chosen, and kernels split,
without looking at what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.devices.simulated import model
from wastenot.devices.simulated.hardware import CounterModel, GaugeModel, Noise, SensorModels, Switching, Thermal
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.devices.simulated.preset import KernelTraits, Preset
from wastenot.kernels.calibration.clocks import clock_table
from wastenot.kernels.calibration.fit import Calibration, calibrate, fit_kernels
from wastenot.kernels.calibration.points import (
    FEWEST_KERNELS,
    FEWEST_POINTS,
    Points,
    choose_points,
    data_warnings,
    points_of_sweep,
    require_enough,
)
from wastenot.study.store import Source, sweep_of
from wastenot.study.sweep import Sweep

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


def held_out_kernels(points: Points, power_limit_w: float | None = None) -> PredictionErrors | None:
    """Errors on kernels that the GPU's own parameters were not fitted to: each half, on the GPU fitted to the other half.

    Each other kernel is fitted to its chosen points (or all but a fifth) on that fixed GPU; the rest are predicted.

    Returns:
        The errors; ``None`` where there are too few kernels or points.
    """
    used = points.mask > 0
    few = used.sum(axis=1).max() <= CHOSEN_POINTS
    if len(used) < 2 * FEWEST_KERNELS or (few and used.sum(axis=1).min() <= FEWEST_POINTS):
        return None
    order = np.random.default_rng(0).permutation(len(used))
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


_MOST_FITTED = 48  # points of a kernel; more only take longer
_NOISY = 0.03  # median error on held-out points above which a warning is due
_HEADROOM = 1.02  # an unstated power limit is assumed to lie this far above the largest power measured


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """How far a calibrated GPU can be trusted.

    Attributes:
        kernels, points: how many were fitted.
        errors: on the points fitted, then on held-out points and on held-out kernels where there are enough.
        warnings: what weakens the calibration.
    """

    kernels: int
    points: int
    errors: tuple[PredictionErrors, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CalibratedGpu:
    """A simulated GPU fitted to a sweep.

    Attributes:
        preset: the GPU; it knows the kernels of the sweep by name.
        report: its errors.
        calibration: the fit itself, its kernels in the order of the sweep.
    """

    preset: Preset
    report: CalibrationReport
    calibration: Calibration


@single_threaded()
def calibrate_sweep(
    source: Source, *, workload: str | None = None, name: str, power_limit_w: float | None = None, base: Preset | None = None
) -> CalibratedGpu:
    """Fit a simulated GPU to a sweep.

    All kernels share the parameters of the GPU, and each has eight of its own. The result runs the kernels of the sweep at
    the clocks of the sweep. What a sweep does not show (heat, sensors, switching latency) is taken from ``base`` or
    assumed, as the preset's provenance states.

    Args:
        source: a study (its file name, URL or the open study) or a sweep: at least 3 core clocks, 4 kernels and 4 points
            of each.
        workload: its name; may be left out where the study holds only one.
        name: name of the new GPU.
        power_limit_w: power limit in force during the sweep; matters where kernels reached it.
        base: a preset that provides what the sweep does not show.

    Returns:
        The GPU and its errors on what was fitted, on held-out points and on held-out kernels.

    Raises:
        CalibrationError: the sweep cannot determine the model; says what to measure.
    """
    sweep = sweep_of(source, workload)
    points = points_of_sweep(sweep)
    require_enough(points, [kernel.name for kernel in sweep.kernels])
    fitted = points.with_mask(choose_points(points, _MOST_FITTED))
    calibration = calibrate(fitted, power_limit_w=power_limit_w)
    in_sample = ratios(calibration.device, calibration.kernels, points, fitted.mask)
    errors = [PredictionErrors.of("points it was fitted to", in_sample)]
    warnings = list(data_warnings(points))
    held_out = {"points": held_out_points(points, power_limit_w), "kernels": held_out_kernels(points, power_limit_w)}
    for what, result in held_out.items():
        if result is None:
            warnings.append(f"too few {what} to hold any out: the errors on unseen {what} are unknown")
        else:
            errors.append(result)
            worst = max(result.time.median, result.energy.median)
            if worst > _NOISY:
                warnings.append(f"half of the held-out {what} are off by more than {worst:.1%}: noisy data, or too few")
    report = CalibrationReport(len(points.mask), int(fitted.mask.sum()), tuple(errors), tuple(warnings))
    preset = _preset(sweep, name, calibration, points, report, power_limit_w, base)
    return CalibratedGpu(preset, report, calibration)


def kernel_traits(calibration: Calibration, row: int) -> KernelTraits:
    """The parameters of one kernel of a calibration, as a preset holds them."""
    values = calibration.kernels
    columns = {column: float(np.ravel(getattr(values, column))[row]) for column in values.__slots__}
    return KernelTraits(**columns)


def _preset(
    sweep: Sweep,
    name: str,
    calibration: Calibration,
    points: Points,
    report: CalibrationReport,
    power_limit_w: float | None,
    base: Preset | None,
) -> Preset:
    most_w = power_limit_w or _HEADROOM * float(points.power_w[points.mask > 0].max())
    limits = (0.3 * most_w if base is None else min(base.power_limits_w[0], most_w), most_w)
    table = clock_table(sweep)
    assumed = "assumed, typical of recent cards" if base is None else f"taken from the preset {base.name}"
    if base is None:
        surroundings: dict[str, Any] = {
            "idle_w": calibration.device.base_w[0],
            "thermal": Thermal(
                ambient_c=30.0,
                resistance_c_per_w=45.0 / limits[1],  # 75 degrees at the limit
                time_constant_s=40.0,
                leakage_per_c=0.012,
                reference_c=70.0,
                limit_c=90.0,
            ),
            "switching": Switching(
                core_s=((table.core_from_mhz, 0.02), (table.core_to_mhz, 0.02)), memory_s=0.1, jitter=0.3
            ),
            "noise": Noise(run_time=0.002, run_power=0.005),
            "sensors": SensorModels(
                energy=CounterModel(period_s=0.1, read_s=0.003, noise_w=2.0),
                power=GaugeModel(period_s=0.1, window_s=0.1, noise_w=2.0),
                clock_period_s=0.1,
            ),
        }
    else:
        surroundings = {name: getattr(base, name) for name in ("idle_w", "thermal", "switching", "noise", "sensors")}
    provenance = {
        "parameters": f"fitted by wastenot device calibrate to {report.points} {sweep.origin} points of {report.kernels} "
        f"kernels of workload '{sweep.workload}' on {sweep.device}",
        "errors": "; ".join(map(str, report.errors)),
        "clocks": "those requested in that sweep; others are unknown",
        "power_limits_w": "as stated" if power_limit_w else "assumed, 2 % above the largest power measured",
        "idle_w": assumed if base else "assumed: the fitted power that no clock changes, in the lowest memory state",
        "thermal, switching, noise, sensors": assumed,
        "dynamics": "assumed: how power rises and times vary within and between executions",
        "gain": "joules as the sensor of the sweep reported them, which may be off by a factor; no further gain is applied",
    }
    return Preset(
        schema="wastenot.gpu/1",
        name=name,
        model=sweep.device,
        basis=f"fitted to {report.points:,} {sweep.origin} points of {report.kernels} kernels; "
        + ("heat, switching and sensors assumed" if base is None else f"the rest taken from {base.name}"),
        provenance=provenance,
        clocks=table,
        power_limits_w=limits,
        parameters=calibration.device,
        kernels={kernel.name: kernel_traits(calibration, row) for row, kernel in enumerate(sweep.kernels)},
        **surroundings,
    )
