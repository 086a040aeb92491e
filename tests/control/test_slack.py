"""GPUs of one job that wait for the slowest: their clocks are lowered, and no iteration takes longer."""

import math
import random
from itertools import pairwise

import pytest

from testbed.changed_jobs import Change, ChangedCourse
from testbed.scheduled_jobs import SUBJECT, gpu, programme, schedule
from wastenot.control.controller import Controller
from wastenot.control.execution import Execution
from wastenot.control.marker import Marker
from wastenot.control.simulated_job import run_job
from wastenot.control.slack import Slack
from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import AUTO
from wastenot.devices.simulated.course import STEADY

PROGRAMME = programme()


class Job:
    """GPUs that end iterations together; how long each takes until its backward pass goes with its clock to a power."""

    def __init__(self, own_s, noise=0.002, follows=0.8):
        self.own_s, self.noise, self.follows = list(own_s), noise, follows
        self.slack, self.lowered = Slack(len(own_s)), [1.0] * len(own_s)
        self.rng, self.iteration, self.now_s = random.Random(5), 0, 0.0

    def run(self, iterations):
        for _ in range(iterations):
            self.slack.counted = self.iteration
            took_s = [
                own_s * math.exp(self.rng.gauss(0.0, self.noise)) / fraction**self.follows
                for own_s, fraction in zip(self.own_s, self.lowered, strict=True)
            ]
            for index in range(len(took_s)):
                self.slack.mark(Marker("iteration", self.iteration, self.now_s, index))
            for index, seconds in enumerate(took_s):
                self.slack.mark(Marker("backward", self.iteration, self.now_s + seconds, index))
            self.now_s += 3.0 * max(took_s)
            self.iteration += 1
            wanted = self.slack.decide(3.0 * max(took_s), self.lowered)
            if wanted is not None and wanted != self.lowered:
                self.lowered = wanted
                self.slack.restart()

    def present_s(self):
        return [own / part**self.follows for own, part in zip(self.own_s, self.lowered, strict=True)]


def test_those_that_wait_end_just_before_the_slowest():
    job = Job([1.0, 0.96, 1.03, 0.97])
    job.run(60)
    present_s = job.present_s()
    assert job.lowered[2] == 1.0 and max(present_s) == present_s[2]
    assert all(0.98 < each / 1.03 < 0.999 for index, each in enumerate(present_s) if index != 2)


def test_gpus_that_are_alike_are_left_alone():
    job = Job([1.0, 1.001, 0.999, 1.0])
    job.run(200)
    assert job.lowered == [1.0] * 4


def test_the_noisier_a_gpu_the_more_it_stays_ahead():
    left = []
    for noise in (0.002, 0.01):
        job = Job([0.92, 1.0], noise=noise)
        job.run(100)
        left.append(1.0 - job.present_s()[0])
    assert 0.0 < left[0] < 0.01 < left[1]


def test_a_lowered_gpu_that_heats_up_is_the_slowest_no_longer_than_a_few_iterations():
    job = Job([0.95, 1.0, 0.97])
    job.run(60)
    assert job.lowered[0] < 0.97
    job.own_s[0] = 1.04
    job.run(10)
    assert job.lowered[0] == 1.0
    job.run(60)
    assert job.lowered[1] < 0.98 and job.present_s()[1] < 1.04


def test_where_iterations_become_longer_clocks_are_raised_for_a_while_which_doubles():
    job = Job([0.95, 1.0])
    job.run(9)
    assert job.lowered[0] < 1.0
    assert job.slack.given_up() == [1.0, 1.0]
    job.lowered = [1.0, 1.0]
    job.slack.restart()
    job.run(45)
    assert job.lowered == [1.0, 1.0]
    job.run(10)
    assert job.lowered[0] < 1.0
    job.slack.given_up()
    job.lowered = [1.0, 1.0]
    job.slack.restart()
    job.run(95)
    assert job.lowered == [1.0, 1.0]
    job.run(10)
    assert job.lowered[0] < 1.0


def test_a_gpu_that_marks_no_backward_pass_changes_nothing():
    slack = Slack(2)
    for iteration in range(40):
        slack.counted = iteration
        for index in range(2):
            slack.mark(Marker("iteration", iteration, 1.0 * iteration, index))
        slack.mark(Marker("backward", iteration, iteration + 0.5, 0))
        assert slack.decide(1.0, [1.0, 1.0]) is None


