"""What servers publish of their steps: read within bounds, and whatever is no step counted and left out."""

import json
import random
import sys
import threading
import time
from contextlib import contextmanager

import msgpack
import numpy as np
import pytest
import zmq

from testbed.forward_passes import message, metrics, steps
from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.serving.bench.forward_passes import Passes, check_address, subscribed
from wastenot.serving.bench.live_steps import collect_steps
from wastenot.serving.model.corrected import corrected
from wastenot.serving.model.profile_file import EngineProfile
from wastenot.serving.model.step_records import read_step_records, step_row

MIXED = (2, 12, 5, 1, 11)  # as in SGLang's own test of a mixed batch
GOOD = metrics(4.5, MIXED)


def taken(*found, number=1):
    passes = Passes()
    return passes, [passes.take(message(number + index, each), 100.0) for index, each in enumerate(found)]


def changed(**values):
    return {**GOOD, **values}


def scheduled(**values):
    return changed(scheduled_requests={**GOOD["scheduled_requests"], **values})


@pytest.mark.parametrize("version", [1, None], ids=["SGLang, Dynamo", "older Dynamo"])
def test_a_mixed_step(version):
    passes, (record,) = taken(metrics(4.5, MIXED, version=version))
    assert record == {
        "at": 100.0, "worker": "worker-7", "dp_rank": 0, "running": 3, "waiting": 1, "prefill_tokens": 12, "prefills": 2,
        "decode_tokens": 1, "decodes": 1, "context_tokens": 11.0, "step_s": 4.5,
    }  # fmt: skip
    assert step_row(record)[:4] == (12.0, 1.0, 11.0, 4.5)
    assert (passes.steps, passes.heartbeats, passes.refused) == (1, 0, {})


def test_steps_that_only_prefill_or_decode():
    _, (prefill, decode) = taken(metrics(0.05, (1, 700, 0, 0, 0)), metrics(0.01, (0, 0, 0, 4, 2000)))
    assert step_row(prefill)[:4] == (700.0, 0.0, 0.0, 0.05) and step_row(decode)[:4] == (0.0, 4.0, 500.0, 0.01)


def test_names_that_are_not_known_yet_do_no_harm():
    _, (record,) = taken(changed(fresh=[1, {"a": 2}]) | {"queued_requests": {}})
    assert record["waiting"] == 0 and record["step_s"] == 4.5


def test_numbers_that_are_missing_are_counted_for_each_rank():
    passes, idle = Passes(), metrics(0.0)
    for rank, numbers in ((0, [7, 8, 11, 12]), (1, [7, 8, 9]), (0, [14]), (1, [20])):
        for number in numbers:
            passes.take(message(number, metrics(0.01, MIXED, rank=rank)), 0.0)
    assert (passes.steps, passes.lost, passes.restarts) == (9, 2 + 1 + 10, 0)
    assert passes.ranks == (("worker-7", 0), ("worker-7", 1))
    assert passes.take(message(15, idle), 0.0) is None and passes.heartbeats == 1
    passes.take(message(15, GOOD), 0.0)
    passes.take(message(0, GOOD), 0.0)
    assert (passes.refused, passes.restarts, passes.lost, passes.heard) == ({"repeated": 1}, 1, 13, 12)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (changed(version=2), "version"),
        (changed(version="1"), "version"),
        (changed(version=True), "version"),
        ([1, "worker-7", 0, 1, 4.5, [2, 12], []], "format"),  # by place instead of by name
        (None, "format"),
        (changed(scheduled_requests=[2, 12, 0.0, 5, 1, 11, 0.0]), "format"),
        (changed(queued_requests=7), "format"),
        (changed(worker_id=7), "format"),
        (changed(dp_rank=-1), "format"),
        (changed(dp_rank=1 << 40), "values"),
        (changed(wall_time=-1.0), "values"),
        (changed(wall_time=61.0), "values"),
        (changed(wall_time=float("nan")), "values"),
        (changed(wall_time=float("inf")), "values"),
        (changed(wall_time=0.0), "values"),
        (changed(wall_time="1"), "values"),
        (changed(wall_time=True), "values"),
        ({name: value for name, value in GOOD.items() if name != "wall_time"}, "values"),
        (metrics(1.0), "values"),
        (scheduled(sum_prefill_tokens=-12), "values"),
        (scheduled(sum_prefill_tokens=12.5), "values"),
        (scheduled(sum_prefill_tokens=1 << 60), "values"),
        (scheduled(sum_prefill_tokens=0), "values"),
        (scheduled(num_decode_requests=0), "values"),
        (scheduled(sum_decode_kv_tokens=1 << 63), "values"),
    ],
)
def test_messages_that_are_no_step(found, why):
    passes, (record,) = taken(found)
    assert record is None and passes.refused == {why: 1} and passes.ranks == ()


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ((), "format"),
        (message(1, GOOD)[1:], "format"),
        ((*message(1, GOOD), b""), "format"),
        ((b"", b"\0" * 7, msgpack.packb(GOOD)), "format"),
        ((b"", b"\0" * 8, b""), "format"),
        ((b"", b"\0" * 8, b"\x91" * 10_000), "format"),  # a list in a list, ten thousand deep
        ((b"", b"\0" * 8, b"\xdd\xff\xff\xff\xff"), "format"),  # a list of four thousand million
        ((b"", b"\0" * 8, b"{}"), "format"),
        ((b"", b"\0" * 8, msgpack.packb(changed(worker_id="w" * 20_000))), "size"),
        ((b"x" * 20_000, b"\0" * 8, msgpack.packb(GOOD)), "size"),
    ],
)
def test_frames_that_are_no_message(frames, why):
    passes = Passes()
    assert passes.take(frames, 0.0) is None and passes.refused == {why: 1}


