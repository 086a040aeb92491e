"""Bayesian least squares for many units that share some parameters: each unit has its own, the device has common ones.

Parameters are unconstrained (logarithms of positive quantities). The objective is a soft-L1 loss of the residuals plus
Gaussian priors. The population's prior (mean, spread of each unit parameter) is learnt from the units themselves
(empirical Bayes: EM with Laplace posteriors), so a parameter that a unit's few points do not determine falls back to
what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Residuals = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class Prior:
    """Gaussian prior: mean and standard deviation of unit parameters (units share it) and of device parameters."""

    unit_mean: Array
    unit_sd: Array
    device_mean: Array
    device_sd: Array


@dataclass(frozen=True, slots=True)
class Solution:
    """A fit.

    Attributes:
        units: parameters of each unit, shape (units, n).
        device: parameters that all share, shape (m,).
        prior: the population in force at the end.
        covariance: posterior of each unit's parameters given the device, shape (units, n, n).
        objective: reached.
    """

    units: Array
    device: Array
    prior: Prior
    covariance: Array
    objective: float


@dataclass(frozen=True, slots=True)
class _Linearised:
    """Gauss-Newton system: blocks of the units, of the device, between them, and the gradients."""

    unit: Array
    cross: Array
    device: Array
    unit_gradient: Array
    device_gradient: Array


SOFT = 1.0
"""Residuals, in standard deviations, from which the loss turns from square to linear."""

_STEP = 1e-6
_LARGEST_STEP = 1.5
_SD_RANGE = (0.15, 3.0)


def _unit_objectives(residuals: Array, mask: Array, units: Array, prior: Prior) -> Array:
    loss = 2 * SOFT**2 * (np.sqrt(1 + (residuals / SOFT) ** 2) - 1)
    penalty = ((units - prior.unit_mean) / prior.unit_sd) ** 2
    return np.asarray((loss * mask).sum(axis=1) + penalty.sum(axis=1))


def _objective(residuals: Array, mask: Array, units: Array, device: Array, prior: Prior) -> float:
    penalty = ((device - prior.device_mean) / prior.device_sd) ** 2
    return float(_unit_objectives(residuals, mask, units, prior).sum() + penalty.sum())


def _derivatives(function: Residuals, at: Array, units: Array, device: Array) -> tuple[Array, Array]:
    """Forward differences: with respect to the unit parameters (units, points, n) and the device's (units, points, m)."""
    own = np.empty((*at.shape, units.shape[1]))
    for column in range(units.shape[1]):
        moved = units.copy()
        moved[:, column] += _STEP
        own[..., column] = (function(moved, device) - at) / _STEP
    common = np.empty((*at.shape, len(device)))
    for column in range(len(device)):
        moved = device.copy()
        moved[column] += _STEP
        common[..., column] = (function(units, moved) - at) / _STEP
    return own, common


def _linearise(function: Residuals, at: Array, mask: Array, units: Array, device: Array, prior: Prior) -> _Linearised:
    own, common = _derivatives(function, at, units, device)
    weight = (mask / np.sqrt(1 + (at / SOFT) ** 2))[..., None]
    unit_precision, device_precision = prior.unit_sd**-2.0, prior.device_sd**-2.0
    return _Linearised(
        unit=np.einsum("kni,knj->kij", own * weight, own) + np.diag(unit_precision),
        cross=np.einsum("kni,knj->kij", own * weight, common),
        device=np.einsum("kni,knj->ij", common * weight, common) + np.diag(device_precision),
        unit_gradient=np.einsum("kni,kn->ki", own * weight, at) + unit_precision * (units - prior.unit_mean),
        device_gradient=np.einsum("kni,kn->i", common * weight, at) + device_precision * (device - prior.device_mean),
    )


def _step(system: _Linearised, damping: float) -> tuple[Array, Array]:
    """Levenberg-Marquardt step; the units are eliminated first (Schur complement), so cost is linear in their number."""
    diagonal = np.einsum("kii->ki", system.unit)
    damped = system.unit + damping * diagonal[:, :, None] * np.eye(diagonal.shape[1])
    solved = np.linalg.solve(damped, np.concatenate([system.cross, system.unit_gradient[..., None]], axis=2))
    schur = system.device + damping * np.diag(np.diag(system.device))
    schur = schur - np.einsum("kij,kil->jl", system.cross, solved[..., :-1])
    right = system.device_gradient - np.einsum("kij,ki->j", system.cross, solved[..., -1])
    device_step = -np.linalg.solve(schur, right)
    unit_step = -(solved[..., -1] + solved[..., :-1] @ device_step)
    return np.clip(unit_step, -_LARGEST_STEP, _LARGEST_STEP), np.clip(device_step, -_LARGEST_STEP / 2, _LARGEST_STEP / 2)


