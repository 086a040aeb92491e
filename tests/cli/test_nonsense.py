"""What cannot be done: exit code 2, one line, no traceback, nothing written."""

import os
import sqlite3
import subprocess
import sys

import pytest

from testbed.program import SWEEP


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "plan"], "--study"),
        (["kernel", "plan", "--study", "none.db"], "none.db"),
        (
            ["kernel", "plan", "--study", "my.db", "--max-slowdown", "-1"],
            "-1 would be 100 % faster; for -1 % write -1% or -0.01",
        ),
        (["kernel", "plan", "--study", "my.db", "--max-slowdown", "-100%"], "above -1"),
        (
            ["kernel", "plan", "--study", "my.db", "--max-slowdown", "2"],
            "2 would be 200 % slower; for 2 % write 2% or 0.02; for 200 % write 200%",
        ),
        (["kernel", "plan", "--study", "my.db", "--max-slowdown", "2s"], "not a fraction"),
        (["kernel", "plan", "--study", "my.db", "--confidence", "95"], "for 95 % write 95% or 0.95"),
        (["kernel", "frontier", "--study", "my.db", "--bounds", "0,2"], "for 2 % write 2%"),
        (["kernel", "plan", "--study", "my.db", "--switch-time", "30W"], "not a time"),
        (["kernel", "plan", "--study", "my.db", "--switch-time", "30"], "30 has no unit: write 30ms or 30s"),
        (["kernel", "plan", "--study", "my.db", "--max-slowdown", "nan"], "above -1"),
        (["kernel", "plan", "--study", "my.db", "--max-slowdown", "much"], "--max-slowdown"),
        (["kernel", "plan", "--study", "my.db", "--max-slowdown=-0.9"], "possible"),
        (["kernel", "plan", "--study", "my.db", "--objective", "speed"], "speed"),
        (["kernel", "plan", "--study", "my.db", "--objective", "energy", "--max-slowdown", "0"], "use waste"),
        (["kernel", "plan", "--study", "my.db", "--edp-exponent", "2"], "without --objective edp"),
        (["kernel", "plan", "--study", "my.db", "--objective", "edp", "--edp-exponent", "-2"], "at least 0"),
        (["kernel", "plan", "--study", "my.db", "--carbon-g-per-kwh", "400"], "without --objective carbon"),
        (["kernel", "plan", "--study", "my.db", "--run-at", "22:00"], "without --objective carbon"),
        (
            ["kernel", "plan", "--study", "my.db", "--objective", "carbon"],
            "--carbon-g-per-kwh: give it for objective carbon",
        ),
        (
            ["kernel", "plan", "--study", "my.db", "--objective", "carbon", "--carbon-g-per-kwh", "none.csv"],
            "none.csv: cannot be",
        ),
        (
            ["kernel", "plan", "--study", "my.db", "--objective", "carbon", "--carbon-g-per-kwh", "sweep.csv"],
            "sweep.csv:1: names no",
        ),
        (
            ["kernel", "plan", "--study", "my.db", "--objective", "carbon", "--carbon-g-per-kwh", "9", "--run-at", "22:00"],
            "--run-time",
        ),
        (["kernel", "plan", "--study", "my.db", "--confidence", "1"], "below 1"),
        (["kernel", "plan", "--study", "my.db", "--objective", "energy", "--confidence", "0.9"], "no slowdown limit"),
        (["kernel", "plan", "--study", "my.db", "--clock-tolerance", "-5"], "at least 0"),
        (["kernel", "plan", "--study", "my.db", "--price-per-kwh", "-5"], "at least 0"),
        (["kernel", "plan", "--study", "my.db", "--workload", "tinny"], "tiny"),
        (["kernel", "plan", "--study", "my.db", "--out", "no/such/plan.json"], "no/such"),
        (["kernel", "plan", "--study", "my.db", "--out", "/dev/full"], "No space left"),
        (["kernel", "frontier", "--study", "my.db", "--bounds", "0,much"], "'much'"),
        (["kernel", "frontier", "--compare", "--study", "my.db", "--bounds", ""], "--bounds"),
        (["study", "import", "sweep.csv", "--study", "my.db", "--workload", "tiny"], "--append"),
        (["study", "import", "none.csv", "--study", "my.db"], "none.csv"),
        (["study", "import", "sweep.csv", "--study", "my.db", "--workload", "x", "--device-name", "Other"], "Other"),
        (["study", "import", "sweep.csv", "--study", "nowhere/my.db"], "nowhere"),
        (["study", "export", "sweep.csv", "--study", "my.db", "--workload", "none"], "none"),
        (["diff", "sweep.csv", "sweep.csv"], "sweep.csv"),
        (["report", "my.db", "--page", "no/such/page.html"], "no/such"),
        (["report", "none.json", "--study", "my.db", "--page", "page.html"], "none.json"),
        (["show", "sweep.csv"], "sweep.csv"),
        (["conquer"], "conquer"),
        (["help"], "wastenot --help"),
        (["kernel", "plan", "my.db"], "--study my.db"),
        (["kernel", "plan", "--study", "my.db", "--granularity", "kernels"], "did you mean 'kernel'?"),
        (
            ["kernel", "plan", "--study", "my.db", "--objective", "wast"],
            "did you mean 'waste'? There are: waste, edp, energy, time",
        ),
        (["kernel", "pairs", "--study", "my.db", "--most", "1.5"], "--most: must be a whole number"),
        (["report", "my.db", "--page", "page.pdf"], "--figures"),
        (["study", "export", "sweep.xlsx", "--study", "my.db"], ".csv or .parquet"),
        (["kernel", "sweep", "gpt3-xl", "--device", "h200", "--study", "s.db"], "'sim:h200'"),
        (["kernel", "run", "gpt3-xl", "--repeats", "1"], "--repeats 1: must be at least 2"),
        (["kernel", "plan", "--stuudy", "my.db"], "--stuudy"),
    ],
)
def test_nonsense_is_refused_in_one_line(study, arguments, says):
    before = {path: path.read_bytes() for path in study.folder.iterdir()}
    assert says in study.refuse(*arguments)
    assert {path: path.read_bytes() for path in study.folder.iterdir()} == before


