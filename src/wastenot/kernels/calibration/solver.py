"""Maximum-a-posteriori fits of many kernels that share the parameters of one device.

Parameters are unconstrained (logarithms of positive quantities). The negative log-posterior, up to a factor of two, is a
soft-L1 loss of the residuals plus Gaussian priors. The prior of the kernel parameters (their mean and standard deviation
over the population of kernels) is learnt from the kernels themselves (empirical Bayes: EM with Laplace approximations), so
that a parameter which a kernel's few points do not determine falls back to the population's.

Why not ``scipy.optimize.least_squares``: a kernel's parameters touch no residual but its own, so the Jacobian has one small
block per kernel bordered by the device's columns. Eliminating the blocks makes a step linear in the number of kernels, and
fits to a known device run for all kernels and all starting points at once, each with a damping of its own, where SciPy would
be called once for each. In a trial SciPy's sparse and dense trust regions took longer for the joint fits alone than this
takes for everything, and their predictions of held-out points were slightly worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray

Residuals = Callable[[FloatArray, FloatArray], FloatArray]
"""Residuals in standard deviations, shape (..., kernels, points), of kernel parameters, shape (..., kernels, n), and of
device parameters, shape (m,)."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Gaussian prior: mean and standard deviation of the kernel parameters (the same for every kernel) and the device's."""

    kernel_mean: FloatArray
    kernel_sd: FloatArray
    device_mean: FloatArray
    device_sd: FloatArray


@dataclass(frozen=True, slots=True)
class PosteriorMode:
    """A fit.

    Attributes:
        kernels: parameters of each kernel, shape (kernels, n).
        device: parameters of the device, shape (m,).
        prior: the prior in force at the end.
        covariance: posterior covariance of each kernel's parameters given the device, shape (kernels, n, n).
        objective: twice the negative log-posterior reached, up to a constant.
    """

    kernels: FloatArray
    device: FloatArray
    prior: Prior
    covariance: FloatArray
    objective: float


_SOFT = 1.0  # residuals, in standard deviations, from which the loss turns from quadratic to linear
_DIFFERENCE = 1e-6
_LARGEST_STEP = 1.5
_SD_RANGE = (0.15, 3.0)
_TOLERANCE = 1e-5  # a fit ends when the objective falls by less than this fraction
_ITERATIONS = 40
_REFIT_ITERATIONS = 15
_ROUNDS = 6  # of fits and updates of the kernels' prior


