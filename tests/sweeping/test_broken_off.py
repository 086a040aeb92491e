"""Sweeps that were broken off, searched, resumed or recorded by an earlier version, and what plans of them claim."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from testbed.toy_gpu import TOY
from wastenot.core.errors import BadInputError, CannotRunError
from wastenot.devices.open import open_device
from wastenot.kernels.model.context import change_in_context
from wastenot.kernels.page.summary import plan_numbers, warnings
from wastenot.kernels.run.refine import finalists, refine
from wastenot.kernels.run.search import search_sweep
from wastenot.meters.tasks import find_tasks
from wastenot.planning.comparison import compare, whole_frontier
from wastenot.planning.planner import plan
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions

DEVICE = f"sim:{TOY}"
QUICK = PointOptions(0.05, 0.1)
HALF_S = 220.0  # of device time: warming up takes 95 s of the 394 s of a whole sweep
SOME, ALL = slice(None, None, 4), slice(None)


class Setup:
    """A toy GPU, some kernels of all passes of a small model or the passes themselves, and a study for them."""

    def __init__(self, path, granularity="kernel", step_mhz=600.0, which=SOME):
        self.device = open_device(DEVICE, seed=1)
        self.units = find_tasks("gpt3-small", DEVICE, granularity=granularity)
        if granularity == "kernel" and which is not ALL:
            self.units = replace(self.units, run=None, kernels=self.units.kernels[which], tasks=self.units.tasks[which])
        self.settings = Grid(step_mhz, memory_mhz=(9501.0, 5001.0)).settings(self.device.clocks.supported_clocks())
        self.study = open_study(path, create=True)

    def sweep(self, **options):
        return measure_sweep(self.device, self.units, self.study, self.settings, options=QUICK, **options)

    def search(self, **options):
        return search_sweep(self.device, self.units, self.study, self.settings, options=QUICK, **options)

    @property
    def points(self):
        return len(self.units.kernels) * (1 + len(self.settings))


@pytest.fixture
def at(tmp_path):
    return Setup(tmp_path / "s.db")


def certificate(made):
    return next(card for card in plan_numbers(made, None) if card.label == "Certificate")


def test_a_complete_grid_is_proven(at):
    at.sweep()
    made = plan(at.study, as_measured=True)
    assert (made.coverage.kind, made.coverage.measured, made.coverage.of) == ("grid", at.points, at.points)
    assert made.coverage.complete and made.coverage.finished and made.coverage.command is None
    assert certificate(made).value == "proven optimal"
    assert certificate(made).detail.startswith(f"proved among all {at.points:,} points of the grid: no plan")
    assert not any("ncomplete" in warning for warning in warnings(made))


def test_a_sweep_out_of_time_is_incomplete_until_it_is_resumed(at):
    outcome = at.sweep(budget_s=HALF_S, command="wastenot kernel sweep again")
    assert outcome.out_of_time
    made = plan(at.study, as_measured=True)
    here = made.coverage
    assert (here.kind, here.of, here.complete, here.finished) == ("grid", at.points, False, False)
    assert here.measured == len({(row.kernel, row.setting) for row in at.study.measurements()}) < at.points
    assert certificate(made).value == "best of those measured"
    assert f"among the {here.measured:,} of {at.points:,} points measured: no" in certificate(made).detail
    note = warnings(made)[0]
    assert note.startswith("Incomplete: the sweep was interrupted or is still running") and note.endswith(
        "Resume it: wastenot kernel sweep again"
    )
    assert compare(at.study).coverage == here
    assert whole_frontier(at.study, [0.0]).coverage == here
    (summary,) = at.study.summary().workloads
    assert (summary.coverage, len(summary.sweeps), summary.sweeps[0].finished_at) == (here, 1, None)
    assert (summary.sweeps[0].measured, summary.sweeps[0].points) == (here.measured, here.of)

    at.sweep()  # which is the same sweep, and not a second one
    assert plan(at.study).coverage.complete
    (summary,) = at.study.summary().workloads
    assert len(summary.sweeps) == 1 and summary.sweeps[0].finished_at is not None
    assert summary.sweeps[0].measured == summary.sweeps[0].points == at.points


def test_a_finer_grid_adds_to_what_is_intended(tmp_path):
    coarse = Setup(tmp_path / "s.db")
    coarse.sweep()
    fine = Setup(tmp_path / "s.db", step_mhz=300.0)
    fine.sweep(budget_s=120.0)
    here = plan(fine.study).coverage
    assert not here.complete and coarse.points <= here.measured < here.of == fine.points
    fine.sweep()
    assert plan(fine.study).coverage.complete


def test_a_search_supports_plans_of_what_it_searched_only(at):
    at.settings = Grid(150.0, memory_mhz=(9501.0, 5001.0)).settings(at.device.clocks.supported_clocks())
    at.search(share=0.4)
    made = plan(at.study, as_measured=True)
    here = made.coverage
    assert (here.kind, here.of, here.complete, here.finished) == ("search", at.points, False, True)
    assert here.measured <= 0.4 * at.points
    assert certificate(made).value == "best of those measured"
    assert warnings(made)[0].startswith(f"Found by a search: {here.measured:,} of the {here.of:,} points")
    for coarse in ("pass", "iteration"):
        with pytest.raises(BadInputError, match=r"a search chose the points of each kernel separately.*sweep the grid"):
            plan(at.study, granularity=coarse)
    rows = [row for row in compare(at.study).rows if row.granularity == "pass"]
    assert rows and all(row.energy_change is None and "search chose" in row.reason for row in rows)
    # The grid beside it gives what kernels share.
    at.settings = Grid(600.0, memory_mhz=(9501.0, 5001.0)).settings(at.device.clocks.supported_clocks())
    at.sweep()
    assert plan(at.study, granularity="pass").coverage.kind == "grid"


def test_a_search_by_pass_gives_plans_by_pass_but_not_of_the_iteration(tmp_path):
    at = Setup(tmp_path / "s.db", "pass", 150.0)
    at.search(share=0.5)
    assert plan(at.study, granularity="pass").coverage.kind == "search"
    with pytest.raises(BadInputError, match="points of each pass separately"):
        plan(at.study, granularity="iteration")


def test_a_search_that_a_sweep_completes_is_a_grid(at):
    at.search(share=1.0)
    at.sweep()
    assert plan(at.study, granularity="pass").coverage.complete


def test_the_finalists_of_another_card_are_no_grid(at, tmp_path):
    at.sweep()
    made = plan(at.study, as_measured=True)
    assert refine_again(at, at.study, made).complete
    other = open_study(tmp_path / "other.db", create=True)
    here = refine_again(at, other, made)
    assert (here.kind, here.of, here.complete) == ("refine", None, None)
    assert "Only the finalists" in warnings(plan(other))[0]
    with pytest.raises(BadInputError, match="only a plan's finalists were measured"):
        plan(other, granularity="pass")


def refine_again(at, study, made):
    refine(at.device, at.units, study, finalists(at.study.read(), made, 2), repeats=1, options=QUICK)
    return plan(study).coverage


def test_points_that_cannot_run_are_not_missing(at, monkeypatch):
    victim, setting = at.units.tasks[3].name, at.settings[1]
    start = at.device.launcher.__class__.start

    def refuse(launcher, task):
        if task.name == victim and at.device.engine.requested == setting:
            raise CannotRunError("does not fit into memory")
        return start(launcher, task)

    monkeypatch.setattr(at.device.launcher.__class__, "start", refuse)
    outcome = at.sweep()
    assert outcome.skipped == {"CannotRunError": 1}
    here = plan(at.study).coverage
    assert here.complete and here.measured == here.of == at.points - 1


ENDS_ITSELF = """
import os, sqlite3, sys
from wastenot.cli.main import run
from wastenot.study.recorder import Recorder

