"""Jobs at work in a program, on the CPU: what they return, what they keep, and what is said of bad input."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import wastenot as wn
from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.setting import AUTO
from wastenot.jobs.plan.decision import Verdict
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.run.place import device_names, place_of
from wastenot.jobs.tables.store import JobStore
from wastenot.meters.sampler import PROCESS_SAMPLER
from wastenot.study.store import open_study

SIZES = [16, 32, 64]


@pytest.fixture
def study(tmp_path):
    return str(tmp_path / "jobs.db")


def job(study, **more):
    terms = {
        "study": study,
        "batch_sizes": SIZES,
        "default": 32,
        "target": 0.9,
        "max_epochs": 10,
        "device": "cpu",
    }
    goal = wn.JobGoal(**{name: more.pop(name) for name in ("eta", "within_s", "power_budget_w") if name in more})
    return wn.job("nightly", goal=goal, **(terms | more))


def read(study):
    return JobStore(open_study(study)).read("nightly")


def train(study, metrics, **more):
    """Report metrics until told to stop; returns the run, and how many were reported."""
    with job(study, **more) as run:
        for count, metric in enumerate(metrics, 1):  # noqa: B007
            if not run.epoch(metric):
                break
    return run, count


def test_a_run_ends_once_the_target_is_reached(study):
    run, reported = train(study, [0.1, 0.5, 0.9, 0.95])
    assert (run.number, run.batch_size, run.outcome, reported, run.epochs) == (1, 32, "reached", 3, 3)
    (kept,) = read(study).runs
    assert (kept.outcome, kept.epochs, kept.metric, kept.batch_size) == ("reached", 3, 0.9, 32) and kept.time_s > 0.0
    (speed,) = read(study).speeds
    assert speed.batch_size == 32 and speed.device.startswith("cpu:") and speed.power_w is None


def test_a_loss_is_reached_from_above(study):
    run, reported = train(study, [2.0, 1.0, 0.2], target=0.5, higher_is_better=False)
    assert (run.outcome, reported) == ("reached", 3)


def test_without_a_target_the_program_decides(study):
    with job(study, target=None) as run:
        assert all(run.epoch() for _ in range(4))
    assert (run.outcome, run.epochs) == ("reached", 4)
    with job(study, target=None) as run:
        pass
    assert (run.outcome, run.epochs) == ("reached", 1)  # a whole run is one epoch where none is told


def test_the_learning_rate_follows_the_batch_size_as_told(study):
    for scaling, factor in (("none", 1.0), ("linear", 2.0), ("square root", math.sqrt(2.0))):
        with job(f"{study}{factor}", batch_sizes=[32, 64], default=32, learning_rate_scaling=scaling) as run:
            run.batch_size = 64
            assert run.learning_rate(0.1) == pytest.approx(0.1 * factor)
    with pytest.raises(BadInputError, match="learning_rate_scaling 'cubic'"):
        job(study, learning_rate_scaling="cubic")


def test_a_run_that_misses_its_target_says_so_and_doubts_a_metric_that_goes_the_other_way(study, capsys):
    run, reported = train(study, [0.4 - 0.01 * epoch for epoch in range(20)])
    assert (run.outcome, reported) == ("missed", 10)
    said = capsys.readouterr().err
    assert "not reached within 10 epochs" in said and "fell, from 0.4 to 0.31" in said and "higher_is_better=False" in said


def test_a_target_reached_by_the_first_epoch_of_all_is_doubted(study, capsys):
    train(study, [2.3])
    assert "the first epoch already reached the target (2.3, target 0.9)" in capsys.readouterr().err
    train(study, [2.3])
    assert "already" not in capsys.readouterr().err


@pytest.mark.parametrize("metric", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_ends_the_run(study, capsys, metric):
    run, reported = train(study, [0.1, metric, 0.95])
    assert (run.outcome, reported) == ("diverged", 2)
    assert f"its metric is {metric}" in capsys.readouterr().err
    (kept,) = read(study).runs
    assert (kept.outcome, kept.epochs, kept.metric) == ("diverged", 2, None)


def test_an_epoch_after_the_end_does_not_count(study, capsys):
    with job(study) as run:
        assert not run.epoch(0.95)
        assert not run.epoch(0.1) and not run.epoch(0.2)
    assert (run.outcome, run.epochs) == ("reached", 1)
    assert run.epoch(0.3) is False
    assert capsys.readouterr().err.count("was reported after the end of the run") == 1
    assert read(study).runs[0].epochs == 1


def test_a_run_that_reports_nothing_teaches_nothing(study, capsys):
    with job(study) as run:
        pass
    assert run.outcome == "failed" and "reported no epoch" in capsys.readouterr().err


def test_a_target_needs_a_metric(study):
    with pytest.raises(BadInputError, match="metric: job 'nightly' has a target"), job(study) as run:
        run.epoch()
    assert read(study).runs[0].outcome == "failed"


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


@pytest.mark.parametrize(
    "error",
    [OutOfMemoryError("no"), MemoryError(), RuntimeError("CUDA error: out of memory")],
    ids=["PyTorch's", "Python's", "the driver's"],
)
def test_what_does_not_fit_is_remembered_and_not_tried_again(study, capsys, error):
    with pytest.raises(type(error)) as raised, job(study):
        raise error
    assert "batch size 32 does not fit into the memory of cpu:" in raised.value.__notes__[0]
    assert "does not fit" in capsys.readouterr().err
    for _ in range(4):
        run, _ = train(study, [0.95])
        assert run.batch_size == 16
    assert [run.outcome for run in read(study).runs] == ["no memory", *["reached"] * 4]
    with pytest.raises(MemoryError), job(study):
        raise MemoryError
    with pytest.raises(BadInputError, match="none fits into the memory"), job(study):
        pass
    assert len(read(study).runs) == 6


def test_an_error_of_the_program_says_nothing_of_the_batch_size(study):
    with pytest.raises(ZeroDivisionError), job(study) as run:
        run.epoch(0.1)
        raise ZeroDivisionError
    assert (run.outcome, read(study).runs[0].outcome) == ("failed", "failed")


def test_an_error_after_the_target_changes_nothing(study):
    with pytest.raises(ZeroDivisionError), job(study) as run:
        run.epoch(0.95)
        raise ZeroDivisionError
    assert read(study).runs[0].outcome == "reached"


def test_a_run_that_its_user_ends_is_lost(study):
    with pytest.raises(KeyboardInterrupt), job(study) as run:
        run.epoch(0.1)
        raise KeyboardInterrupt
    assert (run.outcome, read(study).runs[0].outcome) == ("lost", "lost")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"default": 48}, "default 48: is not one of batch_sizes 16, 32, 64"),
        ({"batch_sizes": []}, "batch_sizes: is empty"),
        ({"batch_sizes": [16.5, 32]}, "16.5 is not a batch size"),
        ({"batch_sizes": [16, 32, "x"]}, "'x' is not a batch size"),
        ({"eta": 1.0}, "eta 1: energy is not measured on cpu:"),
        ({"within_s": 3.0}, "within_s 3: energy is not measured"),
        ({"power_budget_w": 100.0}, "power_budget_w 100: energy is not measured"),
    ],
)
def test_bad_input_is_one_line_and_makes_no_study(study, changes, says):
    with pytest.raises(BadInputError) as error, job(study, **changes):
        pass
    assert says in str(error.value) and "\n" not in str(error.value) and not os.path.exists(study)


def test_a_learning_budget_holds_until_another_is_given(study):
    for given, kept in ((1.5, 1.5), (None, 1.5), (0.5, 0.5), (math.inf, None), (None, None)):
        with job(study, learning_budget=given) as run:
            run.epoch(0.95)
            assert run._learner.terms.learning_budget == kept
        assert read(study).terms.learning_budget == kept


def test_another_target_is_another_job(study):
    train(study, [0.95])
    with pytest.raises(BadInputError, match="another job: give it another name"), job(study, target=0.8):
        pass
    assert len(read(study).runs) == 1


def test_a_study_that_cannot_be_written_does_not_end_the_training(study, capsys):
    with job(study) as run:
        run.epoch(0.1)
        os.unlink(study)
        assert not run.epoch(0.95)
    assert run.outcome == "reached" and "training continues" in capsys.readouterr().err
    assert not os.path.exists(study)


RANK = """
import sys
import wastenot as wn
rank, out = int(sys.argv[2]), []
for metrics in ([0.1, 0.5, 0.95], [0.1, 0.95]):
    with wn.job("nightly", study=sys.argv[1], batch_sizes=[16, 32], default=32, target=0.9, device="cpu") as run:
        said = []
        for metric in metrics:
            said.append(run.epoch(metric if rank == 0 else 0.0))
            if not said[-1]:
                break
    out.append((run.number, run.batch_size, said))
