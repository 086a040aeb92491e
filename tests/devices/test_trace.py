"""Executions one by one as a simulated GPU runs them."""

import numpy as np
import pytest

from wastenot.devices.simulated.dynamics import Dynamics
from wastenot.devices.simulated.trace import Parts, Steady, trace

WARM_UP = (0.4, 0.2, 0.1)
KERNELS = (Steady("gemm", 1e-3, Parts(100.0, 300.0, 100.0)), Steady("gemv", 2e-4, Parts(100.0, 80.0, 200.0)))
IDLE = Parts(100.0, 0.0, 0.0)


@pytest.mark.parametrize("order", [(0,), (0, 0, 0, 0, 0, 1), (1, 0, 1, 0, 1), (0, 1) * 20])
def test_warm_up_is_counted_from_rest_over_all_kernels(order):
    """FinGraV §IV-A: "warm-up executions from GPU idle state"; a kernel that comes later pays none of its own."""
    told = trace(Dynamics(warm_up=WARM_UP), KERNELS, order, IDLE)
    slower = (told.end_s - told.begin_s) / np.array([kernel.time_s for kernel in KERNELS])[told.kernel] - 1.0
    expected = [*WARM_UP, *[0.0] * len(order)][: len(order)]
    assert slower.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("time_s", [2e-6, 2e-5, 1e-3])
def test_mean_power_in_steady_state_is_that_of_the_kernel_however_short(time_s):
    kernel = Steady("gemm", time_s, Parts(100.0, 300.0, 100.0))
    told = trace(Dynamics(), [kernel], (0,) * round(0.04 / time_s), IDLE)
    mean_w = told.history.mean_w(told.begin_s[[-10]], told.end_s[[-1]], IDLE.as_array())
    assert mean_w.ravel().tolist() == pytest.approx(kernel.parts.as_array().tolist(), rel=1e-6)