def test_a_number_beyond_all_others_spoils_no_count():
    passes = Passes()
    for number in (5, (1 << 64) - 1, 6):
        passes.take(message(number, GOOD), 0.0)
    assert (passes.steps, passes.lost, passes.restarts, passes.refused) == (2, 0, 0, {"values": 1})


def test_ranks_are_not_without_end():
    passes = Passes()
    for number in range(2000):
        passes.take(message(1, metrics(0.01, MIXED, worker=f"w{number}")), 0.0)
    assert len(passes.ranks) == passes.steps == 1024 and passes.refused == {"values": 976}


def test_five_thousand_random_messages():
    """Whatever arrives is a record that can be used, a heartbeat, or counted as left out."""
    chance, passes = random.Random(7), Passes()
    records = [passes.take(_random_message(chance), 0.0) for _ in range(5000)]
    made = [each for each in records if each is not None]
    assert passes.heard == 5000 and passes.steps == len(made) > 100 and sum(passes.refused.values()) > 1000
    rows = np.array([step_row(each) for each in made], dtype=float)
    assert np.isfinite(rows[:, :4]).all() and (rows[:, :4] >= 0.0).all() and (rows[:, 3] <= 60.0).all()
    assert all(len(json.dumps(each)) < 500 for each in made)


_VALUES = [
    0, 1, -1, 2**31, 2**63, 1e300, -0.0, float("nan"), float("inf"), True, None, "", "1", b"1", [], {}, [[]], {"a": {}},
    {"num_decode_requests": 1}, "\ud800".encode("utf-8", "surrogatepass"), msgpack.ExtType(5, b"x"), msgpack.Timestamp(1, 1),
]  # fmt: skip


def _random_message(chance):
    found = metrics(chance.choice([0.0, 0.01]), chance.choice([(0,) * 5, MIXED]), rank=chance.randrange(3))
    for _ in range(chance.randrange(3)):
        of = chance.choice([found, found["scheduled_requests"], found["queued_requests"]])
        if isinstance(of, dict):
            of[chance.choice([*of, "x"])] = chance.choice(_VALUES)
        if not all(isinstance(found.get(name), dict) for name in ("scheduled_requests", "queued_requests")):
            break
    content = bytearray(msgpack.packb(found))
    for _ in range(chance.choice([0, 0, 0, 1, 5])):
        content[chance.randrange(len(content))] = chance.randrange(256)
    if chance.random() < 0.1:
        content = chance.randbytes(chance.randrange(200))
    if chance.random() < 0.1:
        content = content[: chance.randrange(len(content) + 1)]
    frames = [b"", chance.randrange(1 << chance.choice([8, 20, 64])).to_bytes(8, "big"), bytes(content)]
    if chance.random() < 0.05:
        frames = frames * chance.randrange(3)
    return frames


# ---- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["tcp://gpu-1:20380", "tcp://[::1]:20380", "tcp://10.0.0.1:1", "ipc:///tmp/steps", "ipc://a"]
)
def test_addresses(address):
    check_address(address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (
            "http://localhost:8000",
            "does not serve its steps over HTTP; vLLM with wastenot installed beside it writes a file of steps",
        ),
        ("https://localhost", "WASTENOT_STEPS"),
        ("tcp://localhost", "not an address that steps can be heard from"),
        ("tcp://:20380", "not an address"),
        ("tcp://localhost:0", "not an address"),
        ("tcp://localhost:99999", "not an address"),
        ("tcp://me:s3cret@localhost:1", "not an address"),
        ("tcp://localhost:1/x", "not an address"),
        ("tcp://*:20380", "names every address of the server; name its host"),
        ("tcp://[::1:5", "not an address"),
        ("ipc://", "no path of a socket"),
        ("ipc:///" + "a" * 200, "no path of a socket"),
        ("pgm://a:1", "not an address"),
    ],
)
def test_addresses_that_cannot_be(address, says):
    with pytest.raises(BadInputError, match=says) as error:
        check_address(address)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("module", "name"), [("zmq", "pyzmq"), ("msgpack", "msgpack")])
