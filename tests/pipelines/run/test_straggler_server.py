"""The straggler server on sockets: ranks that come and go, and a server that does."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import wastenot as wn
from testbed.straggling import planned_frontier
from wastenot.control.wire import Line
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.run.rung_follower import plan_at
from wastenot.pipelines.run.straggler_seat import seat_of
from wastenot.pipelines.run.straggler_server import StragglerServer
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.pipelines.run.straggler_wire import SCHEMA, ask, parse_address, read_token
from wastenot.pipelines.run.stragglers import HOLD, LEAD, Stragglers

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def rungs():
    return Rungs(planned_frontier())


def serving(rungs, address, **more):
    return StragglerServer(Stragglers(rungs, 2, 2), str(address), **more)


def wait_for(true, seconds=60.0):
    end_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.002)


@pytest.mark.parametrize("over_tcp", [False, True])
def test_ranks_run_what_the_server_says(rungs, tmp_path, over_tcp):
    address, token = ("127.0.0.1:0", TOKEN) if over_tcp else (tmp_path / "s.sock", None)
    with serving(rungs, address, token=token) as server:
        sources = [StragglerSource(server.address, replica, rank, token=token) for replica in (0, 1) for rank in (0, 1)]
        assert [source.rung(0) for source in sources] == [rungs.own] * 4
        for iteration in range(30):
            for source in sources:
                source.ended(iteration, 1.3 if iteration >= 15 and source in sources[:2] else 1.0)
        wait_for(lambda: ask(server.address, {"ask": "status"}, token)["status"]["iteration"] == 29)
        wait_for(lambda: all(source.rung(40) > rungs.own for source in sources[2:]))
        assert [source.rung(40) for source in sources[:2]] == [rungs.own] * 2
        assert sources[2].rung(40) == sources[3].rung(40) and sources[2].rung(10) == rungs.own
        for source in sources:
            source.close()
        wait_for(lambda: ask(server.address, {"ask": "status"}, token)["status"]["replicas"][0]["ranks"] == 0)


def test_a_server_that_is_gone_is_told_of_once_and_found_again(rungs, tmp_path, capsys):
    path = tmp_path / "s.sock"
    with serving(rungs, path) as server:
        source = StragglerSource(server.address, 0, 0, again_s=0.05)
        source.ended(3, 1.0)
        ask(server.address, {"ask": "tell", "replica": 1, "slower": 0.3})
        wait_for(lambda: (source.rung(3 + LEAD) or 0) > rungs.own)
        told = source.rung(3 + LEAD)
    wait_for(lambda: not source.connected)
    assert source.rung(3 + LEAD) == told, "the last plan is kept"
    assert source.rung(3 + LEAD + HOLD) is None, "until it holds no more"
    source.ended(4, 1.0)
    assert not path.exists()
    with serving(rungs, path):
        wait_for(lambda: source.connected)
        wait_for(lambda: source.rung(0) == rungs.own)
    source.close()
    said = capsys.readouterr().err
    assert said.count("is gone; this rank keeps its current plan") >= 1 and said.count("is back") == 1


def test_who_may_not_is_refused_and_nobody_else_is_disturbed(rungs, tmp_path):
    with serving(rungs, "127.0.0.1:0", token=TOKEN, digest="sha256:1") as server:
        with pytest.raises(ValueError, match="token"):
            ask(server.address, {"ask": "status"}, "another-token-of-16")
        with pytest.raises(ValueError, match="another plan"):
            StragglerSource(server.address, 0, 0, digest="sha256:2", token=TOKEN)
        with pytest.raises(ValueError, match="replica 5: replicas are 0 to 1"):
            StragglerSource(server.address, 5, 0, digest="sha256:1", token=TOKEN)
        source = StragglerSource(server.address, 0, 0, digest="sha256:1", token=TOKEN)
        with pytest.raises(ValueError, match="is already connected"):
            StragglerSource(server.address, 0, 0, digest="sha256:1", token=TOKEN)
        for nonsense in (b"\x00\xff\n", b"[]\n", b"{}\n", b'{"iteration": 1}\n', b"x" * 100_000):
            with socket.create_connection(parse_address(server.address)) as other:
                other.sendall(nonsense)
        assert ask(server.address, {"ask": "status"}, TOKEN)["status"]["replicas"][0]["ranks"] == 1
        source.close()


def test_a_rank_that_does_not_read_holds_nobody_up(rungs, tmp_path):
    with serving(rungs, tmp_path / "s.sock") as server:
        deaf = socket.socket(socket.AF_UNIX)
        deaf.connect(server.address)
        for _ in range(3000):
            try:
                deaf.settimeout(0.2)
                deaf.sendall(b'{"ask":"status"}\n')
            except OSError:
                break
        assert ask(server.address, {"ask": "status"})["status"]
        deaf.close()


def test_a_server_that_ends_while_ranks_are_connected_prints_no_traceback(rungs, tmp_path, caplog):
    with serving(rungs, tmp_path / "s.sock") as server:
        connected = [Line.to(server.address) for _ in range(8)]
        for rank, line in enumerate(connected):
            line.ask({"hello": "rank", "schema": SCHEMA, "replica": rank // 2 % 2, "rank": rank % 2, "digest": ""})
    assert not caplog.records
    for line in connected:
        line.close()


def test_addresses_and_tokens(rungs, tmp_path):
    assert parse_address("/run/x.sock") == "/run/x.sock" and parse_address("[::1]:7") == ("::1", 7)
    for text in ("", "host:port", ":7", "host:99999"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_address(text)
    with pytest.raises(BadInputError, match="must present a token"):
        serving(rungs, "127.0.0.1:0")
    with pytest.raises(BadInputError, match="cannot listen there"):
        serving(rungs, tmp_path / "nowhere" / "s.sock")
    with serving(rungs, tmp_path / "s.sock"), pytest.raises(BadInputError, match="is already listening there"):
        serving(rungs, tmp_path / "s.sock")
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(BadInputError, match="is not a socket"):
        serving(rungs, tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "{}"
    token = tmp_path / "token"
    token.write_text("short")
    with pytest.raises(ValueError, match="other users may read"):
        os.chmod(token, 0o644)
        read_token(token)
    os.chmod(token, 0o600)
    with pytest.raises(ValueError, match="16 characters"):
        read_token(token)


def test_seats_as_torchrun_numbers_them(rungs):
    plan = rungs.plan.model_copy(update={"gpus_per_stage": 2})  # 2 stages, 3 replicas, tensor parallel 2
    seats = [seat_of(plan, rank // 6, {"RANK": str(rank), "WORLD_SIZE": "12"}) for rank in range(12)]
    assert seats == [(r % 6 // 2, r // 6 * 2 + r % 2) for r in range(12)] and len(set(seats)) == 12
    assert seat_of(plan, 1, {"WASTENOT_REPLICA": "4"}) == (4, 2)


def test_a_program_under_apply_follows_the_server(tmp_path, monkeypatch, runtime):
    plan = planned_frontier(forward_s=0.02)
    rungs = Rungs(plan)
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WASTENOT_APPLY"):
        monkeypatch.delenv(variable, raising=False)
    with serving(rungs, tmp_path / "s.sock", digest=plan.digest) as server:
        monkeypatch.setenv("WASTENOT_STRAGGLER", server.address)
        with wn.apply(plan, rank=0, device="sim:h200") as applied:

            def iterate():
                began_s = time.monotonic()
                for step in PlanGraph(plan).steps(0):
                    time.sleep(max(began_s + step.start_s - time.monotonic(), 0.0))
                    applied.instruction(step.instruction.name, step.instruction.micro_batch)
                time.sleep(step.time_s)

            def reported():
                iterate()
                return (ask(server.address, {"ask": "status"})["status"]["iteration"] or 0) >= 1

            wait_for(reported)
            ask(server.address, {"ask": "tell", "replica": 1, "slower": 0.4})

            def told():
                return ask(server.address, {"ask": "status"})["status"]["replicas"][0]["rung"]

            def follows():
                iterate()
                status = applied.status()
                if status.rung is None or not status.rung == told() > rungs.own:
                    return False
                steps = PlanGraph(plan_at(plan, status.rung)).steps(0)
                wanted = {steps[-1].stays[-1].setting.core_mhz, steps[0].stays[0].setting.core_mhz}
                return status.gpus[0].target_core_mhz in wanted  # as late as it may be on a busy machine

            wait_for(follows)
            assert applied.status().rungs == len(rungs)
            assert applied.summary is None
        assert applied.summary.ended == "job ended"


PROGRAM = """
import sys, time
import wastenot as wn
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.rank_steps import PlanGraph
steps = PlanGraph(read_pipeline_plan("pipeline.json")).steps(1)
with wn.apply("pipeline.json") as applied:
    for iteration in range(8):
        began_s = time.monotonic()
        for step in steps:
            time.sleep(max(began_s + step.start_s - steps[0].start_s - time.monotonic(), 0.0))
            applied.instruction(step.instruction.name, step.instruction.micro_batch)
        time.sleep(step.time_s)
    print(applied.status().rung)
