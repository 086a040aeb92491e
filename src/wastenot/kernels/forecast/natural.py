"""What curves at natural clocks say to a forecast: time and power of each kernel within the clocks it was seen at.

    log time  ┊╲ a model, fitted to what was seen:        the rest of the range below
              ┊  ╲·_                                       draws of the curve, with its errors
              ┊     ╲·____·__·  auto
              └─────├────────┤
              unknown   seen

Beyond errors of the curves one thing is unknown within the range: whether a kernel at a locked clock draws what it drew when
the regulator held it at that clock. Both set voltage by the same table, and the clock was counted in groups of a
millisecond, so that its swing is not hidden in them. What may differ is the margin of voltage and how fast it follows:
``LOCKED_POWER_SD``, assumed, the same for all kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.kernels.forecast.kernels import CandidateSettings, DrawnKernels, costs, draw_kernels
from wastenot.kernels.forecast.observed import Observation
from wastenot.kernels.forecast.prior import GpuDraw
from wastenot.kernels.natural.curves import KernelCurve, NaturalCurves
from wastenot.planning.natural import CAP_STEP_MHZ, SAME_MHZ, hat_weights

LOCKED_POWER_SD = 0.005
"""Standard deviation of power at a locked clock over that at the same clock under the regulator, as a fraction; assumed."""

_LEAST_SLOPE = 1e-4  # of log time over log clock, where a kernel loses next to nothing
_KERNELS_TRIED = 6  # draws of each kernel, of which the one is taken that agrees best with its curve
_COMPARED = 6  # clocks at which they are compared
_AGREES = (0.01, 0.02)  # standard deviations of the model's log time and log power: no model is exact
_INDEPENDENT = 5.0  # kernels' worth of evidence about the GPU: what the model does not get right, it gets wrong for many


@dataclass(frozen=True, slots=True, eq=False)
class RelativeCurve:
    """Draws of one kernel's time and power by clock, relative to those at its clock at auto.

    Attributes:
        log_mhz: logarithms of the knots, ascending; shape (knots,).
        log_time: draws of the logarithm of time over that at auto, shape (draws, knots).
        log_power: the same of power.
        low_mhz: lowest clock seen.
        auto_mhz: clock at auto.
    """

    log_mhz: FloatArray
    log_time: FloatArray
    log_power: FloatArray
    low_mhz: float
    auto_mhz: float

    def at(self, core_mhz: FloatArray, draw: int) -> tuple[FloatArray, FloatArray]:
        """Logarithms of time and power over those at auto, under caps; shapes (caps,).

        Below the lowest clock seen they are the most that physics allows: as many cycles as there, at the power drawn there.
        """
        weights = hat_weights(np.log(np.minimum(core_mhz, self.auto_mhz)), self.log_mhz)
        capped = core_mhz < self.auto_mhz - SAME_MHZ
        return (
            np.where(capped, weights @ self.log_time[draw] + np.log(np.maximum(self.low_mhz / core_mhz, 1.0)), 0.0),
            np.where(capped, weights @ self.log_power[draw], 0.0),
        )


def draw_relative(curve: KernelCurve, draws: int, rng: np.random.Generator) -> RelativeCurve:
    """Draws of a kernel's curve, relative to its clock at auto."""
    times, powers = curve.draws(rng, draws)
    log_mhz = np.log(curve.core_mhz)
    at_auto = hat_weights(np.log(curve.auto.core_mhz), log_mhz)
    log_time, log_power = np.log(times), np.log(powers)
    return RelativeCurve(
        log_mhz,
        log_time - (log_time @ at_auto)[:, None],
        log_power - (log_power @ at_auto)[:, None],
        float(curve.core_mhz[0]),
        curve.auto.core_mhz,
    )


@dataclass(frozen=True, slots=True, eq=False)
class NaturalKnowledge:
    """Draws of what is known of kernels within the clocks that they were seen at.

    Attributes:
        draws: number of them.
        curves: of each kernel; errors of different kernels are independent.
        locked_power: power at a locked clock over that at the same clock under the regulator, shape (draws,).
    """

    draws: int
    curves: tuple[RelativeCurve, ...]
    locked_power: FloatArray


def know(curves: NaturalCurves, kernels: Sequence[str], draws: int, seed: int) -> NaturalKnowledge:
    """Draw what is known of some kernels, by name.

    Where a curve looks flat, no measurement tells whether the kernel loses nothing at a lower clock or almost nothing; a
    plan that may not be slower at all rests on just that. In half of the draws it loses almost nothing.
    """
    rng = np.random.default_rng([seed, 13])
    tilt = np.where(rng.permutation(draws) < 0.5 * draws, _LEAST_SLOPE, 0.0)
    drawn = []
    for name in kernels:
        curve = draw_relative(curves[name], draws, rng)
        drawn.append(replace(curve, log_time=curve.log_time + np.outer(tilt, np.log(curve.auto_mhz) - curve.log_mhz)))
    return NaturalKnowledge(draws, tuple(drawn), np.exp(LOCKED_POWER_SD * rng.standard_normal(draws)))


def caps_in_range(curves: Sequence[RelativeCurve]) -> FloatArray:
    """Caps within the clocks that kernels were seen at."""
    low, high = min(each.low_mhz for each in curves), max(each.auto_mhz for each in curves)
    caps = CAP_STEP_MHZ * np.arange(np.ceil(low / CAP_STEP_MHZ), np.floor(high / CAP_STEP_MHZ) + 1)
    return np.asarray(caps, dtype=float)


