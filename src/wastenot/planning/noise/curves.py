"""The posterior of true costs where each kernel's rows are points of one curve, whose errors are known together.

Such curves were smoothed when they were estimated, and say how their errors correlate; nothing is shrunk here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.planning.costs import Costs
from wastenot.planning.natural import JointErrors
from wastenot.planning.noise.posteriors import Loadings, Posterior
from wastenot.planning.noise.shrinkage import Bootstrapped, CostModel
from wastenot.planning.noise.surface import ADDED_NOISE


@dataclass(frozen=True, slots=True, eq=False)
class _OfCurves:
    """Values with covariances over the rows of each kernel, of arrays of shape (rows, rows)."""

    costs: Costs
    value: FloatArray
    covariance: Sequence[FloatArray]

    def posterior(self, rows: IndexArray) -> Posterior:
        """Of some rows, ascending, each kernel's baseline among them."""
        variance = np.concatenate([np.diag(each) for each in self.covariance])
        with_baseline = np.concatenate([each[:, 0] for each in self.covariance])
        return Posterior(self.value[rows], variance[rows], with_baseline[rows], Loadings.of(np.zeros((len(rows), 0))))

    def level(self) -> FloatArray:
        """The measured values, shape (rows,)."""
        return self.value

    def with_bootstrap(self, draws: FloatArray) -> Bootstrapped:
        """The posterior of all rows, and its coupled bootstrap with standard normal draws, shape (rows, draws)."""
        added = np.empty_like(draws)
        for kernel, covariance in enumerate(self.covariance):
            own = slice(self.costs.start[kernel], self.costs.start[kernel + 1])
            size, along = np.linalg.eigh(covariance)
            added[own] = (along * np.sqrt(np.maximum(size, 0.0))) @ draws[own]
        posterior = self.posterior(np.arange(len(self.value)))
        return Bootstrapped(posterior, ADDED_NOISE * added, -added / ADDED_NOISE)


def model_of_curves(costs: Costs, errors: JointErrors) -> CostModel:
    """What curves say about the true costs.

    Args:
        costs: of each kernel at auto and at points of its curve.
        errors: of these rows.
    """
    log_time, power = np.log(costs.time_s), costs.energy_j / costs.time_s
    unit_w = float(np.exp(np.log(power).mean()))
    power = power / unit_w
    by_kernel = np.split(power, costs.start[1:-1])
    power_cov = [cov * np.outer(own, own) for cov, own in zip(errors.log_power, by_kernel, strict=True)]
    none = np.zeros((len(power), 0))
    return CostModel(
        costs=costs,
        known=True,
        log_time=_OfCurves(costs, log_time, errors.log_time),
        level=np.zeros(len(power)),
        power=_OfCurves(costs, power, power_cov),
        power_unit_w=unit_w,
        widened=1.0,
        correlation=0.0,
        time_errors=none,
        power_errors=none,
    )
