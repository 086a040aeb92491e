"""Verbs that measure, on simulated devices, as a user runs them."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest

import wastenot as wn
from testbed.few_kernels import write_few_kernels
from testbed.program import Program
from testbed.toy_gpu import TOY
from wastenot.kernels.cli.sweep import outcome_lines
from wastenot.sweeping.measure import Drift, SweepOutcome
from wastenot.workloads.identity import WorkloadKey

SWEEP = ["kernel", "sweep", "few.json", "--device", "sim:toy.toml", "--study", "s.db", "--core-step", "600", "--memory",
         "9501",
         "--warm-up", "0.5s", "--window", "0.5s"]  # fmt: skip


@pytest.fixture
def toy(wastenot):
    shutil.copy(TOY, wastenot.folder / "toy.toml")
    write_few_kernels(wastenot.folder / "few.json")
    return wastenot


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """A folder with a study, a plan of it and the plan validated, to be copied; and what validating it printed."""
    folder = tmp_path_factory.mktemp("validated")
    shutil.copy(TOY, folder / "toy.toml")
    write_few_kernels(folder / "few.json", each=12)
    program = Program(folder)
    for arguments in (
        SWEEP,
        ["kernel", "plan", "--study", "s.db", "--out", "plan.json"],
        ["kernel", "validate", "--study", "s.db", "--plan", "plan.json", "--repeats", "2", "--out", "checked.json"],
    ):
        ran = program(*arguments)
        assert ran.code == 0, ran.err
    return folder, ran.out


@pytest.fixture
def swept(wastenot, validated):
    shutil.copytree(validated[0], wastenot.folder, dirs_exist_ok=True)
    return wastenot


def test_sweep_tells_what_it_did_and_goes_on(toy):
    first = json.loads(toy(*SWEEP, "--json").out)
    again = json.loads(toy(*SWEEP, "--json").out)
    assert first["measured"] > 0 and first["origin"] == "simulated" and first["workload"] == "few"
    assert (again["measured"], again["found"]) == (0, first["measured"])


def test_validate_and_refine(swept, validated):
    assert "interleaved with the default clocks" in validated[1] and "simulated" in validated[1]
    assert json.loads((swept.folder / "checked.json").read_text())["validation"]["repeats"] == 2
    assert swept("diff", "plan.json", "checked.json").code == 0
    refined = json.loads(
        swept("kernel", "refine", "--study", "s.db", "--device", "sim:toy.toml", "--repeats", "1", "--json").out
    )
    assert refined["measured"] > 0 and refined["before"] and refined["after"]


def test_a_validated_plan_is_reported(swept):
    page = swept("report", "checked.json", "--study", "s.db", "--page", "checked.html", "--json")
    assert page.code == 0, page.err
    text = (swept.folder / "checked.html").read_text(encoding="utf-8")
    assert "SIMULATED" in text.upper()
    foot = text.partition("<footer>")[2]
    assert "<code>wastenot report checked.json --study s.db --page checked.html --json</code>" in foot
    assert json.loads((swept.folder / "checked.json").read_text())["digest"] in foot and "s.db, swept 20" in foot
    assert json.loads(page.out)["plan"]["validation"]["repeats"] == 2


def test_run_does_everything(toy, monkeypatch):
    folder = toy.folder / "all"
    # Drawing takes longest: the page is looked at above, page and figures together in test_verbs.py.
    report = mock.create_autospec(wn.report, return_value=(folder / "report.html",))
    monkeypatch.setattr("wastenot.kernels.page.page.report", report)
    command = (
        "kernel",
        "run",
        "few.json",
        "--device",
        "sim:toy.toml",
        "--core-step",
        "900",
        "--repeats",
        "2",
        "--out",
        "all",
    )
    ran = toy(*command)
    assert ran.code == 0, ran.err
    assert "Each kernel, and all numbers: wastenot show all/plan.json -v" in ran.out and "Objective" not in ran.out
    assert "\nToday     " in ran.out and "\nValidated " in ran.out and "\nPage      file:" in ran.out
    assert {path.name for path in folder.iterdir()} == {"study.db", "plan.json"}
    (given,) = report.call_args_list
    assert given.args[1] == Path("all/report.html") and given.kwargs["figures"] == Path("all/figures")
    assert given.kwargs["plan"] == Path("all/plan.json")
    report.return_value[0].touch()
    assert "Objective" in toy(*command, "-v").out
    document = json.loads(toy(*command, "--json").out)
    assert all((toy.folder / file).is_file() for file in document["files"]) and len(document["files"]) == 3
    assert document["sweep"]["measured"] == 0 and document["sweep"]["found"] > 0
    assert document["plan"] == json.loads((folder / "plan.json").read_text())
    assert document["comparison"]["rows"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "sweep", "gpt3-xxl", "--device", "sim:h200", "--study", "x.db"], "did you mean 'gpt3-xl'"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h20", "--study", "x.db"], "did you mean 'h200'"),
        (["kernel", "sweep", "gpt3-xl", "--device", "simm:h200", "--study", "x.db"], "did you mean 'sim'"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:", "--study", "x.db"], "sim:NAME"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:none.toml", "--study", "x.db"], "none.toml"),
        (["kernel", "sweep", "gpt3-xl", "--device", "recorded:none.db", "--study", "x.db"], "none.db"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--batch", "0"], "--batch 0"),
        (
            ["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--tensor-parallel", "3"],
            "does not divide",
        ),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--core", "1000"], "nearest is"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--memory", "fast"], "not a clock"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--budget", "soon"], "90s, 45m or 2h"),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--window", "0"], "--window"),
        (
            ["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "x.db", "--search", "model", "--share", "2"],
            "--share",
        ),
        (["kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "nowhere/x.db"], "nowhere"),
        (["kernel", "run", "gpt3-xl", "--device", "sim:h200", "--max-slowdown", "-2"], "-2 would be 200 % faster"),
        (["kernel", "run", "gpt3-xl", "--device", "sim:h200", "--out", "sweep.csv"], "sweep.csv"),
        (["kernel", "transfer", "--plan", "none.json", "--device", "sim:h200", "--batch", "1"], "none.json"),
        (["kernel", "transfer", "--plan", "none.json", "--device", "sim:h200"], "either --batch"),
        (["kernel", "validate", "--study", "none.db", "--plan", "none.json"], "none"),
    ],
)
def test_nonsense_is_refused_in_one_line(wastenot, arguments, says):
    before = set(wastenot.folder.iterdir())
    assert says in wastenot.refuse(*arguments)
    assert set(wastenot.folder.iterdir()) == before


def test_a_study_of_another_device_is_refused(swept):
    arguments = [word.replace("sim:toy.toml", "sim:rtx-3080-ti") for word in SWEEP]
    assert "name another study" in swept.refuse(*arguments)
    assert "made on" in swept.refuse("kernel", "validate", "--study", "s.db", "--plan", "plan.json", "--device", "sim:h200")


def test_a_broken_preset_names_field_and_reason(toy):
    text = TOY.read_text()
    (toy.folder / "bad.toml").write_text(text.replace("idle_w = 25.0", "idle_w = -25.0"))
    said = toy.refuse("kernel", "sweep", "gpt3-small", "--device", "sim:bad.toml", "--study", "x.db")
    assert "bad.toml: idle_w" in said


def test_an_interrupted_sweep_says_what_is_kept_and_resumes(wastenot, monkeypatch):
    from wastenot.sweeping import states

    measure, made = states.measure_point, []

    def interrupted(*arguments):
        if len(made) == 25:  # of these, 5 on a copy of the device, to know how long the sweep takes
            raise KeyboardInterrupt
        made.append(arguments)
        return measure(*arguments)

    monkeypatch.setattr(states, "measure_point", interrupted)
    command = [
        "kernel",
        "sweep",
        "gpt3-small",
        "--device",
        "sim:h200",
        "--study",
        "i.db",
        "--clocks",
        "auto",
        "--window",
        "0.5s",
    ]
    ran = wastenot(*command)
    assert ran.code == 130
    assert ran.err.splitlines()[-2:] == [
        f"i.db: measurements are kept; resume: wastenot {' '.join(command)}", "interrupted"
    ]  # fmt: skip
    monkeypatch.undo()
    assert "20 measured before" in wastenot(*command).err


def test_drift_is_one_line_whatever_the_number_of_kernels():
    several = [Drift(f"kernel_{index}", "time", 0.02 + 0.001 * index) for index in range(14)]
    outcome = SweepOutcome(measured=20, drifted=[*several, Drift("kernel_0", "energy", -0.03)])
    first, *others = outcome_lines(outcome, WorkloadKey("tiny"), "my.db")
    assert "20 points measured" in first
    assert [line.replace("\u00a0", " ") for line in others] == [
        "the device drifted: at auto, time of 14 kernels by +2.0 % to +3.3 % "
        "and energy of 1 kernel by −3.0 % since the first round; repeat the sweep when the GPU is quiet"
    ]
