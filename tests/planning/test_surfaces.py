"""The algebra of surfaces over clocks, against what it abbreviates."""

from unittest import mock

import numpy as np
import pytest

from wastenot.planning.noise import hyperparameters, surface
from wastenot.planning.noise.shapes import ShapeTable


@pytest.mark.parametrize("held", [True, False])
def test_combinations_that_are_left_out_in_blocks_are_unlikely(rng, held):
    clocks = np.log(np.linspace(0.3, 1.0, 9))
    core, memory = (axis.ravel() for axis in np.meshgrid(clocks, np.log([0.2, 0.6, 1.0]), indexing="ij"))
    table = ShapeTable(core, memory, held)
    times = table._times[rng.choice(len(table._times), 20)]
    log_time = times + 0.05 * rng.standard_normal(times.shape)
    centred = log_time - log_time.mean(axis=1, keepdims=True)
    squares = ((centred[:, None] - table._times) ** 2).sum(axis=2)
    least = squares.min(axis=1)
    np.testing.assert_allclose(table.least_misfits(log_time), least, rtol=1e-9)
    kernel, combination, _ = table._likely(centred, 0.01)
    assert set(zip(kernel, combination, strict=True)) == set(zip(*np.nonzero(squares <= least[:, None] + 0.02), strict=True))


def failing_once(function):
    """The function, whose first call finds no factor."""
    calls = iter([np.linalg.LinAlgError])

    def failing(matrix):
        if (error := next(calls, None)) is not None:
            raise error
        return function(matrix)

    return failing


@pytest.mark.parametrize("failing", [False, True])
def test_whitening_roots_are_roots_of_the_inverse(rng, failing):
    factor = rng.standard_normal((4, 30, 40))
    covariances = factor @ factor.transpose(0, 2, 1) / 40 + 0.1 * np.eye(30)
    cholesky = failing_once(np.linalg.cholesky) if failing else np.linalg.cholesky
    with mock.patch.object(np.linalg, "cholesky", cholesky):
        root = surface._whitening_roots(covariances)
    np.testing.assert_allclose(root.transpose(0, 2, 1) @ root, np.linalg.inv(covariances), atol=1e-12)


@pytest.mark.parametrize("failing", [False, True])
def test_a_factor_holds_the_whole_likelihood(rng, failing):
    rows, precision = rng.standard_normal((5, 8, 30)), np.diag(rng.uniform(0.1, 2.0, 7))
    covariances = np.eye(30) + rows[:, :-1].transpose(0, 2, 1) @ np.linalg.inv(precision) @ rows[:, :-1]
    wanted = [
        0.5 * (row[-1] @ np.linalg.solve(covariance, row[-1]) + np.linalg.slogdet(covariance)[1])
        for row, covariance in zip(rows, covariances, strict=True)
    ]
    cholesky = failing_once(np.linalg.cholesky) if failing else np.linalg.cholesky
    with mock.patch.object(np.linalg, "cholesky", cholesky):
        np.testing.assert_allclose(hyperparameters._marginal(rows, precision), wanted, rtol=1e-10)
