"""Sweeps of a server: what is measured, what is left out, what a second run finds, and that clocks are given back."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import ClocksRefusedError, ServerError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.serving.bench.energy import EnergyUsed, local_meter
from wastenot.serving.bench.measure import Served, sweep_server, wanted_points
from wastenot.serving.bench.server import Server
from wastenot.serving.bench.steady_state import MeasuredPoint
from wastenot.serving.tables.records import Percentiles
from wastenot.serving.tables.store import ServingStore, WantedPoint
from wastenot.study.store import open_study

URL = "http://localhost:8000"
SERVED = Served(URL, "tiny", "NVIDIA H200", 1, "made-up")


def measured(batch, **more):
    values = MeasuredPoint(
        server=Server(URL, "tiny"), wanted=batch or 0, most_in_flight=batch or 7, begin_s=0.0, end_s=20.0, sent=100,
        sent_per_s=2.0, ended=100, failed={},
        first_tokens=50 * (batch or 1), tokens=1000 * (batch or 1), tokens_per_s=50.0 * (batch or 1),
        mean_running=float(batch or 3), running_by_server=True,
        prompt_tokens=10.0, output_tokens=20.0, ttft=Percentiles(0.1), itl=Percentiles(0.02, 0.02), end_to_end=Percentiles(),
        gaps_s=np.zeros(0), ttfts_s=np.zeros(0), metrics=(("vllm:num_requests_running", 3.0),), client_late_s=0.0,
        cached_share=None, others_tokens=0.0,
        why_unstable="", fault="", notes=(),
    )  # fmt: skip
    return replace(values, **more)


class FakeServer:
    """Measures nothing, and remembers what it was asked for."""

    def __init__(self, steady_s=0.0, **answers):
        self.asked, self.steady_s, self.answers = [], steady_s, answers

    def __call__(self, wanted):
        self.asked.append(wanted)
        begin_s = time.perf_counter()
        time.sleep(self.steady_s)
        end_s = time.perf_counter() if self.steady_s else begin_s + 20.0
        more = self.answers.get(f"b{wanted.max_running}", {})
        if isinstance(more, BaseException):
            raise more
        return measured(wanted.max_running, **{"begin_s": begin_s, "end_s": end_s} | more)


@pytest.fixture
def store(tmp_path):
    return ServingStore(open_study(tmp_path / "s.db", create=True))


def sweep(wanted, server, store, **more):
    return sweep_server(wanted, server, SERVED, store, **more)


def test_points_are_kept_and_not_measured_again(store):
    first, more = wanted_points([16, 8]), wanted_points([8, 16, 32], [2.0])
    outcome = sweep(first, FakeServer(), store)
    assert [point.max_running for point in outcome.points] == [8, 16] and outcome.measured == 2
    again = FakeServer()
    outcome = sweep(more, again, store)
    assert again.asked == [WantedPoint(32), WantedPoint(None, 2.0)] and (outcome.found, outcome.measured) == (2, 2)
    assert [point.max_running for point in outcome.points] == [8, 16, 32, 7]
    assert store.points() == tuple(outcome.points)
    # Nothing to do is no run, and another load of the same server is another matter.
    assert sweep(more, FakeServer(), store).measured == 0 and len(store.runs()) == 2
    other = sweep_server(first, FakeServer(), replace(SERVED, task="another"), store)
    assert other.measured == 2


def test_without_a_meter_there_is_latency_and_no_energy(store):
    (point,) = sweep(wanted_points([8]), FakeServer(), store).points
    assert (point.energy_per_token_j, point.power_w, point.evidence) == (None, None, "measured")
    assert point.is_stable and point.itl.p50_s == 0.02


def test_after_an_unstable_point_larger_ones_are_left_out_also_when_resumed(store):
    server = FakeServer(b16={"why_unstable": "12.0 requests ran on average, 75 % of the 16 wanted"})
    outcome = sweep(wanted_points([8, 16, 32, 64]), server, store)
    assert [each.max_running for each in server.asked] == [8, 16]
    assert [load.max_running for load, _ in outcome.dropped] == [32, 64]
    assert "batch 16 is unstable: 12.0 requests ran" in outcome.dropped[0][1]
    assert [point.is_stable for point in store.points()] == [True, False] and len(store.points(stable_only=True)) == 1
    again = FakeServer()
    assert sweep(wanted_points([8, 16, 32, 64]), again, store).found == 2 and again.asked == []


def test_a_server_that_dies_ends_the_sweep_and_what_was_measured_is_kept(store):
    wanted = wanted_points([8, 16, 32])
    with pytest.raises(ServerError, match=r"batch 16: broke off: 10 requests in a row failed; what was measured is kept in"):
        sweep(wanted, FakeServer(b16={"fault": "10 requests in a row failed"}), store)
    with pytest.raises(ServerError, match="gone"):
        sweep(wanted, FakeServer(b16=ServerError("gone")), store)
    assert [point.max_running for point in store.points(stable_only=True)] == [8]
    assert [run.finished_at for run in store.runs()] == [None, None]
    again = FakeServer()
    outcome = sweep(wanted, again, store)
    assert [each.max_running for each in again.asked] == [16, 32] and all(point.is_stable for point in outcome.points)


class DeadMeter:
    """Tells no energy."""

    name, gpu, gpus, evidence = "dead", "NVIDIA H200", 1, "measured"

    @contextmanager
    def watch(self):
        yield self

    def used(self, begin_s, end_s):
        return EnergyUsed(None, None, ("a note", "the meter was restarted"))


def test_a_meter_that_fails_says_nothing_of_larger_batches_and_points_are_measured_again(store):
    outcome = sweep(wanted_points([4, 8]), FakeServer(), store, meter=DeadMeter())
    assert [point.why_unstable for point in outcome.points] == ["no energy: the meter was restarted"] * 2
    assert outcome.dropped == [] and store.points(stable_only=True) == ()
    again = FakeServer()
    sweep(wanted_points([4, 8]), again, store, meter=DeadMeter())
    assert len(again.asked) == 2


def test_a_steady_state_that_was_only_short_says_nothing_of_larger_batches(store):
    server = FakeServer(b4={"end_s": 7.0, "begin_s": 0.0, "why_unstable": "the steady state lasted 7.0 s"})
    assert [point.is_stable for point in sweep(wanted_points([4, 8]), server, store).points] == [False, True]


def test_batches_that_are_too_large_say_nothing_of_rates(store):
    server = FakeServer(b4={"why_unstable": "2.0 requests ran on average"})
    outcome = sweep(wanted_points([4, 8], [1.0, 2.0]), server, store)
    assert [each.rate_per_s for each in server.asked] == [None, 1.0, 2.0]
    assert [load for load, _ in outcome.dropped] == [WantedPoint(8)]


@pytest.fixture
def gpu():
    return open_device("sim:h200", wall_time=True)


def test_energy_is_what_the_meter_says_of_the_steady_state_and_marked_as_simulated(store, gpu):
    gpu.time.sleep(0.5)  # the gauge shows nothing at first
    idle_w = gpu.sensors.power_w()
    (point,) = sweep(wanted_points([4]), FakeServer(0.8), store, meter=local_meter((gpu,))).points
    assert point.evidence == "simulated" and point.power_w == pytest.approx(idle_w, rel=0.2)
    assert point.energy_per_token_j == pytest.approx(point.power_w * point.steady_s / 4000, rel=1e-9)
    assert point.energy_per_token_se_j is not None and point.is_stable
    # Simulated points do not stand for measured ones.
    assert sweep(wanted_points([4]), FakeServer(), store).measured == 1


class Clocks:
    """Says which settings were requested."""

    def __init__(self, inner, refused=()):
        self.inner, self.refused, self.log = inner, refused, []

    def request(self, setting):
        if setting in self.refused:
            raise ClocksRefusedError(f"no {setting}")
        self.log.append(setting)
        self.inner.request(setting)

    def claimed(self):
        return nullcontext()

    def release(self):
        self.log.append("released")
        self.inner.release()


class Gpu:
    def __init__(self, device, **more):
        self.identity, self.clocks = device.identity, Clocks(device.clocks, **more)


SLOW, SLOWER = Setting(1500.0, None), Setting(900.0, None)


def test_clocks_are_set_where_a_setting_says_so_and_given_back(store, gpu):
    card = Gpu(gpu, refused=(SLOWER,))
    server = FakeServer()
    outcome = sweep(wanted_points([4, 8], settings=(AUTO, SLOW, SLOWER)), server, store, devices=(card,))
    assert card.clocks.log == [SLOW, "released", "released", "released"]
    assert [each.setting for each in server.asked] == [AUTO, AUTO, SLOW, SLOW]
    assert [load for load, why in outcome.dropped] == [WantedPoint(4, None, SLOWER), WantedPoint(8, None, SLOWER)]
    assert "no core 900" in outcome.dropped[0][1]
    # What the study has needs no clocks; and clocks are given back when the server dies.
    card = Gpu(gpu)
    with pytest.raises(ServerError):
        sweep(wanted_points([4, 16], settings=(SLOW,)), FakeServer(b16=ServerError("gone")), store, devices=(card,))
    assert card.clocks.log == [SLOW, "released"]
    with pytest.raises(KeyboardInterrupt):
        sweep(wanted_points([32], settings=(SLOW,)), FakeServer(b32=KeyboardInterrupt()), store, devices=(card,))
    assert card.clocks.log[-2:] == [SLOW, "released"]


@pytest.mark.parametrize(("came", "said"), [(2.0, False), (2.4, False), (0.5, True), (8.0, True)])
def test_a_load_that_came_at_another_rate_than_wanted_is_noted(store, came, said):
    server = lambda wanted: measured(None, sent_per_s=came)  # noqa: E731
    (point,) = sweep(wanted_points([], [2.0]), server, store).points
    assert any("not 2: measure for longer" in note for note in point.notes) == said
