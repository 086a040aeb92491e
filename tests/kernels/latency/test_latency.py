"""Switching latency measured on simulated GPUs, whose truth is known."""

import json

import numpy as np
import pytest

from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import find_preset
from wastenot.kernels.latency.design import ERROR, design, estimate_s
from wastenot.kernels.latency.measure import look_ahead, measured_latency, resume_file

SEEDS_KEPT_ASIDE = (303, 404)  # no constant of the method was chosen by these


def with_switching(switching, preset="rtx-3080-ti", seed=0):
    return simulated_device(find_preset(preset), f"sim:{preset}", seed=seed, switching=switching)


def core_only(device, error=0.03, clocks=(600.0, 1200.0, 1800.0)):
    return design(device, kinds=("core",), core_mhz=clocks, error=error)


def assert_true(name, seed, kinds=None, error=ERROR):
    device, truth = open_device(f"sim:{name}", seed=seed), find_preset(name).switching
    planned = design(device, kinds=kinds, error=error)
    found = measured_latency(device, planned, seed=seed)
    for part in planned.parts:
        targets = found.of(part.what)
        assert [each.target for each in targets] == list(part.values)
        for each in targets:
            true_s = truth.latency_s(AUTO, part.setting(each.target))
            assert abs(each.seconds - true_s) <= max(4.0 * error * true_s, 2e-4), (part.what, each)
            assert each.error_s <= 1.01 * error * each.seconds and each.outliers <= 0.03 * each.switches
    assert found.switch_time.jitter == pytest.approx(truth.jitter, abs=0.03)
    assert device.engine.requested == AUTO


def test_core_clocks_within_5_percent_or_a_fifth_of_a_millisecond():
    assert_true("h200", SEEDS_KEPT_ASIDE[0], kinds=("core",))


