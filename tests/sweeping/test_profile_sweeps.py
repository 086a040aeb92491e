"""Workload power profiles from a sweep of them into a study, beside plans, and from a running job into a plan."""

from collections import Counter

import numpy as np
import pytest

import wastenot as wn
from wastenot.cli.main import run as run_command
from wastenot.core.errors import BadInputError
from wastenot.core.profiles import profile_name, profile_number
from wastenot.core.setting import AUTO, Setting
from wastenot.core.vendors import commands, undo_commands
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.planning.comparison import compare
from wastenot.planning.planner import Planner
from wastenot.planning.profiles import profile_outcomes, without_profiles
from wastenot.study.sweep import rows_of
from wastenot.study.sweep_file import read_sweep
from wastenot.sweeping.grid import Grid, Search

CORE = (1200.0, 1500.0, 1800.0)
PROFILES = ("max-q", "llm-training")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("profiles") / "study.db")
    wn.sweep("gpt3-small", "sim:b200", path, clocks=Grid(core_mhz=CORE, profile=PROFILES))
    return path


@pytest.fixture(scope="module")
def sweep(study):
    return wn.open_study(study).read()


def test_names_and_numbers_are_each_others():
    assert [profile_number(profile_name(number)) for number in range(256)] == [*range(256)]
    assert profile_number("max-q") == 1 and profile_name(40) == "profile-40"
    assert [profile_number(text) for text in ("MAX-Q", "profile-7", "profile-", "", "7")] == [None] * 5  # 7 has a name


def test_names_are_those_of_the_drivers_binding():
    pynvml = pytest.importorskip("pynvml")
    prefix = "NVML_POWER_PROFILE_"
    theirs = {name: number for name, number in vars(pynvml).items() if name.startswith(prefix) and "OPERATION" not in name}
    assert len(theirs) > 20
    for name, number in theirs.items():
        assert profile_name(number) == name.removeprefix(prefix).lower().replace("_", "-")


def test_a_simulated_profile_is_its_ceilings():
    device, preset = open_device("sim:b200"), wn.workload("gpt3-small").kernels
    assert device.clocks.profiles() == ("max-q", "llm-inference", "llm-training")
    for kernel in preset[::7]:
        task = Task.of_kernel(kernel)
        assert device.truth(task, Setting(profile="llm-inference")) == device.truth(task, Setting(core_mhz=1500.0))
        assert device.truth(task, Setting(profile="max-q")) == device.truth(task, Setting(power_limit_w=850.0))
        both = Setting(1800.0, None, 600.0, "llm-training")  # whichever is lower
        assert device.truth(task, both) == device.truth(task, Setting(1650.0, None, 600.0))


def test_each_kernel_is_measured_at_each_profile_and_kept_with_its_name(study, sweep):
    kernels = len(sweep.kernels)
    settings = {sweep.setting(row) for row in range(len(sweep))}
    assert {Setting(profile=name) for name in PROFILES} < settings and AUTO in settings
    made = [one.setting for one in wn.open_study(study).measurements()]
    assert [made.count(Setting(profile=name)) for name in PROFILES] == [kernels, kernels]
    assert {sweep.setting(row) for row in np.flatnonzero(sweep.automatic)} == {AUTO}


def test_a_second_sweep_measures_nothing_twice(study):
    again = wn.sweep("gpt3-small", "sim:b200", study, clocks=Grid(core_mhz=CORE, profile=PROFILES))
    assert again.measured == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_hold_profiles(study, sweep, tmp_path, ending):
    path = tmp_path / f"sweep.{ending}"
    assert run_command(["study", "export", str(path), "--study", study]) == 0
    read = read_sweep(path, device="x")
    points = [Counter((each.kernels[each.kernel_index[row]].name, each.setting(row)) for row in range(len(each)))
              for each in (read, sweep)]  # fmt: skip
    assert points[0] == points[1] and np.nanmax(read.profile) == 7.0


def test_a_plan_is_made_of_clocks_as_if_no_profile_had_been_measured(sweep):
    bare = without_profiles(sweep)
    assert len(bare) == len(sweep) - np.isfinite(sweep.profile).sum() and np.isnan(bare.profile).all()
    assert without_profiles(bare) is bare
    made, without = (wn.plan(each, max_slowdown=0.02) for each in (sweep, bare))
    assert made.assignments == without.assignments and made.headline == without.headline
    assert {each.profile for each in made.assignments} == {None} and made.headline.energy_change < 0.0
    coverage = Planner(sweep).coverage
    assert coverage == Planner(bare).coverage and coverage.measured == coverage.of and coverage.complete