print(out)
"""


def test_ranks_run_what_the_first_decides(study):
    def start(rank):
        ranks = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        path = {"PYTHONPATH": os.pathsep.join(["", *sys.path])}
        return subprocess.Popen(
            [sys.executable, "-c", RANK, study, str(rank)], env=os.environ | ranks | path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    programs = [start(rank) for rank in (1, 0)]
    told = [program.communicate(timeout=60) for program in programs]
    assert [program.returncode for program in programs] == [0, 0], told
    assert told[0][0] == told[1][0] and "[True, True, False]), (2," in told[0][0], told
    first, second = read(study).runs
    assert (first.outcome, first.epochs) == ("reached", 3) and second.outcome in ("reached", "stopped")


def test_energy_is_that_of_all_gpus_of_the_job(study):
    """On simulated cards that idle, whose power is known."""
    for gpus in ("sim:h200", ("sim:h200", "sim:v100")):
        with job(f"{study}{len(gpus)}", device=gpus, eta=None, settings="none") as run:
            for metric in (0.1, 0.2, 0.95):
                time.sleep(0.25)
                run.epoch(metric)
        (kept,) = JobStore(open_study(f"{study}{len(gpus)}")).read("nightly").runs
        terms = JobStore(open_study(f"{study}{len(gpus)}")).read("nightly").terms
        idle_w = kept.energy_j / kept.time_s
        if isinstance(gpus, str):
            alone_w, limit_w = idle_w, terms.max_power_w
            assert kept.device == "sim:h200" and (terms.eta, terms.settings) == (0.5, (AUTO,)) and limit_w == 700.0
        else:
            assert kept.device == "sim:h200 + sim:v100" and terms.max_power_w > limit_w
            assert idle_w > 1.05 * alone_w
    assert alone_w > 10.0


def test_limits_are_set_while_the_job_runs_and_given_back(study, monkeypatch, runtime):
    asked = []
    clocks = type(PROCESS_SAMPLER.get().device("sim:h200").clocks)
    request = clocks.request
    monkeypatch.setattr(clocks, "request", lambda self, setting: (asked.append(setting), request(self, setting))[1])
    with job(study, device="sim:h200", eta=0.5) as run:
        for metric in (0.1, 0.2, 0.95):
            time.sleep(0.3)
            run.epoch(metric)
    stored = read(study)
    assert len(stored.terms.settings) > 5 and run.outcome == "reached"
    limit = stored.runs[0].setting
    assert limit in stored.terms.settings and limit in asked
    assert PROCESS_SAMPLER.get().device("sim:h200").engine.requested == AUTO  # given back
    assert all(speed.setting in stored.terms.settings for speed in stored.speeds)


@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
def test_limits_are_given_back_however_the_program_ends(study, error, runtime):
    with pytest.raises(error) if error else nullcontext(), job(study, device="sim:h200", eta=0.5):
        time.sleep(0.2)
        assert PROCESS_SAMPLER.get().device("sim:h200").engine.requested != AUTO
        if error:
            raise error
    assert PROCESS_SAMPLER.get().device("sim:h200").engine.requested == AUTO


def test_where_limits_may_not_be_set_one_line_says_so(study, monkeypatch, capsys):
    clocks = type(PROCESS_SAMPLER.get().device("sim:h200").clocks)
    monkeypatch.setattr(clocks, "refusal", lambda self: "this process may not set clocks: it lacks a right")
    with job(study, device="sim:h200", eta=1.0) as run:
        run.epoch(0.95)
    said = [line for line in capsys.readouterr().err.splitlines() if "left unchanged" in line]
    assert said == [
        "wastenot: job 'nightly': power limits are left unchanged: this process may not set clocks: it lacks a right"
    ]
    assert read(study).terms.settings == (AUTO,)


def test_settings_that_cannot_be_wanted(study):
    with pytest.raises(BadInputError, match="settings 'volts'"), job(study, device="sim:h200", settings="volts", eta=None):
        pass
    with pytest.raises(BadInputError, match="nothing can be set on cpu:"), job(study, settings=[AUTO]):
        pass


def test_a_weight_of_energy_is_left_out_where_nothing_measures_it_and_a_line_says_so(study, capsys):
    train(study, [0.95], eta=0.5)
    assert "eta=0.5 is 0 here (shortest time): energy is not measured on cpu:" in capsys.readouterr().err
    assert read(study).terms.eta == 0.0


def test_what_did_not_fit_may_be_tried_again_once_its_user_says_so(study):
    with pytest.raises(MemoryError), job(study):
        raise MemoryError
    assert train(study, [0.95])[0].batch_size == 16
    store = JobStore(open_study(study))
    with pytest.raises(BadInputError, match="has not run there"):
        store.forget_memory("nightly", "another GPU")
    assert store.forget_memory("nightly") == (32,) and store.forget_memory("nightly") == ()
    assert [run.outcome for run in read(study).runs] == ["failed", "reached"]
    assert any(train(study, [0.95])[0].batch_size > 16 for _ in range(6))


def test_a_target_that_no_batch_size_reaches_is_said_so(study, capsys):
    for _ in range(3):
        train(study, [0.1, 0.2, 0.3], max_epochs=3)
    assert "runs has reached the target" not in capsys.readouterr().err
    train(study, [0.1, 0.2, 0.25], max_epochs=3)
    said = capsys.readouterr().err
    assert "none of 3 runs has reached the target (batch sizes " in said and "the nearest ended at 0.3: check" in said
    assert {run.outcome for run in read(study).runs} <= {"missed", "stopped"}
    assert train(study, [0.95])[0].outcome == "reached"
    capsys.readouterr()
    train(study, [0.95])
    assert "has reached the target" not in capsys.readouterr().err


SPREAD = """
import os, sys, time
import wastenot as wn
with wn.job(
    "nightly", study=sys.argv[1], batch_sizes=[16, 32], default=32, target=0.9, device="sim:h200", settings="limits"
) as run:
    for metric in (0.1, 0.95):
        time.sleep(0.7)
        run.epoch(metric)