def test_pass_granularity_without_passes(wastenot):
    rows = [line.split(",") for line in SWEEP.splitlines()]
    (wastenot.folder / "bare.csv").write_text("\n".join(",".join(row[:6]) for row in rows) + "\n")
    assert wastenot("study", "import", "bare.csv", "--study", "bare.db").code == 0
    assert "has no pass" in wastenot.refuse("kernel", "plan", "--study", "bare.db", "--granularity", "pass")


def test_a_bad_row_names_file_line_and_field(wastenot):
    (wastenot.folder / "bad.csv").write_text(SWEEP.replace("0.0099", "-0.0099"))
    said = wastenot.refuse("study", "import", "bad.csv", "--study", "bad.db")
    assert "bad.csv:4: time_s" in said
    assert not (wastenot.folder / "bad.db").exists()


def test_an_edited_plan_is_refused(study):
    study("kernel", "plan", "--study", "my.db", "--as-measured", "--out", "plan.json")
    path = study.folder / "plan.json"
    path.write_text(path.read_text().replace('"core_mhz": 1500.0', '"core_mhz": 1400.0', 1))
    assert "plan.json" in study.refuse("diff", "plan.json", "plan.json")


def test_the_page_of_a_plan_takes_no_other_goal_and_its_study(study):
    study("kernel", "plan", "--study", "my.db", "--as-measured", "--out", "plan.json")
    said = study.refuse("report", "plan.json", "--study", "my.db", "--max-slowdown", "2%")
    assert "--max-slowdown: has no effect on plan.json, which is a plan already; leave it out" in said
    assert "plan.json: a plan's page also shows the measurements: give their study (--study)" in study.refuse(
        "report", "plan.json"
    )
    assert "--study: has no effect on my.db" in study.refuse("report", "my.db", "--study", "my.db")
    assert not (study.folder / "plan.html").exists()


def test_a_locked_study_says_so(study):
    holder = sqlite3.connect(study.folder / "my.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert "another program is writing to it" in study.refuse(
            "study", "import", "sweep.csv", "--study", "my.db", "--workload", "more"
        )
    finally:
        holder.close()


def test_a_reader_that_goes_away_gets_no_traceback(study):
    command = [sys.executable, "-m", "wastenot", "kernel", "frontier", "--study", "my.db", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=study.folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:  # fmt: skip
        process.stdout.close()
        assert process.stderr.read() == b""


def test_light_verbs_import_nothing_heavy(study):
    code = (
        "import sys; from wastenot.cli.main import run; run(['plan', '--study', 'my.db', '--json']); "
        "heavy = {'polars', 'altair', 'vl_convert', 'jinja2', 'pandas', 'torch'} & sys.modules.keys(); "
        "assert not heavy, heavy"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], cwd=study.folder, env=environment, check=True, capture_output=True)
