"""Costs of kernels predicted where they were not measured, from few points of each: the model behind the search.

For every kernel, the logarithms of time and energy at all settings, relative to the default clocks, are one draw from a
Gaussian process. Its mean and covariance start as those of plausible kernels on plausible GPUs, drawn from the priors that
calibration starts from, each kernel on a GPU of its own: together they say what a plausible kernel does at 1,000 MHz if it
lost nothing at 1,500 MHz. Both are learnt from all kernels together by expectation maximisation, with the start as a
conjugate prior: so a kernel with one point profits from what others showed of the card, and a kernel with none has the
spread of the population. A Gaussian process gives errors that can be trusted where a fit of parameters cannot: with three
points of a kernel two explanations may fit, and a fit knows only the one that it found.

Nothing here depends on the order of the kernels, except for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.kernels.calibration.fit import POWER_MEAN, POWER_SD, power_kernels, time_kernels, time_prior, with_time
from wastenot.kernels.calibration.points import rescaled

_ROUNDS = 4  # of expectation maximisation; more change little
_PRIOR_KERNELS = 10.0  # how many kernels the prior covariance counts as
_PRIOR_KERNELS_OF_MEAN = 2.0  # and the prior mean
_MISFIT = 0.03  # relative; what real kernels do beyond the physical model
_MISFIT_LENGTH = 0.3  # over which it is alike, as a fraction of the range of core clock and of log memory clock
_MISFIT_SHARED = 0.7  # correlation of time's with energy's
_AUTO_ERROR = np.array([0.02, 0.03])  # relative, of time and energy: the default clocks are not quite the highest ones
_NOISE = np.array([0.02, 0.025])  # relative, of measured time and energy: the first guess
_USUAL_NOISE = np.array([0.01, 0.015])  # what the estimate is drawn to,
_USUAL_POINTS = 30.0  # as if it had been seen at that many points
_LEAST_NOISE = np.array([0.002, 0.003])
_PRIOR_POINTS = 4.0  # how many points the noise of all kernels counts as in that of one
_LEAST_ERROR = 0.003  # relative; no prediction is better than this


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Predicted costs of one call, arrays of shape (kernels, settings).

    Attributes:
        time_error, energy_error: standard deviations of the relative errors, where nothing was measured.
    """

    time_s: FloatArray
    energy_j: FloatArray
    time_error: FloatArray
    energy_error: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Population:
    """What kernels do: mean and covariance of the log costs, all times and then all energies, auto last of each."""

    mean: FloatArray
    covariance: FloatArray


@single_threaded()
def predict_costs(
    core_mhz: FloatArray,
    memory_mhz: FloatArray,
    time_s: FloatArray,
    energy_j: FloatArray,
    auto_time_s: FloatArray,
    auto_energy_j: FloatArray,
) -> Predicted:
    """Predict the costs of every kernel at every setting from the points that were measured.

    The default clocks count as the highest ones, roughly.

    Args:
        core_mhz: core clock of each setting (in effect where that is known), shape (settings,).
        memory_mhz: memory clock of each setting, same shape.
        time_s: time of one call, NaN where not measured; shape (kernels, settings).
        energy_j: energy of one call, same shape.
        auto_time_s: time of one call at the default clocks, shape (kernels, 1).
        auto_energy_j: energy of one call there, same shape.
    """
    points = time_s.shape[1] + 1
    relative = np.concatenate([_relative(time_s, auto_time_s), _relative(energy_j, auto_energy_j)], axis=1)
    core, memory = np.append(core_mhz, core_mhz.max()), np.append(memory_mhz, memory_mhz.max())
    prior = _prior(core, memory)
    mean, variance = _learn(prior, relative, np.isfinite(relative))
    error = np.sqrt(variance + _LEAST_ERROR**2)
    time, energy = slice(0, points - 1), slice(points, 2 * points - 1)
    return Predicted(
        auto_time_s * np.exp(mean[:, time]), auto_energy_j * np.exp(mean[:, energy]), error[:, time], error[:, energy]
    )