@pytest.mark.slow
def test_core_clocks_memory_clocks_and_power_limits_within_5_percent_or_a_fifth_of_a_millisecond():
    assert_true("rtx-3080-ti", SEEDS_KEPT_ASIDE[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v100", "rtx-a4000", "mi300x"])
def test_all_that_other_gpus_switch_within_four_standard_errors_from_few_switches(name):
    assert_true(name, SEEDS_KEPT_ASIDE[1], error=0.03)


@pytest.mark.parametrize(
    "switching",
    [
        Switching.of(0.0005),
        Switching.of(0.005, 0.1),
        Switching(core_s=((600.0, 0.004), (1200.0, 0.4), (1800.0, 0.01)), jitter=0.05),  # a target far slower than others
    ],
)
def test_latencies_unlike_the_assumed_are_found_too(switching):
    device = with_switching(switching)
    planned = core_only(device)
    found = measured_latency(device, planned)
    for each in found.targets:
        true_s = switching.latency_s(AUTO, planned.parts[0].setting(each.target))
        assert abs(each.seconds - true_s) <= max(0.05 * true_s, 2e-4), each
        assert each.switches >= 12 and each.outliers <= 0.1 * each.switches


class Stuck(Switching):
    """A clock that is not reached for a quarter of an hour."""

    def latency_s(self, before, after):
        return 1e3 if after.core_mhz == 1200.0 and before.core_mhz == 600.0 else 0.01


def test_a_target_that_is_never_reached_is_given_up_and_said_to_be():
    device = with_switching(Stuck())
    device.clocks.request(AUTO)
    planned = core_only(device, 0.1, clocks=(600.0, 1200.0))
    with pytest.raises(ClocksRefusedError, match="no switch was seen"):
        measured_latency(device, planned)


def test_outliers_are_reported_apart():
    switching = Switching.of(0.02, 0.1).model_copy(update={"late_chance": 0.05, "late_factor": 10.0})
    device = with_switching(switching)
    found = measured_latency(device, core_only(device, 0.01))
    for each in found.targets:
        assert each.seconds == pytest.approx(0.02, rel=0.05)
        assert 0.01 <= each.outliers / each.switches <= 0.12
        assert each.longest_s > 0.05  # at least
        assert each.jitter == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("stall_s", [0.0, pytest.param(5e-4, marks=pytest.mark.slow), 4e-3])
def test_what_a_switch_costs_is_measured(stall_s):
    switching = Switching.of(0.02, 0.2, stall_s)
    device = with_switching(switching, seed=7)
    found = measured_latency(device, design(device, kinds=("core", "memory"), error=0.05))
    idle_w = device.engine.physics.idle_power_w(AUTO, device.engine.temperature_c)
    costs = {cost.what: cost for cost in found.costs}
    assert costs.keys() == {"core", "memory"}
    for cost in costs.values():
        assert cost.stall_s == pytest.approx(stall_s, abs=max(4.0 * cost.stall_error_s, 0.02 * stall_s))
        assert cost.stall_error_s < 5e-5
        assert cost.energy_j == pytest.approx(stall_s * idle_w, abs=max(4.0 * cost.energy_error_j, 0.1))
    for each in found.targets:  # a pause before the change is no error of the latency
        assert each.seconds == pytest.approx(0.02, rel=0.15)
    assert found.switch_time.stall_s == (pytest.approx(stall_s, rel=0.05) if stall_s else pytest.approx(0.0, abs=1e-4))


def test_values_that_look_the_same_are_said_to():
    device = open_device("sim:rtx-3080-ti", seed=1)
    found = measured_latency(device, design(device, kinds=("core",), core_mhz=(600.0, 1980.0, 2100.0), error=0.05))
    same = {(each.start, each.target) for each in found.indistinct}
    assert same == {(1980.0, 2100.0), (2100.0, 1980.0)}  # above the highest that the card reaches
    assert {each.target for each in found.targets} == {600.0, 1980.0, 2100.0}  # from elsewhere they are timed


def test_where_nothing_can_be_told_apart_it_says_so():
    device = open_device("sim:rtx-3080-ti", seed=1)
    planned = design(device, kinds=("core",), core_mhz=(1980.0, 2100.0))
    with pytest.raises(
        ClocksRefusedError, match=r"no switch was seen to take effect.*1980 and 2100 MHz; plans assume 30 ms"
    ):
        measured_latency(device, planned)
    assert device.engine.requested == AUTO


def test_the_time_limit_ends_it_with_the_error_that_it_has():
    device = open_device("sim:h200", seed=1)
    found = measured_latency(device, design(device, kinds=("core",), most_s=40.0))
    assert found.seconds < 80.0  # what was begun is ended
    assert all(each.error_s > 0.012 * each.seconds and each.switches >= 3 for each in found.targets)


class Interrupting:
    """Progress that ends the measurement on its way."""

    def __init__(self, after):
        self.left = after

    def begin(self, steps, done=0):
        pass

    def step(self, what):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def say(self, message):
        pass


def test_an_interrupted_measurement_leaves_default_clocks_and_is_resumed(tmp_path):
    partial = resume_file(tmp_path / "l.json")
    device = open_device("sim:rtx-3080-ti", seed=2)
    planned = core_only(device)
    with pytest.raises(KeyboardInterrupt):
        measured_latency(device, planned, resume=partial, progress=Interrupting(60))
    assert device.engine.requested == AUTO and partial.exists()
    ahead = look_ahead(device, planned, partial)
    assert ahead.found >= 60
    again = open_device("sim:rtx-3080-ti", seed=3)
    found = measured_latency(again, planned, resume=partial)
    assert sum(each.switches for each in found.targets) > ahead.found and not partial.exists()
    with pytest.raises(KeyboardInterrupt):
        measured_latency(device, planned, resume=partial, progress=Interrupting(60))
    with pytest.raises(BadInputError, match="another device or other values"):
        look_ahead(device, core_only(device, clocks=(600.0, 1200.0)), partial)


def test_the_time_announced_is_about_right():
    device = open_device("sim:rtx-3080-ti", seed=4)
    planned = core_only(device)
    ahead = look_ahead(device, planned, None)
    found = measured_latency(device, planned)
    assert ahead.device_s == pytest.approx(estimate_s(planned, ahead.assumed))
    assert 0.5 < found.seconds / ahead.device_s < 2.0


def test_what_cannot_be_measured_is_refused(tmp_path):
    device = open_device("sim:v100")
    with pytest.raises(BadInputError, match="memory clock: the device has only one"):
        design(device, kinds=("memory",))
    with pytest.raises(BadInputError, match=r"no such core clock; the nearest is 1297.5"):
        design(device, core_mhz=(1300.0,))
    with pytest.raises(BadInputError, match="only one was given"):
        design(device, kinds=("core",), core_mhz=(1380.0,))
    with pytest.raises(BadInputError, match="relative_error 2: must be between 0 and 1"):
        design(device, error=2.0)
    assert "memory clock: the device has only one" in design(device).left_out


def test_the_document_says_what_it_does_not_cover():
    device = open_device("sim:v100", seed=4)
    found = measured_latency(device, design(device, kinds=("core",), error=0.1))
    assert any("collectives" in line for line in found.not_covered)
    document = json.loads(found.to_json())
    assert document["origin"] == "simulated" and np.isfinite(document["clock_error_s"])
    assert found.clock_error_s < 1e-4 and found.iteration_s < 1e-3