"""


def test_a_rank_that_apply_has_started_follows_the_server(tmp_path, runtime):
    plan = planned_frontier(forward_s=0.02)
    plan.write(tmp_path / "pipeline.json")
    rungs = Rungs(plan)
    with serving(rungs, tmp_path / "s.sock", digest=plan.digest) as server:
        ask(server.address, {"ask": "tell", "replica": 0, "slower": 0.4})
        environment = {**os.environ, "WASTENOT_STRAGGLER": server.address}
        environment |= {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        environment.pop("WASTENOT_APPLY", None)
        done = subprocess.run(
            [sys.executable, "-m", "wastenot", "apply", "pipeline.json", "--device", "sim:h200", "--",
             sys.executable, "-c", PROGRAM],
            check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        status = ask(server.address, {"ask": "status"})["status"]
        assert int(done.stdout) == status["replicas"][1]["rung"] > rungs.own, done.stderr
        assert "rank 1 is gone" in [event["text"] for event in status["events"]][-1] or status["iteration"] is None


def test_a_program_runs_its_own_plan_where_there_is_no_server(tmp_path, monkeypatch, capsys, runtime):
    monkeypatch.setenv("WASTENOT_STRAGGLER", str(tmp_path / "nobody.sock"))
    monkeypatch.delenv("WASTENOT_APPLY", raising=False)
    with wn.apply(planned_frontier(), rank=0, device="sim:h200", dry_run=True) as applied:
        applied.instruction("forward", 0)
        time.sleep(0.5)
    assert applied.summary.ended == "job ended"
    assert "this rank runs its own plan" in capsys.readouterr().err


def test_in_python_a_server_is_told_and_asked(tmp_path):
    with wn.straggler(planned_frontier(), replicas=2, at=str(tmp_path / "at")) as server:
        client = wn.StragglerClient(server.address)
        client.tell(1, slower=0.2)
        assert [one["told"] for one in client.status()["replicas"]] == [None, 1.2]
        client.clear(1)
        assert client.status()["replicas"][1]["told"] is None
        with pytest.raises(wn.BadInputError, match="replica"):
            client.tell(2, slower=0.2)
        client.stop()
        assert not server.wait(5.0)
    with pytest.raises(wn.DeviceError, match="no straggler server answers"):
        client.status()


def connected(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 30.0)


def hung_up(peer):
    """Whether the server disconnects, however it does it, after what it has to say."""
    with suppress(ConnectionResetError):
        while peer.recv(1 << 16):
            pass
    return True


def test_whatever_strangers_send_ranks_are_served(rungs):
    with serving(rungs, "127.0.0.1:0", token=TOKEN) as server:
        source = StragglerSource(server.address, 0, 0, token=TOKEN)
        for data in (b"[" * 1000, b'{"a":' * 4000, b'{"token": 1e999}', b'{"token": {}}', b"x" * 5000, b"\xff", b"5"):
            with connected(server.address) as stranger:
                stranger.sendall(data + b"\n")
                assert hung_up(stranger), data[:20]
        for message in ({"replica": 0, "rank": 1e300}, {"replica": [], "rank": 0}, {"hello": "rank", "replica": 10**18}):
            with connected(server.address) as known:
                known.sendall(
                    json.dumps({"token": TOKEN, "hello": "rank", "schema": "wastenot.straggler/1"} | message).encode()
                    + b"\n"
                )
                known.sendall(b'{"iteration": 1e300, "factor": {}}\n')
                with suppress(OSError):  # it may have hung up already
                    known.shutdown(socket.SHUT_WR)
                assert hung_up(known)
        source.ended(3, 1.0)
        wait_for(lambda: ask(server.address, {"ask": "status"}, TOKEN)["status"]["iteration"] == 3)
        assert server.problem is None
        source.close()


def test_strangers_who_say_nothing_lock_nobody_out_and_take_no_memory(rungs, monkeypatch):
    monkeypatch.setattr("wastenot.pipelines.run.straggler_server._MOST_UNTRUSTED_OF_ONE", 8)
    monkeypatch.setattr("wastenot.pipelines.run.straggler_server._UNTRUSTED_LEAST_S", 0.0)
    with serving(rungs, "127.0.0.1:0", token=TOKEN) as server:
        strangers = [connected(server.address) for _ in range(60)]
        for each in strangers:
            with suppress(OSError):  # already disconnected
                each.sendall(b'{"half": "' + b"x" * 4000)
        source = StragglerSource(server.address, 0, 0, token=TOKEN)
        assert source.rung(0) == rungs.own
        wait_for(lambda: len(server._clients) <= 9)
        assert [hung_up(each) for each in strangers[:40]] == [True] * 40
        for each in strangers:
            each.close()
        source.close()


def test_a_stranger_who_does_not_show_the_token_is_disconnected(rungs, monkeypatch):
    monkeypatch.setattr("wastenot.pipelines.run.straggler_server._UNTRUSTED_S", 0.2)
    with serving(rungs, "127.0.0.1:0", token=TOKEN) as server:
        source = StragglerSource(server.address, 0, 0, token=TOKEN)
        with connected(server.address) as stranger:
            assert hung_up(stranger)
        source.ended(0, 1.0)
        wait_for(lambda: ask(server.address, {"ask": "status"}, TOKEN)["status"]["iteration"] == 0)
        assert source.connected, "a rank that has shown it may say nothing for longer"
        source.close()


def test_a_server_that_fails_says_so(rungs, tmp_path, monkeypatch):
    monkeypatch.setattr(Stragglers, "due_s", lambda self: 1 / 0)
    with serving(rungs, tmp_path / "s.sock") as server:
        wait_for(lambda: not server.wait(0.01))
        assert server.problem == "ZeroDivisionError: division by zero"


def test_ranks_that_all_come_at_once_are_all_served(rungs):
    hello = {"hello": "rank", "schema": "wastenot.straggler/1", "token": TOKEN, "replica": 0, "rank": 0}
    with serving(rungs, "127.0.0.1:0", token=TOKEN) as server:
        ranks = [connected(server.address) for _ in range(200)]
        for each in ranks:
            each.sendall(json.dumps(hello).encode() + b"\n")
        answers = [each.recv(1 << 16) for each in ranks]
        assert all(answer.startswith((b'{"welcome":true', b'{"refused"')) for answer in answers)
        for each in ranks:
            each.close()