def _relative(costs: FloatArray, auto: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.concatenate([costs, auto], axis=1) / auto))


def _prior(core_mhz: FloatArray, memory_mhz: FloatArray) -> _Population:
    """Of the drawn kernels, with room for what real ones do beyond the physical model."""
    draws = [costs - costs[:, [-1]] for costs in draw_log_costs(tuple(core_mhz.tolist()), tuple(memory_mhz.tolist()))]
    together = np.concatenate(draws, axis=1)
    clocks = np.stack([rescaled(core_mhz), rescaled(np.log(memory_mhz))], axis=1)
    distance = np.linalg.norm(clocks[:, None] - clocks[None], axis=2)
    shared = np.array([[1.0, _MISFIT_SHARED], [_MISFIT_SHARED, 1.0]])
    misfit = _MISFIT**2 * np.kron(shared, np.exp(-distance / _MISFIT_LENGTH))
    return _Population(together.mean(axis=0), np.cov(together.T) + misfit)


def _learn(prior: _Population, values: FloatArray, seen: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of every kernel's log costs given its measured ones, with the population learnt from all.

    Args:
        prior: to start from.
        values: log costs relative to auto, shape (kernels, costs).
        seen: which were measured, same shape.
    """
    kernels, costs = values.shape
    kind = np.arange(costs) * 2 // costs  # 0 for a time, 1 for an energy
    level = np.where(kind[:, None] == kind, _AUTO_ERROR[kind] ** 2, 0.0)  # every cost is relative to the same auto
    population, noise = prior, np.tile(_NOISE**2, (kernels, 1))
    for learning in (*[True] * _ROUNDS, False):
        covariance = population.covariance + level
        mean, variance = np.empty_like(values), np.empty_like(values)
        explained = []
        for kernel in range(kernels):
            at = np.flatnonzero(seen[kernel])
            here = covariance[at]
            gain = np.linalg.solve(here[:, at] + np.diag(noise[kernel, kind[at]]), here).T
            mean[kernel] = population.mean + gain @ (values[kernel, at] - population.mean[at])
            variance[kernel] = np.diag(covariance) - np.einsum("cp,pc->c", gain, here)
            explained.append((gain, here))
        if learning:
            gains, heres = np.concatenate([g for g, _ in explained], axis=1), np.concatenate([h for _, h in explained])
            population = _updated(prior, mean, kernels * covariance - gains @ heres)
            noise = _noise(values, seen, mean, variance, kind)
    return mean, np.maximum(variance, 0.0)


def _updated(prior: _Population, mean: FloatArray, uncertain: FloatArray) -> _Population:
    """The likeliest population under a normal-inverse-Wishart prior, given the kernels' means and summed covariances."""
    kernels = len(mean)
    centre = (_PRIOR_KERNELS_OF_MEAN * prior.mean + mean.sum(axis=0)) / (_PRIOR_KERNELS_OF_MEAN + kernels)
    off, moved = mean - centre, centre - prior.mean
    scatter = _PRIOR_KERNELS * prior.covariance + _PRIOR_KERNELS_OF_MEAN * np.outer(moved, moved)
    return _Population(centre, (scatter + off.T @ off + uncertain) / (_PRIOR_KERNELS + kernels))


def _noise(
    values: FloatArray, seen: NDArray[np.bool_], mean: FloatArray, variance: FloatArray, kind: NDArray[np.intp]
) -> FloatArray:
    """Variance of the noise of each kernel's times and energies, drawn to that of all kernels; shape (kernels, 2)."""
    squares = np.where(seen, (np.where(seen, values, 0.0) - mean) ** 2 + variance, 0.0)
    sums = np.stack([squares[:, kind == which].sum(axis=1) for which in (0, 1)], axis=1)
    points = np.stack([seen[:, kind == which].sum(axis=1) for which in (0, 1)], axis=1)
    usual = _USUAL_POINTS * _USUAL_NOISE**2
    overall = np.maximum((sums.sum(axis=0) + usual) / (points.sum(axis=0) + _USUAL_POINTS), _LEAST_NOISE**2)
    return np.asarray((_PRIOR_POINTS * overall + sums) / (_PRIOR_POINTS + points))


_GPUS, _KERNELS_OF_EACH = 48, 40
_VOLTAGES = 9
_KNEE = (0.2, 0.85)  # of the highest core clock, below which the voltage stays
_VOLTAGE_RANGE = (0.15, 0.7)  # by how much the highest voltage exceeds the lowest
_BENDS = (0.8, 1.8)  # exponent of the rise above the knee
_BASE, _BASE_SD = 0.3, 0.5  # power that no clock changes, in the highest memory state: median, and sd of the logarithm
_LEAKAGE, _LEAKAGE_SD = 0.03, 1.0
_BYTE_ENERGY_SD = 0.3


@lru_cache(maxsize=8)
def draw_log_costs(core_mhz: tuple[float, ...], memory_mhz: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
    """Logarithms of time and energy of drawn kernels, in units of their own; always the same draws for the same clocks.

    Args:
        core_mhz: core clocks in effect.
        memory_mhz: memory clocks in effect.

    Returns:
        Each of shape (draws, points).
    """
    core, memory = np.array(core_mhz), np.array(memory_mhz)
    states = np.unique(memory)
    prior = time_prior(len(states))
    random = np.random.default_rng(0)
    times, energies = [], []
    for _ in range(_GPUS):
        device = _draw_gpu(core, states, random)
        device_logs = prior.device_mean + prior.device_sd * random.standard_normal(len(prior.device_mean))
        device = with_time(device, device_logs, float(core.min()))
        scatter = random.standard_normal((_KERNELS_OF_EACH, len(prior.kernel_mean)))
        kernels = time_kernels(prior.kernel_mean + prior.kernel_sd * scatter, np.ones(_KERNELS_OF_EACH))
        time = model.time_s(device, kernels, core, memory)
        scatter = random.standard_normal((_KERNELS_OF_EACH, len(POWER_MEAN)))
        kernels = power_kernels(kernels, POWER_MEAN + POWER_SD * scatter, 1.0, time.min(axis=1))
        power = model.power_w(device, kernels, core, memory, time)
        times.append(np.log(time))
        energies.append(np.log(time * power))
    return np.concatenate(times), np.concatenate(energies)


def _draw_gpu(core_mhz: FloatArray, states_mhz: FloatArray, random: np.random.Generator) -> DeviceParameters:
    """A GPU whose power is drawn, in units of a typical kernel's; what times depend on is left to the caller."""
    highest = float(core_mhz.max())
    clocks = np.unique(np.linspace(core_mhz.min(), highest, _VOLTAGES))
    knee, rise = random.uniform(*_KNEE), random.uniform(*_VOLTAGE_RANGE)
    above = np.clip((clocks / highest - knee) / (1.0 - knee), 0.0, None) ** random.uniform(*_BENDS)
    base = _BASE * np.exp(_BASE_SD * random.standard_normal()) * (states_mhz / states_mhz[-1]) ** random.uniform()
    byte_energy = np.append(np.exp(_BYTE_ENERGY_SD * random.standard_normal(len(states_mhz) - 1)), 1.0)
    voltage = 1.0 + rise * above
    return DeviceParameters(
        reference_core_mhz=highest,
        reference_memory_mhz=float(states_mhz[-1]),
        memory_states_mhz=tuple(states_mhz.tolist()),
        bandwidth_factor=(1.0,) * len(states_mhz),
        core_bandwidth=0.0,
        core_bandwidth_sharpness=1.0,
        overlap_exponent=1.0,
        core_floor_mhz=0.0,
        voltage_clocks_mhz=tuple(clocks.tolist()),
        voltage_ratio=tuple((voltage / voltage[0]).tolist()),
        base_w=tuple(base.tolist()),
        leakage_w=float(_LEAKAGE * np.exp(_LEAKAGE_SD * random.standard_normal())),
        byte_energy_factor=tuple(byte_energy.tolist()),
    )