@dataclass(frozen=True, slots=True)
class _Problem:
    """The residuals, which of them were measured (1, else 0), and the prior."""

    residuals: Residuals
    mask: FloatArray
    prior: Prior

    def kernel_objectives(self, residuals: FloatArray, kernels: FloatArray) -> FloatArray:
        """Each kernel's part of the objective, shape (..., kernels)."""
        loss = 2 * _SOFT**2 * (np.sqrt(1 + (residuals / _SOFT) ** 2) - 1)
        penalty = ((kernels - self.prior.kernel_mean) / self.prior.kernel_sd) ** 2
        return np.asarray((loss * self.mask).sum(axis=-1) + penalty.sum(axis=-1))

    def objective(self, residuals: FloatArray, kernels: FloatArray, device: FloatArray) -> float:
        """Of all kernels and the device together."""
        penalty = ((device - self.prior.device_mean) / self.prior.device_sd) ** 2
        return float(self.kernel_objectives(residuals, kernels).sum() + penalty.sum())

    def weights(self, residuals: FloatArray) -> FloatArray:
        """Of the residuals in the Gauss-Newton system, shape (..., kernels, points, 1)."""
        return np.asarray((self.mask / np.sqrt(1 + (residuals / _SOFT) ** 2))[..., None])

    def kernel_system(
        self, residuals: FloatArray, kernels: FloatArray, device: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Jacobian, Gauss-Newton matrix and gradient of each kernel: shapes (..., kernels, points, n), (…, n, n), (…, n)."""
        jacobian = np.empty((*residuals.shape, kernels.shape[-1]))
        for column in range(kernels.shape[-1]):
            moved = kernels.copy()
            moved[..., column] += _DIFFERENCE
            jacobian[..., column] = (self.residuals(moved, device) - residuals) / _DIFFERENCE
        precision = self.prior.kernel_sd**-2.0
        weighted = jacobian * self.weights(residuals)
        matrix = np.einsum("...ni,...nj->...ij", weighted, jacobian) + np.diag(precision)
        gradient = np.einsum("...ni,...n->...i", weighted, residuals) + precision * (kernels - self.prior.kernel_mean)
        return jacobian, matrix, gradient

    def device_jacobian(self, residuals: FloatArray, kernels: FloatArray, device: FloatArray) -> FloatArray:
        """With respect to the device's parameters, shape (kernels, points, m)."""
        jacobian = np.empty((*residuals.shape, len(device)))
        for column in range(len(device)):
            moved = device.copy()
            moved[column] += _DIFFERENCE
            jacobian[..., column] = (self.residuals(kernels, moved) - residuals) / _DIFFERENCE
        return jacobian


def fit_jointly(
    residuals: Residuals, mask: FloatArray, kernels: FloatArray, device: FloatArray, prior: Prior
) -> PosteriorMode:
    """Fit kernels and device together by Levenberg-Marquardt, under a given prior.

    Args:
        residuals: see :data:`Residuals`.
        mask: 1 where a point was measured, else 0; shape (kernels, points).
        kernels: starting point, shape (kernels, n).
        device: starting point, shape (m,).
        prior: the prior.
    """
    problem, damping = _Problem(residuals, mask, prior), 1e-2
    value = residuals(kernels, device)
    objective = problem.objective(value, kernels, device)
    for _ in range(_ITERATIONS):
        step = _joint_step(problem, value, kernels, device)
        for _ in range(8):
            kernel_step, device_step = step(damping)
            trial = residuals(kernels + kernel_step, device + device_step)
            trial_objective = problem.objective(trial, kernels + kernel_step, device + device_step)
            if trial_objective < objective:
                break
            damping *= 5
        else:
            break
        fallen, objective, value = objective - trial_objective, trial_objective, trial
        kernels, device, damping = kernels + kernel_step, device + device_step, max(damping / 4, 1e-8)
        if fallen < _TOLERANCE * objective:
            break
    return _mode(problem, value, kernels, device)


def _joint_step(
    problem: _Problem, residuals: FloatArray, kernels: FloatArray, device: FloatArray
) -> Callable[[float], tuple[FloatArray, FloatArray]]:
    """The damped step from here, as a function of the damping; kernels are eliminated first (Schur complement)."""
    own, matrix, gradient = problem.kernel_system(residuals, kernels, device)
    shared = problem.device_jacobian(residuals, kernels, device)
    weight, precision = problem.weights(residuals), problem.prior.device_sd**-2.0
    cross = np.einsum("kni,knj->kij", own * weight, shared)
    device_matrix = np.einsum("kni,knj->ij", shared * weight, shared) + np.diag(precision)
    device_gradient = np.einsum("kni,kn->i", shared * weight, residuals) + precision * (device - problem.prior.device_mean)

    def step(damping: float) -> tuple[FloatArray, FloatArray]:
        solved = np.linalg.solve(_damped(matrix, damping), np.concatenate([cross, gradient[..., None]], axis=2))
        schur = device_matrix + damping * np.diag(np.diag(device_matrix))
        schur = schur - np.einsum("kij,kil->jl", cross, solved[..., :-1])
        right = device_gradient - np.einsum("kij,ki->j", cross, solved[..., -1])
        device_step = -np.linalg.solve(schur, right)
        kernel_step = -(solved[..., -1] + solved[..., :-1] @ device_step)
        return (
            np.clip(kernel_step, -_LARGEST_STEP, _LARGEST_STEP),
            np.clip(device_step, -_LARGEST_STEP / 2, _LARGEST_STEP / 2),
        )

    return step


def _damped(matrix: FloatArray, damping: FloatArray | float) -> FloatArray:
    """Levenberg-Marquardt's matrices: the diagonals grow by a factor of 1 + damping."""
    diagonal = np.einsum("...ii->...i", matrix)
    added = np.asarray(damping)[..., None, None] * diagonal[..., :, None] * np.eye(diagonal.shape[-1])
    return np.asarray(matrix + added)


def _mode(problem: _Problem, residuals: FloatArray, kernels: FloatArray, device: FloatArray) -> PosteriorMode:
    _, matrix, _ = problem.kernel_system(residuals, kernels, device)
    covariance = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    return PosteriorMode(kernels, device, problem.prior, covariance, problem.objective(residuals, kernels, device))


def fit_kernels_to_device(
    residuals: Residuals,
    mask: FloatArray,
    starts: Sequence[FloatArray],
    device: FloatArray,
    prior: Prior,
    *,
    iterations: int = _ITERATIONS,
) -> PosteriorMode:
    """Fit every kernel by itself to a known device, from several starting points; keeps the best end of each kernel.

    Args:
        residuals: see :data:`Residuals`.
        mask: 1 where a point was measured, else 0; shape (kernels, points).
        starts: starting points, each of shape (kernels, n).
        device: parameters of the device.
        prior: the prior.
        iterations: most steps from each starting point.
    """
    problem = _Problem(residuals, mask, prior)
    ends, objectives = _descend(problem, np.stack(starts), device, iterations)
    kernels = ends[objectives.argmin(axis=0), np.arange(len(mask))]
    return _mode(problem, residuals(kernels, device), kernels, device)


def _descend(problem: _Problem, starts: FloatArray, device: FloatArray, iterations: int) -> tuple[FloatArray, FloatArray]:
    """Levenberg-Marquardt from all starting points at once, shape (starts, kernels, n), each kernel with its own damping.

    Returns:
        Where each ends, and its part of the objective, shape (starts, kernels).
    """
    ends, objectives = starts.copy(), np.empty(starts.shape[:-1])
    active = np.arange(len(starts))  # starting points from which some kernel still moves
    kernels, damping = starts, np.full(starts.shape[:-1], 1e-2)
    value = problem.residuals(kernels, device)
    objective = problem.kernel_objectives(value, kernels)
    for _ in range(iterations):
        _, matrix, gradient = problem.kernel_system(value, kernels, device)
        step = -np.linalg.solve(_damped(matrix, damping), gradient[..., None])[..., 0]
        trial = kernels + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        trial_value = problem.residuals(trial, device)
        trial_objective = problem.kernel_objectives(trial_value, trial)
        better = trial_objective < objective
        going: NDArray[np.bool_] = ~np.all(np.abs(trial_objective - objective) < _TOLERANCE * objective, axis=-1)
        kernels = np.where(better[..., None], trial, kernels)
        value = np.where(better[..., None], trial_value, value)
        objective = np.where(better, trial_objective, objective)
        damping = np.where(better, np.maximum(damping / 4, 1e-8), np.minimum(damping * 5, 1e8))
        ends[active], objectives[active] = kernels, objective
        if not going.any():
            break
        active, kernels, value = active[going], kernels[going], value[going]
        objective, damping = objective[going], damping[going]
    return ends, objectives


def learn_population(
    residuals: Residuals, mask: FloatArray, starts: Sequence[FloatArray], devices: Sequence[FloatArray], prior: Prior
) -> PosteriorMode:
    """Alternate between fits and updates of the kernels' prior, their mean and standard deviation (EM).

    Args:
        residuals: see :data:`Residuals`.
        mask: 1 where a point was measured, else 0; shape (kernels, points).
        starts: starting points of the kernels, each of shape (kernels, n); the first is that of the joint fit, the others
            serve to leave local minima.
        devices: starting points of the device; the one with the best first fit is kept.
        prior: the prior to begin with.

    Returns:
        The fit, whose prior is the population learnt.
    """
    first = (fit_jointly(residuals, mask, starts[0], device, prior) for device in devices)
    fit = min(first, key=lambda mode: mode.objective)
    for _ in range(_ROUNDS - 1):
        mean = fit.kernels.mean(axis=0)
        variance = ((fit.kernels - mean) ** 2).mean(axis=0)
        variance = variance + np.einsum("kii->ki", fit.covariance).mean(axis=0)
        learnt = replace(prior, kernel_mean=mean, kernel_sd=np.clip(np.sqrt(variance), *_SD_RANGE))
        best = fit_kernels_to_device(
            residuals, mask, [fit.kernels, *starts[1:]], fit.device, learnt, iterations=_REFIT_ITERATIONS
        )
        fit = fit_jointly(residuals, mask, best.kernels, fit.device, learnt)
    return fit
