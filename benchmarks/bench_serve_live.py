"""``wastenot serve control`` on a real vLLM and a GPU of the stand-in: two days of traffic in 40 minutes, and faults.

    python -m benchmarks.bench_serve_live [SECONDS]

vLLM (``make .venv-vllm/.ready``) serves a tiny model on the CPU, at the rates of two days of Azure's conversations. The
controller reads its metrics through a proxy, which lies now and then. The profile is llama-8b's on a simulated H200, with
steps twenty times as long, and each of vLLM's steps is made to take as long as the profile says of the clock that the GPU
is locked to: a low clock slows the server, as a real one would.
The controller is killed and started again, the metrics lie in ten ways, vLLM is stopped for a minute, then killed and
started again. Afterwards all decisions are made again from the log (``testbed/logged_control.py``).
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.kept import BESIDE, DATA, ROOT, keep
from benchmarks.verdict import Verdict, run_alone
from testbed.curve_clients import CurveClients
from testbed.logged_control import decided_again, read_log
from testbed.lying_metrics import LIES, LyingProxy
from testbed.paced_vllm import VLLM, PacedVllm, write_slower
from testbed.stand_in.control import Control
from testbed.stand_in.fixtures import StandIn, start_stand_in
from wastenot.meters.tasks import find_tasks
from wastenot.serving.cluster.traffic import read_curve
from wastenot.serving.control.instance import Rules
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine

SLOWER, MOST_PER_S, DAYS, SLOTS_A_DAY = 20.0, 4.5, 2, 288
LIE_S, HANG_S, TTFT_S, TBT_S, PORT = 20.0, 60.0, 2.5, 0.5, 8130
LOOSER = 10.0
"""Deadlines of the lives in which controller or server are killed, so that a clock is locked on a busy machine too."""
RULES = Rules(Deadlines((TTFT_S,), (), tbt_s=TBT_S), dry_run=False)
CURVE = BESIDE / "serving" / "azure2024_week_conv_rpm_digitised.csv"
ENGINE = DATA / "serving" / "llama-8b-sim-h200.json"
OUT = DATA / "serving" / "control-live.json"
PROVENANCE = (
    "benchmarks/bench_serve_live.py; vLLM 0.32 on a shared CPU, model of docs/tutorials/vllm.md, steps paced by "
    "llama-8b-sim-h200.json x 20; GPU of the NVML stand-in (simulated); rates of azure2024_week_conv_rpm_digitised.csv"
)


class Run:
    """The server, its clients, and the controller's lives."""

    def __init__(self, stand_in: StandIn, folder: Path, engine: Engine, seconds: float) -> None:
        self.stand_in, self.folder, self.engine = stand_in, folder, engine
        self.locked: list[tuple[float, float]] = []  # Unix time, and the clock from then on; infinite: the driver's
        self.rules, self.ends = list[Rules](), threading.Event()
        self.server = PacedVllm(folder, PORT)
        rates = read_curve(CURVE).rate_per_s[: DAYS * SLOTS_A_DAY]
        self.clients = CurveClients(self.server.url, rates * (MOST_PER_S / rates.max()), seconds / len(rates))
        self.proxy, self.port = LyingProxy(self.server.url), PORT + 1
        threading.Thread(target=self._watch, daemon=True).start()
        self.server.start()
        self.clients.start()

    def costs(self, clock: float) -> tuple[float, float]:
        """What the profile says of a step at a clock, and of each token of a prompt in it, in seconds."""
        tables = self.engine.tables
        at = min(sum((each.core_mhz or np.inf) < clock for each in tables.settings), len(tables.settings) - 1)
        token_s = (tables.prefill(at, 512).time_s - tables.prefill(at, 64).time_s) / (512 - 64)
        return float(tables.decode(at, 8, 150.0).time_s), float(token_s)

    def _watch(self) -> None:
        """Look at the clock, and keep the GPU busy while there are requests."""
        control, busy = Control(self.stand_in.socket), False
        task = min(find_tasks("gpt3-xl", "sim:h200").tasks, key=lambda each: (each.steps[0][0].intensity, each.name))
        while not self.ends.wait(0.1):
            locked = control.state(0).locked_core_mhz
            clock = np.inf if locked is None else float(locked[1])
            if not self.locked or clock != self.locked[-1][1]:
                self.locked.append((time.time(), clock))
                self.server.pace(*self.costs(clock))
            if busy != bool(self.clients.open):
                busy = not busy
                control.run_task(task) if busy else control.stop_task()
        control.close()

    def clocks(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """When after a begin the clock was which, until an end."""
        first_mhz = max((each for each in self.locked if each[0] <= begin_s), default=(begin_s, np.inf))[1]
        return [(0.0, first_mhz), *((at_s - begin_s, mhz) for at_s, mhz in self.locked if begin_s < at_s <= end_s)]

    def free_after_s(self, begin_s: float) -> float | None:
        """How long after a begin the clock was the driver's."""
        return next((after_s for after_s, clock in self.clocks(begin_s, time.time()) if np.isinf(clock)), None)

    @property
    def clock_mhz(self) -> float | None:
        """That the GPU is locked to; ``None`` for the driver's."""
        clock = self.locked[-1][1]
        return None if np.isinf(clock) else clock

    def control(self, looser: float = 1.0) -> None:
        """Another life of the controller, with deadlines so many times as long."""
        deadlines = Deadlines((looser * TTFT_S,), (), tbt_s=looser * TBT_S)
        self.rules.append(replace(RULES, deadlines=deadlines))
        environment = self.stand_in.environment(
            WASTENOT_STATE=f"{self.folder}/state", WASTENOT_READ_ONLY="0", CONTROL_LOG=f"{self.folder}/{len(self.rules)}.log"
        )
        environment.pop("WASTENOTD_SOCKET", None)
        command = [
            sys.executable, "-m", "testbed.logged_control", "serve", "control", f"{self.folder}/engine.json",
            "--instance", f"{self.proxy.url}=nvidia:0", "--ttft", f"{looser * TTFT_S}s", "--tbt", f"{looser * TBT_S}s",
            "--assumed-clocks", "--allow-clock-control", "--metrics-port", f"{self.port}",
        ]  # fmt: skip
        with (self.folder / "control.txt").open("a") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=ROOT)

    def end(self) -> None:
        """End all that runs."""
        self.ends.set()
        self.process.kill()
        self.server.end()

    def again(self, looser: float = 1.0) -> None:
        """End the controller as people do, and begin its next life."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.control(looser)
        self.until_controlled()

    def told(self, name: str) -> float:
        """What the controller's own metrics say; not a number while there are none."""
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30.0) as reply:
            found = re.search(rf"^wastenot_serve_{name}\{{.*\}} (\S+)$", reply.read().decode(), re.MULTILINE)
            return float(found[1]) if found else np.nan
        return np.nan

    def until_controlled(self) -> None:
        """Wait until the clocks are chosen from the metrics, a minute at most until one is locked, and a while more."""
        until_s = time.monotonic() + 60.0
        while self.told("controlled") != 1.0 or (self.clock_mhz is None and time.monotonic() < until_s):
            assert self.process.poll() is None, (self.folder / "control.txt").read_text()
            time.sleep(0.5)
        time.sleep(10.0)

    def energy(self) -> tuple[float, float, float, float]:
        """Joules and first tokens by the controller's metrics, and the same as they are."""
        truth = self.stand_in.control.state(0).energy_j, sum(bool(each.arrival_s) for each in self.clients.streams)
        return self.told("energy_joules_total"), self.told("requests_total"), *truth


