"""When a change takes effect, from iterations made by hand."""

import numpy as np
import pytest

from wastenot.devices.tracer import Trace
from wastenot.kernels.latency.arrivals import arrival, filtered, levels_of, signal, width_for

ITERATION_S = 50e-6


def iterations(levels, noise=0.002, seed=0):
    """Bounds and signal of iterations as long as each other."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.full(count, level) for count, level in levels])
    return np.arange(len(values) + 1) * ITERATION_S, values * (1.0 + noise * rng.standard_normal(len(values)))


def steady(*values, noise=0.002):
    return levels_of({value: [iterations([(2000, value)], noise, run)[1] for run in range(3)] for value in values})


def found(bounds, seen, levels, start, target, asked_s=0.01):
    width = width_for(levels[start], levels[target])
    return arrival(bounds, filtered(seen, width), asked_s, bounds[-1], levels[start], levels[target], width)


@pytest.mark.parametrize(("start", "target"), [(1000.0, 1500.0), (1500.0, 1000.0), (1000.0, 1020.0)])
def test_a_step_is_found_to_the_iteration(start, target):
    levels = steady(start, target)
    bounds, seen = iterations([(600, start), (1400, target)])
    assert found(bounds, seen, levels, start, target).seconds == pytest.approx(0.02, abs=2 * ITERATION_S)


def test_a_step_between_close_levels_takes_a_wider_median():
    levels = steady(1000.0, 1010.0, noise=0.003)
    assert width_for(levels[1000.0], levels[1010.0]) > 5
    bounds, seen = iterations([(800, 1000.0), (2400, 1010.0)], noise=0.003)
    assert found(bounds, seen, levels, 1000.0, 1010.0).seconds == pytest.approx(0.03, abs=1e-3)


def test_levels_that_overlap_are_not_told_apart():
    levels = steady(1000.0, 1000.5)
    assert width_for(levels[1000.0], levels[1000.5]) is None
    drifting = levels_of({value: [np.full(500, value * factor) for factor in (1.0, 1.01, 0.99)] for value in (100.0, 102.0)})
    assert width_for(drifting[100.0], drifting[102.0]) is None  # they differ as much from run to run


def test_steps_on_the_way_are_not_the_end():
    levels = steady(1000.0, 2000.0)
    bounds, seen = iterations([(400, 1000.0), (200, 1400.0), (200, 1800.0), (1600, 2000.0)])
    assert found(bounds, seen, levels, 1000.0, 2000.0).seconds == pytest.approx(0.03, abs=2 * ITERATION_S)


def test_an_overshoot_is_not_the_end_either():
    levels = steady(1000.0, 2000.0)
    bounds, seen = iterations([(400, 1000.0), (100, 2000.0), (300, 2300.0), (1600, 2000.0)])
    assert found(bounds, seen, levels, 1000.0, 2000.0).seconds == pytest.approx(0.03, abs=2 * ITERATION_S)


def test_interrupted_iterations_change_nothing():
    levels = steady(1000.0, 2000.0)
    bounds, seen = iterations([(400, 1000.0), (1600, 2000.0)])
    for place in (300, 402, 700, 1200, 1201, 1900):
        seen[place] = 200.0
    assert found(bounds, seen, levels, 1000.0, 2000.0).seconds == pytest.approx(0.01, abs=2 * ITERATION_S)


def test_what_was_not_reached_or_not_in_effect_is_said_so():
    levels = steady(1000.0, 2000.0)
    bounds, seen = iterations([(2000, 1000.0)])
    never = found(bounds, seen, levels, 1000.0, 2000.0)
    assert (never.seconds, never.reason) == (None, "reached")
    bounds, seen = iterations([(2000, 2000.0)])
    assert found(bounds, seen, levels, 1000.0, 2000.0).reason == "start"


def test_a_level_that_drifts_is_taken_where_it_settles():
    levels = steady(1000.0, 2000.0)
    bounds, seen = iterations([(400, 1000.0), (1600, 2150.0)])  # a power limit lets a warmer chip run otherwise
    assert found(bounds, seen, levels, 1000.0, 2000.0).seconds == pytest.approx(0.01, abs=2 * ITERATION_S)


def test_a_pause_before_the_change_counts_to_its_end():
    levels = steady(1000.0, 2000.0)
    bounds, seen = iterations([(400, 1000.0), (1600, 2000.0)])
    bounds[401:] += 3e-3
    bounds[400] += 3e-3  # the iteration that the pause falls into ends where the change takes effect
    assert found(bounds, seen, levels, 1000.0, 2000.0).seconds == pytest.approx(0.013, abs=2 * ITERATION_S)


def test_the_signal_is_the_core_clock_or_else_the_speed():
    trace = Trace(np.array([0.0, 0.5, 1.5]), np.array([1000.0, 900.0]), 1e-6)
    assert signal(trace, "core").tolist() == [1000.0, 900.0]
    assert signal(trace, "memory").tolist() == signal(trace, "power_limit").tolist() == [2.0, 1.0]
