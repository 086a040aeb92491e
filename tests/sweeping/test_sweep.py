"""Sweeps: order, resumption, drift, time allowed, and what a kill leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import wastenot as wn
from testbed.toy_gpu import TOY
from wastenot.cli.main import run as run_command
from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.progress import Silent
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.meters.tasks import find_tasks
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions, warm_up

DEVICE = f"sim:{TOY}"
QUICK = PointOptions(0.2, 0.6)


def run(folder, *, seed=1, **options):
    device = open_device(DEVICE, seed=seed)
    units = find_tasks("gpt3-small", DEVICE)
    settings = Grid(core_step_mhz=600, memory_mhz=(9501.0, 5001.0)).settings(device.clocks.supported_clocks())
    study = open_study(folder / "s.db", create=True)
    return device, units, settings, study, measure_sweep(device, units, study, settings, options=QUICK, **options)


@pytest.fixture(scope="module")
def warming_s():
    device = open_device(DEVICE, seed=1)
    warm_up(device, find_tasks("gpt3-small", DEVICE).tasks)
    return device.time.now_s()


def test_a_sweep_fills_a_study_that_can_be_planned(tmp_path):
    device, units, settings, study, outcome = run(tmp_path)
    sweep = study.read()
    again = 4 * 3 + 2  # four settings of three kernels at another temperature, and two baselines that heat
    assert outcome.measured == len(sweep) == len(units.kernels) * (len(settings) + 3) + again
    assert (sweep.device, sweep.origin, sweep.workload) == (DEVICE, "simulated", "gpt3-small")
    assert [kernel.name for kernel in sweep.kernels] == [kernel.name for kernel in units.kernels]
    assert not np.isnan(sweep.time_se_s).any() and not np.isnan(sweep.effective_core_mhz).any()
    made = plan(sweep)
    assert made.predicted.energy_change < -0.01
    assert device.engine.requested == AUTO  # given back


def test_a_second_call_measures_nothing_again(tmp_path):
    run(tmp_path)
    *_, outcome = run(tmp_path)
    assert outcome.measured == 0 and outcome.found > 0


def test_time_allowed_is_kept_and_the_rest_comes_later(tmp_path, warming_s):
    *_, first = run(tmp_path, budget_s=warming_s + 80.0)
    assert first.out_of_time and first.measured > 0
    *_, second = run(tmp_path)
    assert not second.out_of_time and second.found == first.measured


def test_before_all_baselines_the_study_says_how_to_resume(tmp_path, warming_s):
    run(tmp_path, budget_s=warming_s + 15.0)
    with pytest.raises(StudyError, match="resume it"):
        open_study(tmp_path / "s.db").read()


def test_another_device_or_workload_is_refused(tmp_path, warming_s):
    run(tmp_path, budget_s=warming_s + 80.0)
    study = open_study(tmp_path / "s.db")
    other = open_device("sim:h200")
    with pytest.raises(BadInputError, match="name another study"):
        measure_sweep(other, find_tasks("gpt3-small", "sim:h200"), study, ())


def test_the_order_changes_clocks_rarely():
    states = open_device(DEVICE).clocks.supported_clocks()
    settings = Grid(core_step_mhz=210).settings(states)
    assert len(settings) == 10 * 4 == len(set(settings))
    memory_changes = sum(a.memory_mhz != b.memory_mhz for a, b in pairwise(settings))
    jumps = [abs(a.core_mhz - b.core_mhz) for a, b in pairwise(settings)]
    assert memory_changes == 3 and max(jumps) <= 210
    assert min(s.core_mhz for s in settings) == 210 and max(s.core_mhz for s in settings) == 2100


@pytest.mark.parametrize(
    ("grid", "says"),
    [(Grid(core_step_mhz=0), "core_step"), (Grid(core_mhz=(1000.0,)), "nearest is 1005"), (Grid(memory_mhz=(7.0,)), "405")],
)
def test_grids_that_cannot_be_are_refused(grid, says):
    with pytest.raises(BadInputError, match=says):
        grid.settings(open_device(DEVICE).clocks.supported_clocks())


def test_passes_and_iterations_can_be_measured_as_one(tmp_path):
    device = open_device(DEVICE, seed=1)
    totals = {}
    for granularity in ("kernel", "pass", "iteration"):
        units = find_tasks("gpt3-small", DEVICE, granularity=granularity)
        study = open_study(tmp_path / f"{granularity}.db", create=True)
        measure_sweep(device, units, study, (), options=PointOptions(1.0, 10.0))
        base = plan(study.read()).baseline
        totals[granularity] = (base.time_s, base.energy_j)
    assert totals["pass"] == pytest.approx(totals["kernel"], rel=0.02)
    assert totals["iteration"] == pytest.approx(totals["kernel"], rel=0.02)


@pytest.mark.slow
def test_a_kill_loses_at_most_the_point_in_flight(tmp_path):
    """Killed at random moments of its own CPU time, resumed until done: the same points, once each, and the same result."""
    whole, broken = tmp_path / "whole.db", tmp_path / "broken.db"
    code = (
        "import signal, sys, time; signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1])); "  # which ends it at once
        "from wastenot.cli.main import run; code = run(sys.argv[2:]); "
        "print(time.process_time(), file=sys.stderr); sys.exit(code)"
    )
    flags = ["kernel", "sweep", "gpt3-small", "--device", DEVICE, "--core-step", "600", "--memory", "9501", "--warm-up",
             "1s",
             "--window", "1s", "--json", "--study"]  # fmt: skip

    def sweep(study: Path, ends_after_s: float = 0.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(ends_after_s), *flags, str(study)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    took_s = float(sweep(whole).stderr.splitlines()[-1])
    rng = np.random.default_rng(9)
    kept = 0
    for _ in range(3):
        ended = sweep(broken, took_s * float(rng.uniform(0.3, 1.0)))
        assert ended.returncode in (0, -signal.SIGPROF), ended.stderr
        now = rows(broken)
        assert now >= kept  # nothing that was kept is ever lost
        kept = now
    done = sweep(broken)
    assert json.loads(done.stdout)["found"] == kept
    first, second = open_study(whole).read(), open_study(broken).read()
    assert rows(whole) == rows(broken)
    keys = [sorted((s.kernels[i].name, str(s.setting(r))) for r, i in enumerate(s.kernel_index)) for s in (first, second)]
    assert keys[0] == keys[1]
    assert plan(second).baseline.time_s == pytest.approx(plan(first).baseline.time_s, rel=2e-3)
    assert plan(second).predicted.energy_change == pytest.approx(plan(first).predicted.energy_change, abs=0.01)


def rows(path: Path) -> int:
    if not path.exists() or not path.stat().st_size:
        return 0
    import sqlite3

    with sqlite3.connect(path) as connection:
        try:
            return connection.execute("SELECT count(*) FROM wastenot_measurements").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def test_a_study_locked_in_mid_sweep_stops_it_and_loses_nothing(tmp_path, monkeypatch):
    import sqlite3

    monkeypatch.setattr("wastenot.sweeping.measure._HELD_S", 0.0)  # as where a measurement takes longer than that
    device, units = open_device(DEVICE, seed=1), find_tasks("gpt3-small", DEVICE)
    study = open_study(tmp_path / "s.db", create=True, busy_timeout_s=0.1)
    holder = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    kept = 5

    class LockingProgress(Silent):
        done = 0

        def step(self, what):
            self.done += 1
            if self.done == kept:
                holder.execute("BEGIN IMMEDIATE")

    with pytest.raises(StudyError, match="another program is writing"):
        measure_sweep(device, units, study, (), options=QUICK, progress=LockingProgress())
    holder.execute("ROLLBACK")
    holder.close()
    assert rows(tmp_path / "s.db") == kept and device.engine.requested == AUTO
    outcome = measure_sweep(device, units, study, (), options=QUICK)
    assert outcome.measured == 3 * len(units.kernels) - kept


def test_a_full_disk_in_mid_sweep_stops_it_and_loses_nothing(tmp_path, capsys):
    code = (
        "import resource, sys; from wastenot.cli.main import run; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (140_000, 140_000)); sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "kernel", "sweep", "gpt3-small", "--device", DEVICE, "--core-step", "210",
               "--warm-up", "0.2s", "--window", "0.5s", "--study", str(tmp_path / "s.db")]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("error:") and "s.db" in ran.stderr
    kept = rows(tmp_path / "s.db")
    assert kept > 0
    assert run_command([*command[3:], "--json", "--budget", "60s"]) == 0
    assert json.loads(capsys.readouterr().out)["found"] == kept


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"core_step_mhz": 315}, "core_step_mhz: there is no such argument"),
        ({"batch": 4}, "batch: has no effect on a workload whose kernels are given"),
        ({"clocks": "auto"}, "clocks 'auto': give wn.Grid"),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(tmp_path, given, says):
    with pytest.raises(BadInputError, match=re.escape(says)):
        wn.sweep(wn.workload("gpt3-small"), DEVICE, tmp_path / "s.db", **given)
    assert not list(tmp_path.iterdir())


def test_a_grid_takes_arrays():
    assert Grid(core_mhz=np.array([1200, 600])) == Grid(core_mhz=(1200.0, 600.0)) != Grid()