def append_and_end(self, *trials, append=Recorder.append):
    append(self, *trials)
    (rows,) = sqlite3.connect("s.db").execute("SELECT count(*) FROM wastenot_measurements").fetchone()
    if rows >= 60:
        os.kill(os.getpid(), number)

number, *words = int(sys.argv[1]), *sys.argv[2:]
Recorder.append, sys.argv = append_and_end, ["wastenot", *words]
sys.exit(run(words))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_sweep_that_is_broken_off_says_so_and_how_to_resume_it(tmp_path, number):
    """The program is sent the signal once it has stored 60 rows, of every kernel one at least."""
    flags = ["--core-step", "300", "--warm-up", "0.2s", "--window", "0.5s"]
    command = ["kernel", "sweep", "gpt3-small", "--device", DEVICE, "--study", "s.db", *flags]
    program = subprocess.run(
        [sys.executable, "-c", ENDS_ITSELF, str(int(number)), *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert program.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), program.stderr
    here = plan(tmp_path / "s.db").coverage
    assert not here.complete and not here.finished and 60 <= here.measured < here.of
    assert here.command == "wastenot " + " ".join(command)
    # Nothing stands in the way of the next one on this host, neither after Ctrl-C nor after a kill.
    at = Setup(tmp_path / "s.db", which=ALL)
    at.settings = ()
    at.sweep()
    assert open_study(tmp_path / "s.db").summary().workloads[0].holder is None


@pytest.mark.slow
def test_states_are_compared_once_both_are_whole(tmp_path):
    at = Setup(tmp_path / "s.db", which=ALL)
    at.sweep()
    at.units = replace(at.units, state="context")
    made = plan(at.study, as_measured=True)
    for budget_s in (150.0, 450.0):  # before all kernels have a baseline in context, and after
        assert at.sweep(budget_s=budget_s).out_of_time
        assert change_in_context(at.study, at.study.read(state="ssp"), made) is None
    at.sweep()
    assert change_in_context(at.study, at.study.read(state="ssp"), made) is not None
