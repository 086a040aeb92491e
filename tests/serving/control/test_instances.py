"""One server under control, at times of the test's own."""

import dataclasses
import math
import queue
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import ClocksRefusedError, DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import ClockReading
from wastenot.serving.bench.server_metrics import LatencyCounts, ServerReading
from wastenot.serving.control.control import control
from wastenot.serving.control.instance import Instance, Rules, ladder
from wastenot.serving.control.recommender import Recommender, together
from wastenot.serving.control.sources import Heard
from wastenot.serving.model.profile_file import read_engine

ENGINE = read_engine(Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json").engine()
EDGES = (0.05, 0.1, 0.25, 0.5, 2.5, math.inf)


class Clocks:
    """Clocks that remember what was asked of them, and may fail."""

    def __init__(self):
        self.asked, self.fails = [], None
        self._real = open_device("sim:h200").clocks

    def supported_clocks(self):
        return self._real.supported_clocks()

    def request(self, setting):
        if self.fails:
            raise self.fails
        self.asked.append(setting)

    def claimed(self):
        return nullcontext()

    def release(self):
        if self.fails:
            raise self.fails
        self.asked.append(AUTO)


class Sensors:
    """A GPU that keeps the clock asked for, or does not."""

    def __init__(self, clocks):
        self._clocks, self.disobeys = clocks, False

    def clocks(self):
        asked = self._clocks.asked[-1].core_mhz if self._clocks.asked else None
        return ClockReading(1980.0 if self.disobeys or asked is None else asked, 3201.0)


class Gpu:
    def __init__(self):
        self.clocks = Clocks()
        self.sensors = Sensors(self.clocks)
        self.identity = open_device("sim:h200").identity


class Server:
    """Readings of a server under a steady load."""

    def __init__(self, rate_per_s=5.0):
        self.rate_per_s = rate_per_s

    def at(self, seconds, **more):
        come = self.rate_per_s * seconds
        tokens = 100.0 * come
        values = {
            "running": 6.0, "waiting": 0.0, "prompt_tokens": 500.0 * come, "output_tokens": tokens,
            "ttft": LatencyCounts(EDGES, (0.0, come, come, come, come, come)),
            "tbt": LatencyCounts(EDGES, (tokens,) * 6),
        } | more  # fmt: skip
        return ServerReading(**values)


@pytest.fixture
def begun_s(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    return 1000.0


@pytest.fixture
def controlled(begun_s):
    events = []
    gpus = (Gpu(), Gpu())

    def of(rules=None, devices=gpus):
        return Instance("http://a", devices, ENGINE, rules or Rules(dry_run=False), events.append)

    return of, gpus, events


def follow(instance, server, seconds, begin=0.0, step=1.0, **more):
    """Let a server be heard once a step; the time of the last reading."""
    at = begin
    while at <= begin + seconds:
        instance.hear(Heard(0, 1000.0 + at, server.at(at, **more)), 1000.0 + at + 0.01)
        instance.check(1000.0 + at + 0.02)
        at += step
    return at - step


def test_all_gpus_of_a_server_follow_its_load(controlled):
    of, gpus, events = controlled
    instance = of()
    follow(instance, Server(), 20.0)
    assert instance.state == "controlled" and instance.setting.core_mhz < 1980.0
    assert [gpu.clocks.asked[-1] for gpu in gpus] == [instance.setting] * 2
    assert instance.policy.load.prompt_tokens == pytest.approx(
        500.0
    ) and instance.policy.load.output_tokens == pytest.approx(100.0)
    assert 5.0 < instance.policy.load.rate_per_s < 10.0  # on the safe side of chance
    assert next(event.kind for event in events) == "controlled"


def test_a_gpu_that_does_not_keep_its_clock_is_told_of_once(controlled):
    of, gpus, events = controlled
    gpus[1].sensors.disobeys = True
    follow(of(), Server(), 120.0)
    (note,) = (event.text for event in events if event.kind == "note")
    assert note.startswith("http://a: sim:h200: asked for at most ") and "it has run at 1980 MHz" in note


def test_a_dry_run_touches_nothing(controlled):
    of, gpus, events = controlled
    instance = of(Rules(dry_run=True))
    follow(instance, Server(), 20.0)
    instance.check(1060.0)
    assert not any(gpu.clocks.asked for gpu in gpus)
    assert [event.kind for event in events if event.kind != "clock"] == ["controlled", "default"]
    assert all("would be" in event.text for event in events if event.kind == "clock")


def test_silence_gives_the_clocks_back_once_and_a_voice_takes_them_again(controlled):
    of, gpus, events = controlled
    instance = of()
    last = follow(instance, Server(), 20.0)
    for late in (1.0, 4.0, 7.9):
        instance.hear(Heard(0, 1000.0 + last + late, None, "refused"), 1000.0 + last + late)
        instance.check(1000.0 + last + late)
    assert instance.state == "controlled"
    for late in (8.0, 9.0, 10.0):
        instance.check(1000.0 + last + late)
    assert instance.state == "default" and gpus[0].clocks.asked[-1] == gpus[1].clocks.asked[-1] == AUTO
    (default,) = (event for event in events if event.kind == "default")
    assert "no metrics for 8 s: refused" in default.text
    follow(instance, Server(), 20.0, begin=last + 20.0)
    assert instance.state == "controlled" and gpus[0].clocks.asked[-1] == instance.setting != AUTO


def test_old_readings_do_not_count(controlled):
    of, gpus, _ = controlled
    instance = of()
    for at in range(20):
        instance.hear(Heard(0, 1000.0 + at, Server().at(at)), 1000.0 + at + 9.0)
    assert instance.state == "unknown" and not gpus[0].clocks.asked
    instance.check(1029.0)
    assert instance.state == "default" and "its metrics are 9 s old" in instance.why


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        (Heard(0, 1021.0, None, "running is nan", nonsense=True), "running is nan"),
        (Heard(0, 1021.0, Server().at(1.0)), "counters restarted"),
    ],
)
def test_nonsense_and_restarts_give_the_clocks_back_at_once(controlled, heard, says):
    of, gpus, _ = controlled
    instance = of()
    follow(instance, Server(), 20.0)
    instance.hear(heard, 1021.0)
    assert instance.state == "default" and says in instance.why and gpus[0].clocks.asked[-1] == AUTO