def main(verdict: Verdict, seconds: float = 2400.0) -> None:
    """Run all, judge it, and keep what was found."""
    if not (VLLM / ".ready").exists() or not CURVE.is_file():
        print(f"  skipped: needs {VLLM.name} (make .venv-vllm/.ready) and {CURVE.name}")
        return
    with start_stand_in("h200", wall=True, memory_lock=True) as stand_in, tempfile.TemporaryDirectory() as folder:
        run = Run(stand_in, Path(folder), write_slower(ENGINE, Path(folder, "engine.json"), SLOWER), seconds)
        try:
            found = ran(run, seconds)
        finally:
            run.end()
    keep(OUT, {"provenance": PROVENANCE, **found})
    judge(verdict, found)


def ran(run: Run, seconds: float) -> dict[str, Any]:
    """A third of the time as it is, then a kill, lies, a server that hangs, one that is started again, the rest as it is."""
    begun_s, faults, locked = time.time(), dict[str, float | None](), dict[str, float | None]()
    run.control()
    run.until_controlled()
    calm_s, energy = time.time(), run.energy()
    time.sleep(seconds / 3.0)
    energy = tuple(now - then for now, then in zip(run.energy(), energy, strict=True))
    calm = [(calm_s, time.time())]

    def fault(name: str, begin: Callable[[], object], seconds: float, end: Callable[[], object]) -> None:
        begun_s, locked[name] = time.time(), run.clock_mhz
        begin()
        time.sleep(max(begun_s + seconds - time.time(), 0.0))
        faults[name] = run.free_after_s(begun_s)
        end()
        print(f"    {name} at {locked[name]} MHz: {faults[name]}", flush=True)

    run.again(LOOSER)
    fault("controller killed", run.process.kill, 10.0, run.process.wait)
    run.control()
    run.until_controlled()
    for lie in LIES:
        fault(lie, lambda lie=lie: setattr(run.proxy, "lie", lie), LIE_S, lambda: setattr(run.proxy, "lie", ""))
        run.until_controlled()
    fault("server hangs", lambda: run.server.signal(signal.SIGSTOP), HANG_S, lambda: run.server.signal(signal.SIGCONT))
    run.until_controlled()
    time.sleep(HANG_S)
    run.again(LOOSER)
    fault("server killed", run.server.end, 15.0, run.server.start)
    run.again()
    calm_s = time.time()
    time.sleep(max(begun_s + seconds - calm_s, 90.0))
    calm.append((calm_s, time.time()))
    alive = run.process.poll() is None
    run.process.send_signal(signal.SIGTERM)
    run.process.wait()
    run.clients.end()
    logs = [(read_log(run.folder / f"{life}.log"), rules) for life, rules in enumerate(run.rules, 1)]
    lives = [asdict(decided_again(log, run.engine, rules)) for log, rules in logs]
    return {
        "seconds": time.time() - begun_s, "alive": alive, "left_free": bool(np.isinf(run.locked[-1][1])), "lives": lives,
        "faults": faults, "locked_mhz": locked, "energy": energy,
        "ends": Counter(each.outcome for each in run.clients.streams), "served": [served(run, *each) for each in calm],
    }  # fmt: skip


