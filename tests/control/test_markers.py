"""Markers on the host, and on a stand-in for CUDA whose events happen when a test says so."""

import os
import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from wastenot.control.markers import POLL_S, Markers, _Pace


def wait_until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.001)


class Event:
    """An event of a GPU that a test drives."""

    made: ClassVar[list] = []

    def __init__(self):
        self.happened, self.asked = threading.Event(), 0
        Event.made.append(self)

    def record(self):
        self.happened.clear()

    def query(self):
        self.asked += 1
        return self.happened.is_set()


class Tensor:
    def __init__(self, values, start=0):
        self.values, self.start = values, start

    def __getitem__(self, slot):
        return Tensor(self.values, slot)

    def add_(self, one):
        graph.append(lambda: self.values.__setitem__(self.start, self.values[self.start] + one))

    def copy_(self, other, non_blocking):
        assert non_blocking
        graph.append(lambda: self.values.__setitem__(self.start, other.values[other.start]))

    def numpy(self):
        return self.values


graph = []


@pytest.fixture
def torch(monkeypatch):
    Event.made = []
    graph.clear()
    cuda = SimpleNamespace(Event=Event, capturing=False, current_device=lambda: 0)
    cuda.is_current_stream_capturing = lambda: cuda.capturing
    return SimpleNamespace(cuda=cuda, int64=None, zeros=lambda size, **_: Tensor([0] * size))


def test_a_program_without_a_gpu_reaches_its_markers_itself():
    seen = []
    markers = Markers(lambda names, at_s: seen.extend((name, at_s) for name in names))
    before_s = time.monotonic()
    markers.record("iteration", "forward")
    markers.record("backward")
    markers.close()
    assert [name for name, _ in seen] == ["iteration", "forward", "backward"]
    assert before_s <= seen[0][1] <= seen[-1][1] <= time.monotonic()


def test_markers_are_seen_when_the_gpu_gets_there_not_when_they_are_recorded(torch):
    seen = []
    markers = Markers(lambda names, at_s: seen.extend(names), torch)
    markers.record("iteration")
    markers.record("backward")
    time.sleep(0.02)
    assert seen == []
    first, second = Event.made
    first.happened.set()
    wait_until(lambda: seen == ["iteration"])
    markers.record("optimizer")  # an event that has happened is used again
    assert len(Event.made) == 2
    second.happened.set()
    wait_until(lambda: seen == ["iteration", "backward"])
    first.happened.set()
    markers.close()
    assert seen == ["iteration", "backward", "optimizer"]


def test_the_thread_rests_until_a_marker_is_due_and_sees_it_in_time():
    pace, looks, late_s, now_s, happens_s = _Pace(), [], [], 0.0, 0.0
    for _ in range(12):
        for name, seconds in (("iteration", 0.03), ("backward", 0.05)):
            happens_s += seconds
            looks.append(0)
            while True:  # as the thread does, by a clock of its own
                now_s += pace.sleep_s(now_s)
                looks[-1] += 1
                if now_s >= happens_s:
                    break
            pace.reached((name,), now_s)
            late_s.append(now_s - happens_s)
    assert max(late_s[8:]) < 2 * POLL_S
    assert max(looks[8:]) < 60, "of some 300 to 500 looks without a rest"


def test_a_thread_that_rests_sees_every_marker(torch):
    seen, looks = [], []
    markers = Markers(lambda names, at_s: seen.append(names[0]), torch)
    for _ in range(12):
        for name, seconds in (("iteration", 0.03), ("backward", 0.05)):
            markers.record(name)
            event = markers._pending[-1][1]
            event.asked = 0
            time.sleep(seconds)
            event.happened.set()
            looks.append(event.asked)
            wait_until(lambda: len(seen) == len(looks))
    markers.close()
    assert seen == 12 * ["iteration", "backward"]
    assert sorted(looks[8:])[8] < 250, "of some 300 to 500 looks without a rest"


def test_markers_inside_a_graph_are_seen_in_each_replay(torch):
    seen = []
    markers = Markers(lambda names, at_s: seen.extend(names), torch)
    torch.cuda.capturing = True
    for name in ("iteration", "backward", "optimizer"):
        markers.record(name)
    torch.cuda.capturing = False
    assert not Event.made
    for replay in range(1, 4):
        for node in graph:
            node()
        wait_until(lambda replay=replay: len(seen) == 3 * replay)
    assert seen == 3 * ["iteration", "backward", "optimizer"]
    graph[0](), graph[1]()  # a replay that is half done
    markers.record("iteration")  # and a step outside of it
    wait_until(lambda: len(seen) == 10)
    Event.made[0].happened.set()
    markers.close()
    assert seen[9:] == ["iteration", "iteration"]


def test_a_receiver_that_fails_ends_the_markers_and_nothing_else():
    def fails(names, at_s):
        raise BrokenPipeError

    markers = Markers(fails)
    markers.record("iteration")
    wait_until(lambda: not markers._thread.is_alive())
    markers.record("iteration")
    markers.close()


def test_a_forked_child_records_nothing():
    seen = []
    markers = Markers(lambda names, at_s: seen.extend(names))
    child = os.fork()
    if child == 0:
        markers.record("iteration")
        markers.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    markers.close()
    assert seen == []
