"""A slice of a job's iterations: its time and power, and what becomes of it when the job pauses."""

import pytest

from wastenot.control.blocks import MOST_PAUSES
from wastenot.control.energy_edges import EnergyEdges
from wastenot.devices.open import open_device
from wastenot.jobs.run.slices import Slice


@pytest.fixture
def work():
    """A simulated card that idles, iterations of half a second, and what reads its energy."""
    device = open_device("sim:v100", seed=1)
    edges = EnergyEdges(device, device.time.now_s)

    def run(seconds):
        end_s = device.time.now_s() + seconds
        while device.time.now_s() < end_s - 1e-9:
            due_s = min(edges.due_s, end_s)
            device.time.sleep(max(due_s - device.time.now_s(), 1e-4))
            edges.act(device.time.now_s())
        return device.time.now_s()

    return device, Slice([edges]), run


def test_its_time_and_power_are_those_of_the_card(work):
    device, part, run = work
    part.begin(device.time.now_s())
    for _ in range(6):
        assert part.count(0.5, run(0.5), [0.5])
    part.end(device.time.now_s())
    assert not part.settled and part.power_w is None
    run(0.5)
    assert part.settled and part.mean_s == pytest.approx(0.5)
    assert part.power_w == pytest.approx(device.sensors.power_w(), rel=0.25)  # a reading is noisy
    assert 0.0 < part.power_error < 0.05


def test_it_begins_anew_after_a_pause_unless_pauses_are_how_the_job_runs(work):
    device, part, run = work
    part.begin(device.time.now_s())
    for _ in range(3):
        part.count(0.5, run(0.5), [0.5])
    assert not part.count(2.0, run(2.0), [0.5]) and part.times_s == []
    for _ in range(3):
        assert part.count(0.5, run(0.5), [0.5, 2.0, 0.5])
    part.begin(device.time.now_s())
    counted = [part.count(2.0, run(2.0), [0.5]) for _ in range(MOST_PAUSES)]
    assert counted == [False] * (MOST_PAUSES - 1) + [True]


def test_energy_that_is_never_known_is_none(work):
    device, part, run = work
    part.begin(device.time.now_s())
    part.count(0.5, run(0.5), [0.5])
    part.end(device.time.now_s())
    assert part.power_w is None and part.wait_ends_s > part.ended_s
