"""A GPU that does not keep the clock it was asked for is told of once; one that is slower, or switching, is not."""

import pytest

from testbed.scheduled_jobs import controller, gpu, programme, schedule
from wastenot.control.obeyed import Obeyed
from wastenot.core.setting import Setting
from wastenot.devices.protocol import ClockReading


def told(readings, each_s=0.5):
    obeyed = Obeyed()
    said = [obeyed.look(each_s * place, *reading) for place, reading in enumerate(readings)]
    return [text for text in said if text is not None]


def test_a_clock_that_stays_above_its_ceiling_is_told_once():
    (text,) = told([(1470.0, 1755.0)] * 300)
    assert "at most 1470 MHz" in text and "1755 MHz" in text and "does not keep it" in text
    assert len(told([(1470.0, 1755.0)] * 40 + [(None, 1980.0)] * 10 + [(1470.0, 1755.0)] * 200)) == 1


@pytest.mark.parametrize(
    "readings",
    [
        [(1470.0, 1470.0)] * 300,
        [(1470.0, 900.0)] * 300,  # a power limit holds it down
        [(1470.0, None)] * 300,
        [(None, 1980.0)] * 300,
        [(1470.0, 1755.0)] * 20,  # too short
        [(1470.0, 1480.0)] * 300,  # clocks have steps
        [(1470.0, 1755.0), (1755.0, 1755.0)] * 150,  # a schedule, read while it switches
        ([(1470.0, 1755.0)] * 30 + [(1470.0, 1465.0)]) * 10,
    ],
)
def test_what_is_no_disobedience_is_not_told(readings):
    assert told(readings) == []


@pytest.mark.parametrize("obeys", [True, False])
def test_a_job_under_a_plan_notes_it(monkeypatch, obeys):
    device = gpu("h200")
    iteration = programme()
    driven = controller(device, schedule(device, iteration))
    monkeypatch.setattr(driven, "_target_of", lambda index: Setting(1200.0))
    high = 1200.0 if obeys else 1900.0
    monkeypatch.setattr(driven.gpus[0].sensors, "clocks", lambda: ClockReading(high, 3201.0), raising=False)
    for moment in range(100):
        driven._read_sensors(0.5 * moment)
    notes = [event.text for event in driven.status().events if event.kind == "note"]
    assert notes == [] if obeys else (len(notes) == 1 and "1200 MHz" in notes[0])