def maximise_posterior(
    function: Residuals,
    mask: Array,
    units: Array,
    device: Array,
    prior: Prior,
    *,
    iterations: int = 40,
    tolerance: float = 1e-5,
) -> Solution:
    """Levenberg-Marquardt on units and device together, with the prior as given.

    Args:
        function: residuals in standard deviations, shape (units, points), of unit and device parameters.
        mask: 1 where a point was measured, else 0; shape (units, points).
        units: start, shape (units, n).
        device: start, shape (m,).
        prior: the priors.
        iterations: at most so many steps.
        tolerance: stop when the objective falls by less than this fraction.

    Returns:
        The solution.
    """
    damping = 1e-2
    residuals = function(units, device)
    objective = _objective(residuals, mask, units, device, prior)
    system = _linearise(function, residuals, mask, units, device, prior)
    for _ in range(iterations):
        for _ in range(8):
            unit_step, device_step = _step(system, damping)
            tried = function(units + unit_step, device + device_step)
            found = _objective(tried, mask, units + unit_step, device + device_step, prior)
            if found < objective:
                break
            damping *= 5
        else:
            break
        gained, objective, residuals = objective - found, found, tried
        units, device, damping = units + unit_step, device + device_step, max(damping / 4, 1e-8)
        system = _linearise(function, residuals, mask, units, device, prior)
        if gained < tolerance * objective:
            break
    return Solution(units, device, prior, np.asarray(np.linalg.inv(system.unit), dtype=np.float64), objective)


def fit_units(
    function: Residuals, mask: Array, starts: Sequence[Array], device: Array, prior: Prior, *, iterations: int = 40
) -> Solution:
    """Fit every unit by itself to a known device, from several starts; the best end of each unit is kept.

    Args:
        function: residuals in standard deviations, shape (units, points), of unit and device parameters.
        mask: 1 where a point was measured, else 0; shape (units, points).
        starts: of the units, each (units, n).
        device: parameters of the device.
        prior: the population.
        iterations: at most so many steps for each start.

    Returns:
        The solution.
    """
    ends = [_descend(function, mask, start, device, prior, iterations) for start in starts]
    objectives = np.stack([objective for _, objective in ends])
    units = np.stack([end for end, _ in ends])[objectives.argmin(axis=0), np.arange(len(mask))]
    residuals = function(units, device)
    system = _linearise(function, residuals, mask, units, device, prior)
    objective = _objective(residuals, mask, units, device, prior)
    return Solution(units, device, prior, np.asarray(np.linalg.inv(system.unit), dtype=np.float64), objective)


def _descend(
    function: Residuals, mask: Array, units: Array, device: Array, prior: Prior, iterations: int
) -> tuple[Array, Array]:
    """Levenberg-Marquardt with a damping of its own for each unit; returns the units and their objectives."""
    damping = np.full(len(units), 1e-2)
    residuals = function(units, device)
    objectives = _unit_objectives(residuals, mask, units, prior)
    identity = np.eye(units.shape[1])
    for _ in range(iterations):
        system = _linearise(function, residuals, mask, units, device, prior)
        diagonal = np.einsum("kii->ki", system.unit)
        damped = system.unit + damping[:, None, None] * diagonal[:, :, None] * identity
        step = -np.linalg.solve(damped, system.unit_gradient[..., None])[..., 0]
        tried = units + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        tried_residuals = function(tried, device)
        found = _unit_objectives(tried_residuals, mask, tried, prior)
        better = found < objectives
        finished = np.all(np.abs(found - objectives) < 1e-5 * objectives)
        units = np.where(better[:, None], tried, units)
        residuals = np.where(better[:, None], tried_residuals, residuals)
        objectives = np.where(better, found, objectives)
        damping = np.where(better, np.maximum(damping / 4, 1e-8), np.minimum(damping * 5, 1e8))
        if finished:
            break
    return units, objectives


def learn_population(
    function: Residuals,
    mask: Array,
    starts: Sequence[Array],
    devices: Sequence[Array],
    prior: Prior,
    *,
    rounds: int = 6,
) -> Solution:
    """Alternate between the fit and the population's mean and spread of the unit parameters (EM, Laplace posteriors).

    Args:
        function: residuals in standard deviations, shape (units, points), of unit and device parameters.
        mask: 1 where a point was measured, else 0; shape (units, points).
        starts: of the units, each (units, n); the first is used for the joint fit, the others to leave local minima.
        devices: starts of the device parameters; the one with the best first fit is kept.
        prior: the priors to begin with.
        rounds: how many fits.

    Returns:
        The solution, its prior the learnt population.
    """
    first = (maximise_posterior(function, mask, starts[0], device, prior) for device in devices)
    solution = min(first, key=lambda found: found.objective)
    for _ in range(rounds - 1):
        mean = solution.units.mean(axis=0)
        spread = ((solution.units - mean) ** 2).mean(axis=0)
        spread = spread + np.einsum("kii->ki", solution.covariance).mean(axis=0)
        learnt = replace(prior, unit_mean=mean, unit_sd=np.clip(np.sqrt(spread), *_SD_RANGE))
        best = fit_units(function, mask, [solution.units, *starts[1:]], solution.device, learnt, iterations=15)
        solution = maximise_posterior(function, mask, best.units, solution.device, learnt)
    return solution