time.sleep(0.5)
print(run.outcome)
"""


@pytest.mark.slow
def test_a_run_on_several_machines_counts_the_energy_of_all(study):
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} for rank in (0, 1)]
    path = {"PYTHONPATH": os.pathsep.join(["", *sys.path]), "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", SPREAD, study], env=os.environ | each | path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for each in ranks
    ]  # fmt: skip
    told = [program.communicate(timeout=60) for program in programs]
    assert [out for out, _ in told] == ["reached\n"] * 2, told
    assert "power limits are left unchanged, since the run spans 2 machines" in told[0][1]
    stored = read(study)
    (run,), (speed,) = stored.runs, stored.speeds
    assert run.device == "2 × (sim:h200)" and stored.terms.max_power_w == 1400.0
    with sqlite3.connect(study) as connection:
        ((first_j,),) = connection.execute("SELECT energy_j FROM wastenot_job_runs").fetchall()
        ((second_j,),) = connection.execute("SELECT energy_j FROM wastenot_job_energy_elsewhere").fetchall()
    assert min(first_j, second_j) > 0.0 and run.energy_j == pytest.approx(first_j + second_j)
    assert speed.power_w == pytest.approx(2.0 * first_j / run.time_s, rel=0.5)


def test_numbers_of_whatever_kind_do(study):
    with job(study, batch_sizes=np.array([32, 16]), default=np.int64(16), target=np.float32(0.5)) as run:
        run.epoch(np.float32(0.75))
    assert (run.batch_size, run.outcome) == (16, "reached")
    with pytest.raises(BadInputError, match="metric 'good': is not a number"), job(study, target=0.5) as run:
        run.epoch("good")


OUT_OF_MEMORY = """
import sys, time
import wastenot as wn
rank = int(sys.argv[2])
with wn.job("nightly", study=sys.argv[1], batch_sizes=[16, 32], default=32, target=0.9, device="cpu") as run:
    run.epoch(0.1)
    if rank == 1:
        raise MemoryError
    time.sleep(2.0)
    raise RuntimeError("the other rank is gone")