def test_a_simulated_node_saves_and_takes_as_long():
    ran = []

    class Followed(Controller):
        def mark(self, marker):
            super().mark(marker)
            if marker.gpu == 0 and marker.name == "iteration" and self._state == "running" and self._at_plan:
                ran.append((marker.iteration, tuple(execution.lowered for execution in self._executions)))

    def course(*arguments, seed, spread, **named):
        return ChangedCourse(*arguments, seed=seed, spread=STEADY, changes=[Change(work=(0.96, 1.04)[seed[1]])], **named)

    devices = [gpu("h200", seed=index) for index in range(2)]
    plan = schedule(devices[0], PROGRAMME)
    plan = plan.model_copy(update={"markers": tuple(marker for marker in plan.markers if ":" not in marker.name)})
    summary, jobs = run_job(Followed(plan, devices, SUBJECT), PROGRAMME, 50, course=course)
    assert all(device.engine.requested == AUTO and device.engine.advance_all is None for device in devices)
    lowest = ran[-1][1]
    assert 0.88 < lowest[0] < 0.95 and lowest[1] == 1.0
    before, after = ([k for k, lowered in ran if lowered == which and k < 49] for which in ((1.0, 1.0), lowest))

    def mean(iterations, name):
        return [sum(getattr(job.ran[k], name) for k in iterations) / len(iterations) for job in jobs]

    assert mean(after, "time_s") == pytest.approx(mean(before, "time_s"), rel=2e-3)
    saved = 1.0 - mean(after, "energy_j")[0] / mean(before, "energy_j")[0]
    assert 0.03 < saved < 0.1
    notes = [event.text for event in summary.status.events if event.kind == "note"]
    assert notes and "GPU 0 by" in notes[0] and "GPU 1" not in notes[0]


class TestExecution:
    """Clocks below a rung's."""

    @pytest.fixture
    def device(self):
        return gpu("h200")

    @pytest.fixture
    def execution(self, device):
        made = Execution(device, schedule(device, PROGRAMME))
        made.mark(0, 0, 0.0)
        return made

    def test_the_next_clock_above_is_requested_and_the_default_clocks_stay(self, device, execution):
        planned = execution._planned[0][0].setting.core_mhz
        assert execution.lower(0.93) == execution.lowered and 0.93 <= execution.lowered < 0.95
        execution.begin(0, 0.0)
        execution.act(0.0)
        asked = device.engine.requested.core_mhz
        assert asked % 15 == 0 and 0.93 * planned <= asked < 0.93 * planned + 15
        execution.begin(3, 1.0)
        execution.act(1.0)
        assert device.engine.requested == AUTO

    def test_where_lower_clocks_are_refused_the_plans_are_requested(self, device, execution):
        lowest = min(step.setting.core_mhz for step in execution._planned[0])
        request = device.clocks.request

        def refused(setting):
            if setting.core_mhz is not None and setting.core_mhz < lowest:
                raise ClocksRefusedError("the policy allows no lower clocks")
            request(setting)

        device.clocks.request = refused
        execution.lower(0.9)
        execution.begin(0, 0.0)
        execution.act(0.0)
        assert device.engine.requested.core_mhz == lowest and execution.lowered == 1.0
        assert execution.lower(0.9) == 1.0


def test_a_gpu_waits_where_the_others_have_not_come():
    """At an all-reduce for all others; where parameters are gathered ahead, it is a layer ahead at most."""
    ahead = {name: 1 for name, _ in PROGRAMME.markers if name.startswith("forward:")}
    devices = [gpu("h200", seed=index) for index in range(2)]
    seen = []

    class Heard(Controller):
        def mark(self, marker):
            seen.append(marker)
            super().mark(marker)

    def slow(*arguments, seed, spread, **named):
        return ChangedCourse(*arguments, seed=seed, spread=STEADY, changes=[Change(work=(1.0, 1.5)[seed[1]])], **named)

    plan = schedule(devices[0], PROGRAMME)
    run_job(Heard(plan, devices, SUBJECT), PROGRAMME, 3, course=slow, meets=ahead | {"iteration": 0})
    begins = {(one.name, one.iteration, one.gpu): one.reached_s for one in seen}
    layers = sorted(ahead, key=lambda name: int(name.split(":")[1]))
    assert begins["iteration", 2, 0] == pytest.approx(begins["iteration", 2, 1], abs=1e-4)
    for before, after in pairwise(layers[2:]):
        assert begins[before, 1, 0] < begins[before, 1, 1]
        assert begins[after, 1, 0] >= begins[before, 1, 1] - 1e-4