def cap_costs(
    curves: Sequence[RelativeCurve], draw: int, time_s: FloatArray, power_w: FloatArray, locked: float
) -> tuple[FloatArray, FloatArray]:
    """What caps within the range seen cost in one draw: time and energy of a call of each kernel.

    Both are of shape (kernels, 1 + caps); option 0 is auto.

    Args:
        curves: of each kernel.
        draw: which.
        time_s: of a call of each kernel at auto.
        power_w: the same of power.
        locked: power at a locked clock over that under the regulator.
    """
    caps = caps_in_range(curves)
    time = np.tile(time_s[:, None], (1, 1 + len(caps)))
    power = np.tile(power_w[:, None], (1, 1 + len(caps)))
    for kernel, curve in enumerate(curves):
        log_time, log_power = curve.at(caps, draw)
        time[kernel, 1:] *= np.exp(log_time)
        power[kernel, 1:] *= np.exp(log_power) * np.where(caps < curve.auto_mhz - SAME_MHZ, locked, 1.0)
    return time, time * power


def matched(misfit: FloatArray, number: int, seed: int) -> IndexArray:
    """Indices of some draws, in their order: drawn by how likely what was seen is of each.

    Args:
        misfit: of each draw, see :class:`KernelFit`.
        number: of draws to keep.
        seed: of the choice.
    """
    rng = np.random.default_rng([seed, 15])
    likelihood = -0.5 * _INDEPENDENT * misfit
    # The greatest of log-likelihoods with Gumbel noise are a sample without replacement.
    return np.sort(np.argsort(-(likelihood + rng.gumbel(size=len(misfit))), kind="stable")[:number])


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """Drawn kernels that agree with one draw of their curves.

    Attributes:
        draw: of the curves.
        kernels: the model of each.
        misfit: mean square by which the model's time and power differ from the curves', over ``_AGREES``.
    """

    draw: int
    kernels: DrawnKernels
    misfit: float


def fit_kernels(observed: Observation, gpu: GpuDraw, known: NaturalKnowledge, draw: int) -> KernelFit:
    """Kernels on a drawn GPU that agree with what was seen: one of several draws of each, by how likely that is.

    Args:
        observed: at the default clocks.
        gpu: a drawn one, without what the driver's management of clocks costs: that is seen.
        known: at natural clocks.
        draw: of that.
    """
    gpu = replace(gpu, numbers={**gpu.numbers, "auto_costs": -1.0})
    tried = [draw_kernels(observed, replace(gpu, seed=gpu.seed * _KERNELS_TRIED + turn)) for turn in range(_KERNELS_TRIED)]
    at = np.stack([np.linspace(each.low_mhz, each.auto_mhz, _COMPARED) for each in known.curves])
    seen = np.array([each.at(clocks, draw) for each, clocks in zip(known.curves, at, strict=True)])
    memory = observed.memory_mhz[:, None]
    misfit = np.empty((_KERNELS_TRIED, len(at)))
    for turn, kernels in enumerate(tried):
        time = model.time_s(gpu.device, kernels.parameters, at, memory)
        power = model.demanded_power_w(gpu.device, kernels.parameters, at, memory, time)
        for part, values in enumerate((time, power)):
            left = np.log(values / values[:, -1:]) - seen[:, part]
            misfit[turn] = (misfit[turn] if part else 0.0) + ((left / _AGREES[part]) ** 2).mean(axis=1)
    rng = np.random.default_rng([gpu.seed, 16])
    best = (-0.5 * misfit + rng.gumbel(size=misfit.shape)).argmax(axis=0)
    rows = np.arange(len(best))
    columns = {
        name: np.stack([getattr(each.parameters, name) for each in tried])[best, rows] for name in KernelParameters.__slots__
    }
    others = {
        name: np.stack([getattr(each, name) for each in tried])[best, rows]
        for name in ("core_mhz", "limit_w", "ceiling_mhz")
    }
    chosen = DrawnKernels(KernelParameters(**columns), **others)
    return KernelFit(draw, chosen, float(misfit[best, rows].mean()))


def natural_costs(
    observed: Observation, device: DeviceParameters, fit: KernelFit, known: NaturalKnowledge, candidates: CandidateSettings
) -> tuple[FloatArray, FloatArray]:
    """Time and energy of a call of each kernel at each candidate setting, both of shape (kernels, settings).

    Within the clocks seen they are those of the curves; below, the model's, made to agree at the lowest clock seen; at
    another memory clock the model says what that changes.
    """
    time, energy = costs(device, fit.kernels, candidates)
    parameters = fit.kernels.parameters
    memory = observed.memory_mhz[:, None]
    low = np.array([[each.low_mhz] for each in known.curves])
    auto = np.array([[each.auto_mhz] for each in known.curves])
    clock = np.clip(candidates.core_mhz[None, :], low, auto)
    modelled_s = model.time_s(device, parameters, clock, memory)
    modelled_w = model.demanded_power_w(device, parameters, clock, memory, modelled_s)
    seen = np.array([each.at(clocks, fit.draw) for each, clocks in zip(known.curves, clock, strict=True)])
    longer = observed.time_s[:, None] * np.exp(seen[:, 0]) / modelled_s
    stronger = observed.power_w[:, None] * np.exp(seen[:, 1]) / modelled_w
    stronger = np.where(clock < auto - SAME_MHZ, stronger * known.locked_power[fit.draw], stronger)
    return time * longer, energy * longer * stronger