"""


@pytest.mark.slow
def test_what_does_not_fit_on_another_rank_is_remembered_too(study):
    path = {"PYTHONPATH": os.pathsep.join(["", *sys.path])}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", OUT_OF_MEMORY, study, str(rank)], stderr=subprocess.DEVNULL,
            env=os.environ | path | {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
        )
        for rank in (0, 1)
    ]  # fmt: skip
    assert [program.wait(60) for program in programs] == [1, 1]
    assert [run.outcome for run in read(study).runs] == ["no memory"]


def test_a_fault_of_ours_does_not_end_the_training(study, monkeypatch, capsys):
    def broken(self, run):
        raise FloatingPointError("oops")

    monkeypatch.setattr(Learner, "goes_on", broken)
    run, reported = train(study, [0.1, 0.2, 0.95])
    assert (run.outcome, reported) == ("reached", 3)
    assert capsys.readouterr().err.count("FloatingPointError: oops); training continues") == 1


def test_a_program_that_ignores_that_it_is_stopped_may_still_reach_its_target(study, monkeypatch, capsys):
    monkeypatch.setattr(Learner, "goes_on", lambda self, run: Verdict(run.epochs < 2, "a test says so"))
    with job(study) as run:
        assert [run.epoch(metric) for metric in (0.1, 0.2, 0.3)] == [True, False, False]
        assert (run.outcome, run.why, read(study).runs[0].outcome) == ("stopped", "a test says so", "stopped")
        assert run.epoch(0.95) is False
    assert (run.outcome, read(study).runs[0].outcome, read(study).runs[0].epochs) == ("reached", "reached", 4)
    assert capsys.readouterr().err.count("is stopped after") == 1
    with job(study) as run:
        run.epoch(0.1), run.epoch(0.2)
    assert (run.outcome, read(study).runs[1].outcome, read(study).runs[1].epochs) == ("stopped", "stopped", 2)


class Torch:
    """PyTorch on a machine with GPUs, as far as a job asks it."""

    def __init__(self, *, hip=None, there=True):
        self.version = SimpleNamespace(hip=hip, cuda=None if hip else "12.8")
        self.cuda = SimpleNamespace(
            is_available=lambda: there,
            is_initialized=lambda: True,
            current_device=lambda: 1,
            get_device_properties=lambda index: SimpleNamespace(uuid=f"uuid-of-{index}"),
            get_device_name=lambda: "AMD Instinct",
        )


def test_the_device_is_the_one_that_pytorch_uses(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", Torch())
    assert device_names(None) == ("nvidia:GPU-uuid-of-1",) and device_names("cpu") == ()
    assert device_names("nvidia:0,1") == ("nvidia:0", "nvidia:1")
    with pytest.raises(BadInputError, match="name only the GPUs"):
        device_names(("cpu", "nvidia:0"))
    monkeypatch.setitem(sys.modules, "torch", Torch(there=False))
    assert device_names(None) == ()
    monkeypatch.setitem(sys.modules, "torch", Torch(hip="6.2"))
    with pytest.raises(MissingExtraError, match="AMD"):  # its binding or its library, as for any vendor's
        place_of(None)
