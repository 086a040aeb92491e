"""``wastenot pipeline straggler``: the server as a process, and who asks it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from testbed.straggling import planned_frontier


@pytest.fixture
def served(wastenot, runtime):
    planned_frontier().write(wastenot.folder / "pipeline.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "wastenot", "pipeline", "straggler", "pipeline.json", "--replicas", "2"],
        cwd=wastenot.folder, env=dict(os.environ), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    said = process.stderr.readline()
    assert f"{len(planned_frontier().rungs)} plans, 2 replicas; ranks need WASTENOT_STRAGGLER=" in said
    end_s = time.monotonic() + 60.0
    while wastenot("pipeline", "straggler", "--status").code != 0:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    yield process
    process.kill()
    process.communicate()


def status(wastenot):
    return json.loads(wastenot("pipeline", "straggler", "--status", "--json").out)


def test_a_server_is_told_shows_what_it_knows_and_is_ended(wastenot, served):
    before = status(wastenot)
    assert before["schema"] == "wastenot.straggler/1" and [one["rung"] for one in before["replicas"]] == [0, 0]
    assert wastenot("pipeline", "straggler", "--tell", "20%", "--replica", "1", "--for", "60s").out == "told\n"
    told = status(wastenot)
    assert told["replicas"][1]["told"] == 1.2 and told["replicas"][0]["rung"] > 0 == told["replicas"][1]["rung"]
    text = wastenot("pipeline", "straggler", "--status").out
    assert "replica 1: +20.0 % (told), 0 of 2 ranks" in text and "(predicted)" in text
    assert json.loads(wastenot("pipeline", "straggler", "--clear", "--json").out)["replicas"][1]["told"] is None
    assert status(wastenot)["replicas"][0]["rung"] == 0
    assert wastenot("pipeline", "straggler", "--stop").code == 0
    assert served.wait(60) == 0
    done = wastenot("pipeline", "straggler", "--status")
    assert done.code == 1 and "no straggler server answers" in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_server_that_is_signalled_removes_its_socket(wastenot, served, number):
    path = status(wastenot)["at"]
    served.send_signal(number)
    assert served.wait(60) != 1 and not os.path.exists(path)


@pytest.mark.slow
def test_a_server_that_was_killed_can_be_started_again_at_the_same_place(wastenot, served):
    path = status(wastenot)["at"]
    served.kill()
    served.wait()
    assert os.path.exists(path) and wastenot("pipeline", "straggler", "--status").code == 1
    again = subprocess.Popen(
        [sys.executable, "-m", "wastenot", "pipeline", "straggler", "pipeline.json"],
        cwd=wastenot.folder, env=dict(os.environ), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert "1 replica; ranks need" in again.stderr.readline()
        assert len(status(wastenot)["replicas"]) == 1
    finally:
        again.kill()
        again.communicate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a plan to serve, or one of PLAN.json, --tell X, --clear, --status or --stop"),
        (("pipeline.json", "--status"), "give one of PLAN.json"),
        (("--tell", "20%"), "--tell: which pipeline? give --replica N"),
        (("--tell", "much", "--replica", "0"), "--tell"),
        (("--status", "--replica", "0"), "--replica: has no effect without --tell or --clear"),
        (("--status", "--for", "3s"), "--for: has no effect without --tell"),
        (("--status", "--replicas", "3"), "--replicas: has no effect without PLAN.json"),
        (("missing.json",), "missing.json: cannot be read"),
        (("bare.json",), "has no frontier; make it with 'wastenot pipeline plan --frontier"),
        (("pipeline.json", "--replicas", "0"), "--replicas 0: must be at least 1"),
        (("pipeline.json", "--at", "localhost:0"), "--at localhost:0: clients over TCP must present a token"),
        (
            ("pipeline.json", "--at", "localhost:0", "--token-file", "open"),
            "--token-file open: other users may read this token",
        ),
        (("pipeline.json", "--at", "a:b"), "--at: 'a:b' is neither a path nor HOST:PORT"),
        (("--status", "--at", "a:b"), "'a:b' is neither a path nor HOST:PORT"),
    ],
)
def test_bad_input_is_one_line(wastenot, arguments, said, runtime):
    plan = planned_frontier()
    plan.write(wastenot.folder / "pipeline.json")
    plan.model_copy(update={"rungs": ()}).sealed().write(wastenot.folder / "bare.json")
    (wastenot.folder / "open").write_text("0123456789abcdef")
    os.chmod(wastenot.folder / "open", 0o644)
    done = wastenot("pipeline", "straggler", *arguments)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1, done.err
