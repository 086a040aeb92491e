"""A stretch of a job's iterations: its time, energy and power."""

import pytest

from wastenot.control.blocks import Stretch
from wastenot.control.energy_edges import EnergyEdges
from wastenot.devices.open import open_device


@pytest.fixture
def work():
    """A simulated card that idles, what reads its energy, and what lets time pass."""
    device = open_device("sim:v100", seed=1)
    edges = EnergyEdges(device, device.time.now_s)

    def run(seconds):
        end_s = device.time.now_s() + seconds
        while device.time.now_s() < end_s - 1e-9:
            due_s = min(edges.due_s, end_s)
            device.time.sleep(max(due_s - device.time.now_s(), 1e-4))
            edges.act(device.time.now_s())

    return device, edges, run


def test_its_time_and_power_are_those_of_the_card(work):
    device, edges, run = work
    part = Stretch("block", 0, default=False, begin=[edges.add(device.time.now_s())])
    run(3.0)
    part.times_s += [0.5] * 6
    part.end = [edges.add(device.time.now_s())]
    assert not part.settled and part.power_w is None
    run(0.5)
    assert part.settled and part.mean_s == pytest.approx(0.5) and part.lasts_s == pytest.approx(3.0, rel=0.01)
    assert part.power_w == pytest.approx(device.sensors.power_w(), rel=0.25)  # a reading is noisy
    assert part.energy_j == pytest.approx(part.power_w * part.lasts_s)


def test_energy_that_is_never_known_is_none(work):
    device, edges, _ = work
    part = Stretch("block", 0, default=False, begin=[edges.add(device.time.now_s())], times_s=[0.5])
    part.end = [edges.add(device.time.now_s())]
    assert part.power_w is None
    for edge in (*part.begin, *part.end):
        edge.energy_j = float("nan")
    assert part.settled and part.power_w is None