def test_what_is_not_installed_is_named(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(MissingExtraError, match=rf"needs {name}, which is not installed: .*wastenot\[steps\]"),
        subscribed("ipc://x"),
    ):
        pass


# ---- a real socket -----------------------------------------------------------------------------------------------------


@contextmanager
def published(address, sent):
    """A publisher that sends messages again and again, once someone listens."""
    socket, over = zmq.Context.instance().socket(zmq.PUB), threading.Event()
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(address)

    def run():
        while not over.wait(0.002):
            found = next(sent, None)
            if found is None:
                return
            socket.send_multipart(found)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        socket.close()


def sound(engine, *, every=1, first=0):
    """Messages of an engine's steps."""
    for number, (wall_s, counts) in enumerate(steps(engine, noise=0.01)):
        if number % every == 0:
            yield message(first + number, metrics(wall_s, counts, number=first + number))


@pytest.fixture
def address(runtime):
    runtime.mkdir()
    return f"ipc://{runtime}/steps"


def test_what_is_heard_is_what_the_file_gives_again(three_clocks, address, tmp_path):
    with published(address, sound(three_clocks)):
        found = collect_steps(address, tmp_path / "steps.jsonl", 2.0, model="m")
    again = read_step_records(tmp_path / "steps.jsonl")
    records = found.records
    assert len(records) > 200 and len(records) == len(again) and (found.passes.lost, found.dropped) == (0, 0)
    for name in ("prefill_tokens", "decode_tokens", "context", "time_s", "core_mhz"):
        assert np.array_equal(getattr(records, name), getattr(again, name), equal_nan=True)
    assert (again.model, again.gpus, again.engine) == ("m", 1, f"the server at {address}")
    better = corrected(EngineProfile((three_clocks,)), records)
    assert better.decode_scale == pytest.approx(1.2, rel=0.1) and better.prefill_scale == pytest.approx(1.3, rel=0.1)
    assert all(each.after_mean < 0.5 * each.before_mean for each in better.off)


def test_faults_on_the_way_are_counted(three_clocks, address, tmp_path):
    chance = random.Random(3)

    def spoiled():
        for frames in sound(three_clocks, every=2):
            yield frames
            yield chance.choice([
                (b"",), (b"", b"", b""), (b"x" * 20_000,), frames[:2], (*frames, b"", b"", b"", b""), (b"",) * 300,
                (frames[0], frames[1], msgpack.packb({"version": 9})), frames,
            ])  # fmt: skip

    with published(address, spoiled()):
        found = collect_steps(address, tmp_path / "steps.jsonl", 2.0)
    passes = found.passes
    assert len(found) == passes.steps > 100 and passes.lost == pytest.approx(passes.steps, abs=2)
    assert set(passes.refused) == {"format", "size", "version", "repeated"}
    assert found.records.left_out == sum(passes.refused.values()) > 50


def test_a_sender_of_too_much_is_heard_again(three_clocks, address, tmp_path):
    """A frame beyond all bounds ends the connection, which is made again."""

    def sent():
        for number, frames in enumerate(sound(three_clocks)):
            yield (b"", b"", b"x" * (1 << 20)) if number == 50 else frames

    with published(address, sent()):
        found = collect_steps(address, tmp_path / "steps.jsonl", 4.0)
    assert found.passes.steps > 150 and found.passes.lost >= 1 and not found.passes.refused


def test_clocks_are_joined_by_time(three_clocks, address, tmp_path):
    """The clock falls once while steps are heard: those around it are left out, the others have theirs."""
    begin_s = time.monotonic()
    falls_s = begin_s + 1.2
    with published(address, sound(three_clocks)):
        found = collect_steps(
            address, tmp_path / "s.jsonl", 2.4, clock_mhz=lambda: 2000.0 if time.monotonic() < falls_s else 1000.0
        )
    clocks = found.records.core_mhz
    assert set(clocks) == {1000.0, 2000.0} and (np.diff(clocks) <= 0.0).all()
    assert 0 < found.without_clock < 0.3 * len(found)


@pytest.mark.parametrize("read", [lambda: None, lambda: 1 / 0])
def test_steps_at_a_clock_that_cannot_be_read_are_left_out(three_clocks, address, tmp_path, read):
    with published(address, sound(three_clocks)):
        found = collect_steps(address, tmp_path / "s.jsonl", 1.0, clock_mhz=read)
    assert len(found) == 0 and found.without_clock > 20
