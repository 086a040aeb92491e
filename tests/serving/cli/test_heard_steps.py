"""``wastenot serve profile --from tcp://HOST:PORT``: a profile corrected while a server says what it does."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.stand_in.fixtures import start_stand_in
from wastenot.devices.open import open_device
from wastenot.serving.bench.forward_passes import subscribed
from wastenot.serving.model.profile_file import EngineProfile, read_engine, write_engine

ROOT = Path(__file__).parents[3]


@pytest.fixture
def profile(three_clocks, tmp_path):
    write_engine(EngineProfile((three_clocks,)), tmp_path / "engine.json")
    return str(tmp_path / "engine.json")


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def engine(address, profile, **more):
    """A simulated engine in a process of its own, once it publishes."""
    options = [f"{name}={value}" for name, value in more.items()]
    process = subprocess.Popen([sys.executable, "-m", "testbed.forward_passes", address, profile, *options], cwd=ROOT)
    try:
        with subscribed(address) as receive:
            assert receive(60.0)
        yield process
    finally:
        process.kill()
        process.wait()


def started(wastenot, *arguments):
    """The command, once it has written steps."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wastenot", *arguments, "--steps", "s.jsonl"],
        cwd=wastenot.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "120"},
    )  # fmt: skip
    wait_for_steps(wastenot, 100)
    return process


def wait_for_steps(wastenot, count):
    file, until_s = wastenot.folder / "s.jsonl", time.monotonic() + 60.0
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert time.monotonic() < until_s, "no steps"
        time.sleep(0.1)
    return file.read_bytes().count(b"\n")


def test_a_profile_is_corrected_while_steps_are_heard(wastenot, profile, address, tmp_path):
    with engine(address, profile):
        ran = wastenot(
            "serve",
            "profile",
            profile,
            "--from",
            address,
            "--for",
            "5s",
            "--steps",
            "steps.jsonl",
            "--out",
            "new.json",
            "--json",
        )
    assert ran.code == 0, ran.err
    assert "no clock is read: steps are taken to run at the default clocks" in ran.err
    assert "steps, which --from steps.jsonl reads again" in ran.err and "lost" not in ran.err
    document = json.loads(ran.out)
    found, heard = document["corrected"], document["heard"]
    assert found["decode_scale"] == pytest.approx(1.2, rel=0.1) and found["prefill_scale"] == pytest.approx(1.3, rel=0.1)
    assert all(each["after_mean"] < 0.5 * each["before_mean"] for each in found["off"])
    assert heard["steps"] == found["steps"] > 100 and heard["heartbeats"] > 0 and heard["refused"] == {}
    again = wastenot("serve", "profile", profile, "--from", "steps.jsonl", "--out", "again.json", "--json")
    assert json.loads(again.out)["corrected"] == found and json.loads(again.out)["heard"] is None
    engines = [read_engine(tmp_path / name).engine() for name in ("new.json", "again.json")]
    assert (engines[0].tables.decode_time_s == engines[1].tables.decode_time_s).all()


@pytest.mark.slow
def test_an_engine_that_is_killed_and_started_again(wastenot, profile, address):
    """What was heard before and after is kept, and its numbers begin again."""
    with engine(address, profile) as first:
        ran = started(wastenot, "serve", "profile", profile, "--from", address, "--json")
        first.kill()
        first.wait()
    with engine(address, profile, seed=1):
        wait_for_steps(wastenot, wait_for_steps(wastenot, 100) + 100)
    ran.send_signal(signal.SIGINT)
    out, err = ran.communicate(timeout=60)
    assert ran.returncode == 0, err
    document = json.loads(out)
    assert document["heard"]["restarts"] == 1 and "1 restart of the server" in err
    assert document["heard"]["steps"] == document["corrected"]["steps"] >= 200


@pytest.mark.slow
def test_ctrl_c_keeps_what_it_has(wastenot, profile, address):
    with engine(address, profile):
        ran = started(wastenot, "serve", "profile", profile, "--from", address)
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=60)
    assert ran.returncode == 0, err
    assert "stopped early; s.jsonl: " in err and "corrected by" in out


def heard_clocks(wastenot, profile, address, *more):
    with engine(address, profile, core_mhz=1500):
        ran = wastenot("serve", "profile", profile, "--from", address, "--for", "3s", "--steps", "s.jsonl", *more, "--json")
    assert ran.code == 0, ran.err
    assert "no clock is read" not in ran.err
    rows = [json.loads(line) for line in (wastenot.folder / "s.jsonl").read_text().splitlines()[1:]]
    assert len(rows) > 50
    return {each["core_mhz"] for each in rows}, json.loads(ran.out)["corrected"]


def test_the_clock_in_effect_is_stated(wastenot, profile, address):
    clocks, found = heard_clocks(wastenot, profile, address, "--core", "1500")
    assert clocks == {1500.0} and found["decode_scale"] == pytest.approx(1.2, rel=0.1)


@pytest.mark.slow
def test_the_clock_in_effect_is_read_of_a_gpu(wastenot, profile, address, monkeypatch):
    with start_stand_in("h200") as gpu:
        gpu.use(monkeypatch)
        now_mhz = open_device("nvidia:0").sensors.clocks().core_mhz
        clocks, _ = heard_clocks(wastenot, profile, address, "--device", "nvidia:0")
    assert clocks == {now_mhz}


def test_a_server_that_says_nothing(wastenot, profile, address, tmp_path):
    ran = wastenot("serve", "profile", profile, "--from", address, "--for", "1s")
    assert ran.code == 2 and "nothing was heard; is the server there" in ran.err
    assert not list(tmp_path.glob("steps-*"))


@pytest.mark.parametrize(
    ("what", "more", "says"),
    [
        ("ENGINE", ["--from", "http://localhost:8000"], "vLLM with wastenot installed beside it writes a file of steps"),
        ("ENGINE", ["--from", "tcp://a"], "not an address that steps can be heard from"),
        ("ENGINE", ["--from", "tcp://a:1", "--for", "0s"], "at least 1 s and at most a day"),
        ("ENGINE", ["--from", "tcp://a:1", "--core", "1000,2000"], "give the one clock in effect"),
        ("ENGINE", ["--from", "tcp://a:1", "--core", "1000", "--device", "sim:h200"], "give the one clock in effect"),
        ("ENGINE", ["--from", "tcp://a:1", "--device", "sim:h200"], "state that with --core MHZ"),
        ("ENGINE", ["--from", "tcp://a:1", "--degrees", "3"], "no such parallel degree"),
        ("ENGINE", ["--from", "tcp://a:1", "--steps", "engine.json"], "engine.json: is there; name another file"),
        ("ENGINE", ["--from", "steps.jsonl", "--for", "1min"], "--for: has no effect without --from ADDRESS"),
        ("ENGINE", ["--steps", "a.jsonl"], "--steps: has no effect without --from ADDRESS"),
        ("ENGINE", ["--from", "steps.jsonl", "--device", "sim:h200"], "--device: has no effect"),
        ("llama-8b", ["--from", "tcp://a:1"], "write one first with --out"),
    ],
)
def test_what_cannot_be(wastenot, profile, what, more, says):
    ran = wastenot("serve", "profile", profile if what == "ENGINE" else what, *more)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
