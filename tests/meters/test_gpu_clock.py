"""Placing a GPU's events on the host's clock, with a GPU whose clock the test holds."""

import pytest

from wastenot.meters.gpu_clock import GpuClock, torch_clocks


class Gpu:
    """Time that passes only when it is let; the GPU's own clock runs at another rate, and its queue is behind the host."""

    def __init__(self, rate=1.0):
        self.now_s, self.rate, self.behind_s, self.waited_s = 100.0, rate, {"own": 0.0, "current": 0.0}, 0.0

    def now(self):
        self.now_s += 1e-6
        return self.now_s

    def event(self):
        return Event(self)

    def clock(self):
        return GpuClock(self.event, "own", lambda: "current", self.now)


class Event:
    def __init__(self, gpu):
        self.gpu, self.at_s = gpu, None

    def record(self, stream):
        self.at_s = self.gpu.now_s + self.gpu.behind_s[stream] + 5e-6

    def synchronize(self):
        waits = max(0.0, self.at_s - self.gpu.now_s)
        self.gpu.waited_s += waits
        self.gpu.now_s += waits

    def elapsed_time(self, other):
        return 1e3 * (other.at_s - self.at_s) / self.gpu.rate


@pytest.mark.parametrize("rate", [1.0, 1.00002, 0.99997])
def test_moments_are_those_at_which_the_gpu_came_to_the_events(rate):
    gpu = Gpu(rate)
    clock = gpu.clock()
    gpu.now_s += 600.0
    gpu.behind_s["current"] = 0.040
    waited = gpu.waited_s
    begin = clock.mark()
    gpu.now_s += 2.0
    gpu.behind_s["current"] = 0.090
    end = clock.mark()
    assert gpu.waited_s == waited  # nothing is waited for while the work runs
    found = clock.moments(begin, end)
    assert found[0] == pytest.approx(begin.at_s, abs=1e-4)
    assert found[1] == pytest.approx(end.at_s, abs=1e-4)
    assert found[1] - found[0] == pytest.approx(2.05, abs=1e-4)
    assert found[2] < 1e-4


def test_an_anchor_is_the_fastest_of_several():
    gpu = Gpu()
    clock = gpu.clock()
    delays = iter([0.03, 0.0, 0.02, 0.03, 0.01])

    def event():
        gpu.behind_s["own"] = next(delays)
        return Event(gpu)

    clock._make_event = event
    anchor = clock._anchor()
    assert anchor.after_s - anchor.before_s < 1e-4


def test_without_a_gpu_it_is_refused():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Exception, match="sees no GPU"):
        torch_clocks(("GPU-abc",), {})