def test_the_vendors_profiles_stand_beside_plans(study, sweep, capsys):
    compared = compare(study)
    assert [each.name for each in compared.profiles] == ["llm-training", "max-q"]  # the one that saves most first
    device, kernels = open_device("sim:b200"), {kernel.name: kernel for kernel in wn.workload("gpt3-small").kernels}
    for each in compared.profiles:
        whole = np.zeros((2, 2))
        for kernel in sweep.kernels:
            for row, setting in enumerate((AUTO, Setting(profile=each.name))):
                point = device.truth(Task.of_kernel(kernels[kernel.name]), setting)
                whole[row] += kernel.count * np.array([point.time_s, point.time_s * point.power_w])
        true_time, true_energy = whole[1] / whole[0] - 1.0
        assert each.time_change == pytest.approx(true_time, abs=0.004)  # runs differ by 0.2 % in time and 0.4 % in power
        assert each.energy_change == pytest.approx(true_energy, abs=0.01)
        assert 0.0 < each.time_error < 0.002 and 0.0 < each.energy_error < 0.004
    assert run_command(["kernel", "frontier", "--study", study, "--compare"]) == 0
    said = capsys.readouterr().out
    assert "the vendor's profiles" in said and "max-q" in said and " ± " in said


def test_a_profile_that_not_every_kernel_was_measured_at_is_no_outcome(sweep):
    keep = ~((sweep.kernel_index == 0) & (sweep.profile == 1.0))
    assert [each.name for each in profile_outcomes(rows_of(sweep, np.flatnonzero(keep)))] == ["llm-training"]


@pytest.mark.parametrize(
    ("device", "names", "says"),
    [
        ("sim:b200", ("max-p",), "^profile max-p: sim:b200 has no such .*; it has max-q, llm-inference, llm-training"),
        ("sim:h200", ("max-q",), "sim:h200 has no such workload power profile; it has none that may be set here"),
    ],
)
def test_profiles_that_a_device_has_not_are_refused(device, names, says, tmp_path):
    with pytest.raises(BadInputError, match=says):
        wn.sweep("gpt3-small", device, tmp_path / "s.db", clocks=Grid(core_mhz=(1500.0,), profile=names))


def test_a_search_is_among_clocks():
    with pytest.raises(BadInputError, match=r"profile: a search is among clocks"):
        Search(grid=Grid(profile=("max-q",)))


@pytest.mark.parametrize("text", ["max_q", "", "max-q,", "fastest"])
def test_names_that_nobody_has_are_refused_before_anything_runs(text, capsys):
    assert run_command(["kernel", "sweep", "gpt3-small", "--device", "sim:b200", "--dry-run", "--profile", text]) == 2
    assert "no workload power profile has the name" in capsys.readouterr().err


def test_a_job_is_tuned_among_profiles_and_the_plan_put_to_work(tmp_path, capsys):
    options = wn.TuneOptions(core_mhz=[1905.0], profile=["max-q", "llm-training"])
    found = wn.tune("gpt3-small", "sim:b200", options, max_slowdown=0.15)
    tried = {trial.profile: trial for trial in found.summary.trials}
    assert tried.keys() == {None, "max-q", "llm-training"}
    assert found.plan.assignments[0].profile == "llm-training" and tried["llm-training"].outcome == "held"
    assert found.plan.headline.energy_change == pytest.approx(-0.058, abs=0.02)
    path = tmp_path / "plan.json"
    found.write(path)
    assert wn.read_plan(path) == found.plan
    assert {each.setting.profile for each in found.plan.schedule.rungs[0].segments} == {"llm-training"}
    assert run_command(["apply", str(path), "--device", "sim:b200", "--iterations", "30", "--quiet", "--json"]) == 0
    assert '"target_profile":"llm-training"' in capsys.readouterr().out.replace(" ", "")
    assert run_command(["apply", str(path), "--device", "sim:h200", "--iterations", "30", "--quiet", "--json"]) != 0


def test_a_gpu_without_the_profile_is_not_tuned_to_it():
    with pytest.raises(BadInputError, match=r"^profile max-q: the GPU has no such workload power profile"):
        wn.tune("gpt3-small", "sim:h200", wn.TuneOptions(profile=["max-q"]))


def test_a_plan_without_a_profile_is_written_as_before(sweep):
    assert "profile" not in str(wn.plan(sweep, max_slowdown=0.02).document()["assignments"])


def test_commands_set_and_clear_a_profile():
    found = commands("NVIDIA B200", Setting(1410.0, profile="llm-training"))
    assert found == ("nvidia-smi power-profiles -i 0 -sr 7", "nvidia-smi -i 0 -lgc 0,1410")
    assert undo_commands(found) == ("nvidia-smi power-profiles -i 0 -cr 7", "nvidia-smi -i 0 -rgc")