@pytest.mark.parametrize("absurd", [1e6, 1e300])
@pytest.mark.parametrize("name", ["running", "waiting", "prompt_tokens", "output_tokens", "cache_used", "cache_tokens"])
def test_absurd_values_never_lower_the_clock_nor_hold_the_controller_up(controlled, name, absurd):
    of, _, _ = controlled
    instance = of()
    last = follow(instance, Server(), 20.0, cache_used=0.05, cache_tokens=4e5)
    usual = instance.index
    for late in range(1, 6):
        instance.hear(Heard(0, 1000.0 + last + late, Server().at(last + late, **{name: absurd})), 1000.0 + last + late)
        assert instance.state == "default" or instance.index >= usual
    assert instance.policy.load is None or np.isfinite(dataclasses.astuple(instance.policy.load)).all()


def test_frozen_metrics_give_the_clocks_back(controlled):
    of, gpus, _ = controlled
    instance = of()
    last = follow(instance, Server(), 20.0)
    frozen = Server().at(last)
    for late in range(1, 10):
        instance.hear(Heard(0, 1000.0 + last + late, frozen), 1000.0 + last + late)
    assert instance.state == "default" and "not changed" in instance.why and gpus[0].clocks.asked[-1] == AUTO


@pytest.mark.parametrize("name", ["tbt", "ttft"])
def test_a_server_whose_tokens_count_only_at_the_end_of_a_request_is_not_frozen(controlled, name):
    """As SGLang's, whose latencies tell that it goes on."""
    of, _, _ = controlled
    instance, server = of(), Server()
    last = follow(instance, server, 20.0)
    still = server.at(last)
    for late in range(1, 30):
        now = replace(still, **{name: getattr(server.at(last + late), name)})
        instance.hear(Heard(0, 1000.0 + last + late, now), 1000.0 + last + late)
    assert instance.state == "controlled"


def test_an_idle_server_is_not_frozen(controlled):
    of, _, _ = controlled
    instance = of()
    last = follow(instance, Server(), 20.0)
    idle = replace(Server().at(last), running=0.0)
    for late in range(1, 30):
        instance.hear(Heard(0, 1000.0 + last + late, idle), 1000.0 + last + late)
        instance.check(1000.0 + last + late)
    assert instance.state == "controlled"


def test_missed_deadlines_raise_the_clock_and_slack_lowers_it(controlled):
    of, _, _ = controlled
    instance = of()
    last = follow(instance, Server(), 10.0)
    before = instance.index
    server = Server()
    base = Server().at(last)
    counts = []  # of steps up, while one in five tokens takes longer than 100 ms
    for late in range(1, 6):
        reading = server.at(last + late)
        passed = reading.output_tokens - base.output_tokens
        tbt = tuple(now + part * passed for now, part in zip(base.tbt.counts, (0.8, 0.8, 1, 1, 1, 1), strict=True))
        at = last + late
        instance.hear(Heard(0, 1000.0 + at, replace(reading, tbt=LatencyCounts(EDGES, tbt))), 1000.0 + at)
        counts.append(instance.policy.feedback.steps)
    assert counts == [1, 3, 7, 15, 23] and instance.index > before
    good = replace(reading, tbt=LatencyCounts(EDGES, tbt))
    for late in range(1, 100):
        more = 100.0 * late
        moved = replace(
            good, output_tokens=good.output_tokens + more, tbt=LatencyCounts(EDGES, tuple(each + more for each in tbt))
        )
        instance.hear(Heard(0, 1000.0 + at + late, moved), 1000.0 + at + late)
    assert instance.policy.feedback.steps == 20  # one for each 30 s


