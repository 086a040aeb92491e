"""``wastenot serve bench`` on a server that keeps to a schedule, with meters that say what a test tells them to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from testbed.stand_in_meter import ENERGY, served
from testbed.stand_in_server import Behaviour, stand_in_server, virtual_server
from wastenot.core.errors import DeviceError
from wastenot.meters import devices, sampler
from wastenot.serving.bench import loops, steady_state
from wastenot.serving.tables.store import ServingStore
from wastenot.study.store import open_study

QUICK = ("--steady", "0.8s", "--output-tokens", "20", "--prompt-tokens", "20")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(steady_state, "LEAST_STEADY_S", 0.5)
    # On a loaded machine answers come late, and fewer requests run at a time.
    monkeypatch.setattr(steady_state, "LEAST_FILL", 0.4)


@pytest.fixture
def server():
    with stand_in_server(Behaviour(ttft_s=0.01, gap_s=0.01)) as running:
        yield running


@pytest.fixture
def punctual_server(monkeypatch):
    monkeypatch.setattr(sampler, "_COMPLETE_S", 0.1)  # real seconds, for a window that ends in virtual ones
    with virtual_server(Behaviour(ttft_s=0.01, gap_s=0.01)) as running:
        yield running


class Energy:
    """Of GPU 0 in mJ, by a counter that moves ten times a second; its power is 100 W and 50 W for each request that runs."""

    def __init__(self, server):
        self._server, self._mj, self._shown, self._over = server, 1e6, 1e6, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        before, shown_s = time.perf_counter(), 0.0
        while not self._over.wait(0.005):
            now = time.perf_counter()
            self._mj += 1e3 * (100.0 + 50.0 * self._server.running) * (now - before)
            before = now
            if now - shown_s > 0.1:
                self._shown, shown_s = self._mj, now

    def __call__(self):
        return ENERGY.format(energy=self._shown)


@pytest.fixture
def meter(server):
    energy = Energy(server)
    with served(energy) as url:
        yield url
    energy._over.set()


def test_energy_for_a_token_is_what_the_meter_and_the_server_say(wastenot, server, meter):
    ran = wastenot("serve", "bench", server.url, "--batch", "8,2", "--meter", meter, "--meter-gpus", "0", *QUICK,
                   "--steady", "2s", "--json")  # fmt: skip
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["meter"] == f"{meter}/metrics" and document["server"]["gpu"] == "NVIDIA H100 80GB HBM3"
    two, eight = document["points"]
    for batch, point in ((2, two), (8, eight)):
        assert (point["max_running"], point["evidence"], point["why_unstable"]) == (batch, "measured", "")
        assert 100.0 < point["power_w"] <= 1.02 * (100.0 + 50.0 * batch)
        assert point["energy_per_token_j"] == pytest.approx(point["power_w"] / point["tokens_per_s"], rel=0.01)
        # A place makes twenty tokens in 0.2 s at best.
        assert point["tokens_per_s"] < 1.05 * batch * 20 / 0.2
        assert 0.0 < point["energy_per_token_se_j"] < 0.5 * point["energy_per_token_j"]
        assert 0.4 * batch <= point["server"]["vllm:num_requests_running"] <= batch
    assert eight["pareto"] and "latency only" not in ran.err


def test_wastenot_monitor_is_a_meter_for_another_machine(wastenot, server):
    monitored = [sys.executable, "-m", "wastenot", "monitor", "--device", "sim:h200", "--quiet", "--metrics-port", "0", "--",
                 sys.executable, "-c", "input()"]  # fmt: skip
    monitor = subprocess.Popen(
        monitored, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        address = monitor.stderr.readline().removeprefix("metrics: ").strip()
        time.sleep(0.5)
        ran = wastenot(
            "serve", "bench", server.url, "--batch", "2", "--meter", address, *QUICK, "--steady", "1.5s", "--json"
        )
    finally:
        _, err = monitor.communicate("\n", timeout=60)
    assert ran.code == 0, ran.err
    assert monitor.returncode == 0, err
    (point,) = json.loads(ran.out)["points"]
    assert (point["gpu"], point["evidence"]) == ("NVIDIA H200", "simulated")
    assert point["power_w"] > 0.0  # of an idle GPU; how much depends on how far behind a busy machine lets the monitor be


def test_a_sweep_into_a_study_is_resumed_shown_and_leads_on(wastenot, punctual_server):
    first = wastenot(
        "serve", "bench", punctual_server.url, "--batch", "2", "--device", "sim:h200", "--study", "s.db", *QUICK
    )
    assert first.code == 0, first.err
    assert "energy of 1 GPU (NVIDIA H200) by sim:h200 (simulated)" in first.err
    assert "stand-in on 1 × NVIDIA H200, load 20 in, 20 out (simulated)" in first.out
    asked = len(punctual_server.requests)
    again = wastenot(
        "serve", "bench", punctual_server.url, "--batch", "2", "--device", "sim:h200", "--study", "s.db", *QUICK, "--json"
    )
    assert "1 of them measured before" in again.err and len(punctual_server.requests) - asked < 5
    (point,) = json.loads(again.out)["points"]
    more = wastenot(
        "serve", "bench", punctual_server.url, "--batch", "2,4", "--device", "sim:h200", "--study", "s.db", *QUICK
    )
    assert more.code == 0 and "next: wastenot serve recommend s.db --itl" in more.err
    store = ServingStore(open_study(wastenot.folder / "s.db"))
    assert [each.max_running for each in store.points()] == [2, 4]
    assert store.points()[0].energy_per_token_j == point["energy_per_token_j"]
    shown = wastenot("show", "s.db")
    assert "server of" in shown.out and "2 to 4" in shown.out and "simulated" in shown.out
    assert "1 of 1 point of http://127.0.0.1" in shown.out and "finished" in shown.out


def test_clocks_are_measured_beside_the_drivers_own(wastenot, punctual_server):
    ran = wastenot(
        "serve",
        "bench",
        punctual_server.url,
        "--batch",
        "2,4",
        "--device",
        "sim:h200",
        "--core",
        "1500,1980",
        *QUICK,
        "--json",
    )
    assert ran.code == 0, ran.err
    points = json.loads(ran.out)["points"]
    assert [(each["max_running"], each["setting"]["core_mhz"]) for each in points] == [
        (2, None), (4, None), (2, 1980.0), (4, 1980.0), (2, 1500.0), (4, 1500.0),
    ]  # fmt: skip
    assert {each["setting"]["memory_mhz"] for each in points} == {None}


def test_the_first_unstable_batch_is_the_last(wastenot, punctual_server):
    punctual_server.behaviour.most_running = 3
    ran = wastenot("serve", "bench", punctual_server.url, "--batch", "2,8,16,32", "--device", "none", *QUICK)
    assert ran.code == 0 and "8 (unstable)" in ran.out
    unstable = r"left out: batch 16, batch 32: batch 8 is unstable: [123]\.\d requests ran on average, \d+ % of the 8 wanted"
    assert re.search(unstable, ran.err)
    assert "latency only, no energy: --device none" in ran.err


def test_without_a_gpu_there_is_latency_alone_and_it_says_why(wastenot, punctual_server, monkeypatch):
    def no_gpu():
        raise DeviceError("NVML: no driver")

    monkeypatch.setattr(devices, "visible_names", no_gpu)
    ran = wastenot("serve", "bench", punctual_server.url, "--batch", "2", *QUICK)
    assert ran.code == 0 and "latency only, no energy: no GPU can be read here (NVML: no driver)" in ran.err
    assert "mJ per token" not in ran.out and "ITL median" in ran.out


def test_requests_at_rates(wastenot, punctual_server):
    ran = wastenot("serve", "bench", punctual_server.url, "--rate", "20,40", "--device", "none", *QUICK, "--json")
    assert ran.code == 0, ran.err
    points = json.loads(ran.out)["points"]
    assert [each["rate_per_s"] for each in points] == [20.0, 40.0]
    assert points[1]["mean_running"] > points[0]["mean_running"]


def test_the_requests_of_a_trace(wastenot, punctual_server):
    rows = [f"{0.05 * each},{20 + each % 3},{19 + each % 3}" for each in range(60)]
    trace = wastenot.folder / "mine.csv"
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    ran = wastenot(
        "serve",
        "bench",
        punctual_server.url,
        "--rate",
        "own",
        "--device",
        "none",
        "--steady",
        "0.8s",
        "--trace",
        "mine.csv",
        "--json",
    )
    assert ran.code == 0, ran.err
    (point,) = json.loads(ran.out)["points"]
    assert point["rate_per_s"] == pytest.approx(20.0) and point["task"] == "mine.csv"
    assert point["output_tokens"] == pytest.approx(20.0, abs=0.5)
    # Little's law: each answer takes 0.2 s; the server is asked in step with arrivals, just before one or just after.
    assert 3.0 <= point["mean_running"] <= 4.1
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", rows[0], "0.1,7", *rows[2:]]))
    refused = wastenot.refuse("serve", "bench", punctual_server.url, "--device", "none", "--trace", "mine.csv")
    assert "mine.csv:3: " in refused and "--lenient" in refused
    ran = wastenot(
        "serve",
        "bench",
        punctual_server.url,
        "--batch",
        "2",
        "--device",
        "none",
        "--steady",
        "0.8s",
        "--trace",
        "mine.csv",
        "--lenient",
    )
    assert ran.code == 0 and "1 line left out, first mine.csv:3: " in ran.err
    assert "--rate own: needs a trace" in wastenot.refuse("serve", "bench", punctual_server.url, "--rate", "own")


def test_a_server_that_dies_leaves_what_was_measured(wastenot, server, monkeypatch):
    monkeypatch.setattr(loops, "_GIVE_UP_AFTER_S", 0.4)

    def die_in_the_second_batch():
        while server.running < 4:
            time.sleep(0.01)
        time.sleep(0.5)
        server.behaviour.fails = 500

    threading.Thread(target=die_in_the_second_batch, daemon=True).start()
    ran = wastenot("serve", "bench", server.url, "--batch", "2,4", "--device", "none", "--study", "s.db", *QUICK,
                   "--steady", "4s", "--json")  # fmt: skip
    assert ran.code == 1 and "what was measured is kept" in ran.err, [ran.err, ran.out[-3500:]]
    document = json.loads(ran.out)
    assert "broke off" in document["fault"]
    assert ServingStore(open_study(wastenot.folder / "s.db")).runs()[0].finished_at is None
    shown = wastenot("show", "s.db")
    assert "not finished; resume it: wastenot serve bench" in " ".join(shown.out.split())


def test_keys_are_not_kept(wastenot, punctual_server):
    punctual_server.behaviour.key = "Bearer sk-secret"
    ran = wastenot(
        "serve",
        "bench",
        punctual_server.url,
        "--batch",
        "2",
        "--device",
        "none",
        "--study",
        "s.db",
        "--api-key",
        "sk-secret",
        *QUICK,
    )
    assert ran.code == 0, ran.err
    assert b"sk-secret" not in (wastenot.folder / "s.db").read_bytes()


def test_a_dry_run_measures_and_writes_nothing(wastenot, server):
    ran = wastenot("serve", "bench", server.url, "--device", "none", "--study", "s.db", "--dry-run")
    assert ran.code == 0 and "4 points" in ran.out and "nothing was measured or written" in ran.out
    assert not (wastenot.folder / "s.db").exists()
    asked = len(server.requests)
    ran = wastenot("serve", "bench", server.url, "--device", "none", "--dry-run", "--json")
    assert json.loads(ran.out)["parts"][0]["todo"] == 4 and len(server.requests) - asked < 5


def test_what_cannot_be_is_refused_in_one_line(wastenot, server):
    def refuse(*arguments):
        return wastenot.refuse("serve", "bench", *arguments)

    assert "refuses connections" in refuse("http://127.0.0.1:9", "--study", "s.db")
    assert "--batch: '0' is not a whole number" in refuse(server.url, "--batch", "0")
    assert "--rate -1: write rates in requests/s" in refuse(server.url, "--rate", "-1")
    assert "--seed: " in refuse(server.url, "--seed", "-1")
    assert "--prompt-tokens 1e+09: must be from 1 to 10,000,000" in refuse(server.url, "--prompt-tokens", "1e9")
    assert "--output-tokens nan: must be from 1" in refuse(server.url, "--output-tokens", "nan")
    assert "none.jsonl: cannot be read: No such file" in refuse(server.url, "--requests", "none.jsonl")
    assert "sim:h200 is given twice" in refuse(server.url, "--device", "sim:h200,sim:h200")
    assert "need the server's GPUs on this machine" in refuse(server.url, "--core", "1500")
    assert "the device has no such clock" in refuse(server.url, "--device", "sim:h200", "--core", "15000")
    assert "--meter http://127.0.0.1:9/metrics: Connection refused" in refuse(server.url, "--meter", "127.0.0.1:9")
    assert "--meter-gpus: has no effect without --meter" in refuse(server.url, "--meter-gpus", "0")
    assert "--core: has no effect with --device none" in refuse(server.url, "--device", "none", "--core", "1500")
    assert "there is no folder" in refuse(server.url, "--study", "no/such/folder.db")
    with served(lambda: ENERGY.format(energy=1)) as url:
        assert "has 2 GPUs; say which ones serve the model with --meter-gpus: 0" in refuse(server.url, "--meter", url)
    assert not (wastenot.folder / "s.db").exists()