def served(run: Run, begin: float, end: float) -> dict[str, float]:
    """What requests met in the time without faults, and how the clock followed them, in half minutes."""
    unix_s = time.time() - time.perf_counter()
    inside = [each for each in run.clients.streams if begin <= each.sent_s + unix_s < end - 10.0]
    first_s = np.array([each.arrival_s[0] - each.sent_s if each.arrival_s else np.inf for each in inside])
    gaps_s = np.concatenate([np.diff(each.arrival_s) for each in inside])
    begun_s = np.concatenate([each.arrival_s[:-1] for each in inside]) + unix_s
    slower = np.array([run.costs(mhz)[0] / run.costs(np.inf)[0] for _, mhz in run.locked])  # than at the default clocks
    at_default_s = gaps_s / slower[np.searchsorted([at_s for at_s, _ in run.locked], begun_s).clip(1) - 1]
    sent_s = np.array([each.sent_s for each in inside]) + unix_s
    rates, clocks = list[float](), list[float]()
    for at_s in np.arange(begin, end - 30.0, 30.0):
        rates.append(float(((at_s <= sent_s) & (sent_s < at_s + 30.0)).sum() / 30.0))
        after_s, mhz = zip(*run.clocks(at_s, at_s + 30.0), strict=True)
        clocks.append(float(np.average(np.minimum(mhz, 1980.0), weights=np.diff([*after_s, 30.0]))))
    return {
        "requests": len(inside), "tokens": len(gaps_s), "first_in_time": float((first_s <= TTFT_S).mean()),
        "tokens_in_time": float((gaps_s <= TBT_S).mean()),
        "late_by_clock": float(((gaps_s > TBT_S) & (at_default_s <= TBT_S)).mean()),
        "mean_mhz": float(np.mean(clocks)), "least_per_s": min(rates), "most_per_s": max(rates),
        "rank_of_clock_by_rate": float(spearmanr(rates, clocks).statistic),
    }  # fmt: skip


def judge(verdict: Verdict, found: dict[str, Any]) -> None:
    """Results beside their goals."""
    for number, life in enumerate(found["lives"], 1):
        verdict.at_least(f"life {number}: calls decided alike again", life["alike"], life["calls"])
        verdict.at_least(f"life {number}: decisions as simulated", life["simulated_alike"], life["decisions"])
    for fault, after_s in found["faults"].items():
        limit_s = LIES[fault][1] if fault in LIES else 2.0 if fault == "controller killed" else 10.0
        verdict.at_most(f"{fault}: default clocks after, s", np.inf if after_s is None else after_s, limit_s)
    for fault in ("controller killed", "server killed"):
        verdict.at_least(f"{fault}: MHz locked before", found["locked_mhz"][fault] or 0.0, 1.0)
    for calm in found["served"]:
        verdict.at_least("first tokens in time", calm["first_in_time"], RULES.deadlines.share)
        verdict.at_least("tokens in time", calm["tokens_in_time"], RULES.deadlines.share)
        verdict.at_most("tokens late by the clock", calm["late_by_clock"], 1.0 - RULES.deadlines.share)
        verdict.at_least("rank correlation of clock and rate", calm["rank_of_clock_by_rate"], 0.5)
    told_j, told, true_j, seen = found["energy"]
    print(f"  {told_j / told:.1f} J a request by its metrics, {true_j / seen:.1f} J as it was")
    verdict.at_most("joules a request off", abs(told_j / told / (true_j / seen) - 1.0), 0.05)
    verdict.at_least("the controller runs on, and leaves the default clocks", found["alive"] and found["left_free"], 1)


if __name__ == "__main__":
    run_alone(main, *map(float, sys.argv[1:]))