def test_a_higher_clock_is_asked_for_at_once_and_a_lower_one_after_three_readings(controlled):
    of, _, _ = controlled
    instance = of()
    last = follow(instance, Server(), 20.0)
    usual = instance.index
    follow(instance, Server(), 0.0, begin=last + 1.0, running=200.0)  # more than the load explains
    found = [instance.index]
    for late in range(2, 5):
        follow(instance, Server(), 0.0, begin=last + late)
        found.append(instance.index)
    top = len(ENGINE.tables.settings) - 1
    assert found[:3] == [top] * 3 and found[3] <= usual + 1


def test_of_several_readings_that_wait_the_last_counts(controlled):
    of, _, _ = controlled
    heard = queue.SimpleQueue()
    for at in range(50):
        heard.put(Heard(0, 900.0 + 2.0 * at, Server().at(2.0 * at)))
        heard.put(Heard(1, 900.0 + 2.0 * at, Server().at(2.0 * at)))
    instances = [of(devices=()), of(devices=())]
    stops = iter([False, True])
    control(instances, heard, stop=lambda: next(stops))
    assert [len(each.policy.recent.readings) for each in instances] == [1, 1] and heard.empty()
    assert instances[0].policy.recent.latest == Server().at(98.0)


def test_a_gpu_that_refuses_leaves_all_to_the_driver_and_is_asked_again_later(controlled):
    of, gpus, events = controlled
    instance = of()
    gpus[1].clocks.fails = ClocksRefusedError("no permission")
    last = follow(instance, Server(), 20.0)
    assert instance.state == "default" and "no permission" in instance.why
    assert gpus[0].clocks.asked[-1] == AUTO
    assert sum(event.kind == "default" for event in events) == 1
    gpus[1].clocks.fails = None
    follow(instance, Server(), 40.0, begin=last + 1.0)
    assert instance.state == "controlled" and gpus[1].clocks.asked[-1] == instance.setting


def test_clocks_that_cannot_be_given_back_are_tried_again(controlled):
    of, gpus, events = controlled
    instance = of()
    last = follow(instance, Server(), 20.0)
    gpus[0].clocks.fails = DeviceError("the driver hangs")
    instance.hear(Heard(0, 1000.0 + last + 1.0, None, "is nan", nonsense=True), 1000.0 + last + 1.0)
    instance.check(1000.0 + last + 2.0)
    assert gpus[1].clocks.asked[-1] == AUTO != gpus[0].clocks.asked[-1]
    assert sum("could not be reset" in event.text for event in events) == 1
    gpus[0].clocks.fails = None
    instance.check(1000.0 + last + 3.0)
    assert gpus[0].clocks.asked[-1] == AUTO


def test_a_server_without_counts_of_first_tokens_keeps_its_default_clocks(controlled):
    of, gpus, _ = controlled
    instance = of()
    follow(instance, Server(), 20.0, ttft=None)
    assert instance.setting == AUTO and all(each == AUTO for each in gpus[0].clocks.asked)


def test_the_ladder_has_clocks_that_the_device_has_and_ends_with_its_own():
    found = ladder(ENGINE, (open_device("sim:h200"),))
    have = set(open_device("sim:h200").clocks.supported_clocks()[3201.0])
    assert found[-1] == AUTO and {each.core_mhz for each in found[:-1]} <= have
    coarse = ladder(ENGINE, (open_device("sim:rtx-3080-ti"),))
    for wanted, given in zip(ENGINE.tables.settings, coarse[:-1], strict=False):
        assert given == Setting(None) or given.core_mhz >= wanted.core_mhz - 0.5


def test_instances_are_recommended_for_all_servers_together(controlled):
    of, _, events = controlled
    servers = [of(devices=()) for _ in range(4)]
    recommender = Recommender(servers, [ENGINE], Rules(), events.append)
    recommender.look(1000.0)
    assert recommender.latest is None  # nothing is known yet
    for each in servers:
        follow(each, Server(rate_per_s=1.0), 60.0)
    load = together(servers)
    assert 4.0 < load.rate_per_s < sum(each.policy.load.rate_per_s for each in servers)
    recommender.look(1060.0)
    assert recommender.latest.instances == 1
    (event,) = (each for each in events if each.kind == "recommendation")
    assert event.values["there"] == [{"gpus": 1, "instances": 4}] and event.values["profile_evidence"] == "simulated"
    for each in servers:
        follow(each, Server(rate_per_s=20.0), 60.0, begin=2000.0)
    recommender.look(3060.0)
    more = recommender.latest.instances
    assert more > 1  # at once
    for each in servers:
        follow(each, Server(rate_per_s=1.0), 60.0, begin=60000.0)
    recommender.look(3200.0)
    assert recommender.latest.instances == more  # the last minutes needed them
    recommender.look(3600.0)
    assert recommender.latest.instances == 1
