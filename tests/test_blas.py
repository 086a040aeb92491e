"""Limits of BLAS threads end where they should."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from testbed.small_sweeps import random_sweep
from wastenot.core.blas import single_threaded
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def two_threads():
    """The process as a user set it, on however few cores the tests run."""
    with threadpool_limits(limits=2, user_api="blas"):
        assert blas_threads() and set(blas_threads()) == {2}
        yield


def test_the_limit_holds_inside_only():
    with single_threaded():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_it_ends_with_an_error():
    @single_threaded()
    def fail():
        assert set(blas_threads()) == {1}
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fail()
        assert set(blas_threads()) == {2}


def test_a_fit_runs_in_one_thread_and_leaves_the_process_as_it_was(monkeypatch):
    during = []
    solve = np.linalg.cholesky

    def watched(*arguments, **options):
        during.append(set(blas_threads()))
        return solve(*arguments, **options)

    monkeypatch.setattr(np.linalg, "cholesky", watched)
    planner = Planner(random_sweep(np.random.default_rng(0), 6, 12))
    assert planner.plan(Objective()).expected is not None
    assert during and set.union(*during) == {1}
    assert set(blas_threads()) == {2}
