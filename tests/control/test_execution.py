"""Requests ahead of time, by markers that come, come late, or never."""

import pytest

from testbed.scheduled_jobs import gpu, programme, schedule
from wastenot.control.energy_edges import EnergyEdges
from wastenot.control.execution import Execution
from wastenot.core.setting import AUTO
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.preset import find_preset

PROGRAMME = programme()


class Recorded:
    """A device that keeps what was requested of it."""

    def __init__(self):
        self.requests = []
        self.clocks = self

    def request(self, setting):
        self.requests.append(setting)


@pytest.fixture
def plan():
    return schedule(gpu("rtx-3080-ti"), PROGRAMME)


def iteration(execution, plan, number, begins_s, pace=1.0, without=()):
    """Run an iteration; returns the moments of requests."""
    rung = plan.rungs[0]
    moments = {"iteration": 0.0, "backward": rung.segments[0].time_s}
    asked = []
    for name, after_s in moments.items():
        at_s = begins_s + pace * after_s
        while execution.due_s < at_s:
            due_s = execution.due_s
            execution.act(due_s)
            asked.append(due_s)
        if name not in without:
            execution.mark(execution.place(name), number, at_s)
    return begins_s + pace * rung.time_s, asked


def test_requests_come_as_early_as_they_should_at_the_pace_that_was_learned(plan):
    execution = Execution(Recorded(), plan)
    execution.mark(0, 0, 0.0)
    execution.begin(0, 0.0)
    execution.act(0.0)
    begins_s = 0.0
    for number in range(30):
        backward_s = begins_s + 1.1 * plan.rungs[0].segments[0].time_s
        begins_s, asked = iteration(execution, plan, number, begins_s, pace=1.1)
    assert [backward_s - moment for moment in asked if moment > backward_s - 0.1] == pytest.approx([0.015], abs=1e-3)
    assert execution.device.requests[-2:] == [plan.rungs[0].segments[0].setting, plan.rungs[0].segments[1].setting]


def test_a_setting_that_goes_on_into_the_next_iteration_does_not_hold_up_what_follows(plan):
    rung = plan.rungs[0]
    forward, backward = rung.segments
    first = backward.model_copy(update={"begins": "iteration", "early_s": 0.0, "time_s": 0.005})
    second = forward.model_copy(update={"offset_s": 0.005, "time_s": forward.time_s - 0.005})
    rung = rung.model_copy(update={"segments": (first, second, backward)})
    plan = plan.model_copy(update={"rungs": (rung, *plan.rungs[1:])})
    execution = Execution(Recorded(), plan)
    execution.mark(0, 0, 0.0)
    execution.begin(0, 0.0)
    execution.act(0.0)
    now_s, begins_s, asked = 0.0, 0.0, []
    for number in range(6):
        for name, at_s in (("iteration", begins_s), ("backward", begins_s + forward.time_s)):
            while execution.due_s < at_s:
                now_s = max(now_s, execution.due_s)
                execution.act(now_s)
                asked.append((now_s, execution.target))
            now_s = at_s
            execution.mark(execution.place(name), number, at_s)
        last_s, begins_s = begins_s, begins_s + rung.time_s
    early_s = [last_s + second.offset_s - moment for moment, target in asked if target == second.setting]
    assert early_s[-1] == pytest.approx(second.early_s, abs=1e-4)


def test_nothing_is_requested_beyond_a_marker_that_does_not_come(plan):
    execution = Execution(Recorded(), plan)
    execution.mark(0, 0, 0.0)
    execution.begin(0, 0.0)
    execution.act(0.0)
    begins_s = 0.0
    for number in range(5):
        begins_s, _ = iteration(execution, plan, number, begins_s)
    before = len(execution.device.requests)
    while execution.due_s < begins_s + 100.0:
        execution.act(execution.due_s)
    assert len(execution.device.requests) - before <= 1


@pytest.mark.parametrize("first", [0, 500])
def test_iterations_that_are_counted_anew_are_carried_on_with(plan, first):
    execution = Execution(Recorded(), plan)
    execution.mark(0, 100, 0.0)
    execution.begin(0, 0.0)
    execution.act(0.0)
    begins_s = 0.0
    for number in range(100, 105):
        begins_s, _ = iteration(execution, plan, number, begins_s)
    for number in range(first, first + 5):
        begins_s, asked = iteration(execution, plan, number, begins_s)
        assert asked, number


def test_clocks_are_given_back(plan):
    execution = Execution(Recorded(), plan)
    execution.mark(0, 0, 0.0)
    execution.begin(0, 0.0)
    execution.act(0.0)
    execution.release(1.0)
    assert execution.device.requests[-1] == AUTO
    assert execution.due_s == float("inf")


@pytest.mark.parametrize("preset", ["rtx-3080-ti", "h200", "mi300x", "v100"])
def test_energy_at_moments_that_have_passed(preset):
    card = find_preset(preset)
    counter = card.sensors.energy.model_copy(update={"noise_w": 0.0})
    card = card.model_copy(update={"sensors": card.sensors.model_copy(update={"energy": counter})})
    device = simulated_device(card, f"sim:{preset}")
    edges = EnergyEdges(device, device.time.now_s)
    found, true_j = [], []
    for _ in range(12):
        device.time.sleep(0.737)
        now_s = device.time.now_s()
        true_j.append(device.engine.energy_at(now_s))
        found.append(edges.add(now_s))
        while edges.due_s < now_s + 0.5:
            device.time.sleep(max(edges.due_s - device.time.now_s(), 0.0))
            edges.act(device.time.now_s())
    used = [edge.energy_j - found[0].energy_j for edge in found]
    assert used == pytest.approx([each - true_j[0] for each in true_j], abs=0.008 * true_j[-1] / device.time.now_s())
