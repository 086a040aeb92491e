"""``wastenot serve simulate``: policies for a cluster beside each other, kept as they end."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.serving_inputs import DRAWN, ENGINE, SCENARIO


@pytest.fixture
def simulated(wastenot, tmp_path):
    (tmp_path / "mine.toml").write_text(SCENARIO)
    return wastenot


def test_the_example_is_printed_and_can_be_read(wastenot, tmp_path):
    ran = wastenot("serve", "simulate", "--example")
    assert ran.code == 0 and "[cluster]" in ran.out and "[[traffic]]" in ran.out
    assert "reads none" in wastenot("serve", "simulate", "x.toml", "--example").err
    assert "'wastenot serve simulate --example > scenario.toml' writes one" in wastenot("serve", "simulate").err


def test_energy_stands_beside_attainment_and_what_was_kept_is_not_run_again(simulated, tmp_path, monkeypatch):
    ran = simulated("serve", "simulate", "mine.toml", "--processes", "1")
    assert ran.code == 0, ran.err
    assert "llama-8b on 1 host of 4 GPUs" in ran.out and "simulated, steps estimated from simulated kernels" in ran.out
    assert all(text in ran.out for text in ("single-pool", "scale-clocks", "Saved", "Worst", "No policy can use less"))
    assert (tmp_path / "mine.db").exists()
    monkeypatch.setattr("wastenot.serving.cluster.runs.simulated", None)
    shown = simulated("show", "mine.db")
    assert shown.code == 0 and all(text in shown.out for text in ("simulated cluster", "mine", "poisson", "scale-clocks"))
    listed = json.loads(simulated("show", "mine.db", "--json").out)["cluster_runs"]
    assert [(each["policy"], each["seed"]) for each in listed] == [("scale-clocks", 0), ("single-pool", 0)]
    again = simulated("serve", "simulate", "mine.toml", "--processes", "1")
    assert again.code == 0 and again.out == ran.out and "mine.db: all runs were already in the study" in again.err
    one = simulated("serve", "simulate", "mine.toml", "--policy", "scale-clocks")
    assert one.code == 0 and "single-pool" not in one.out


def test_the_document_and_the_page_hold_all_runs(simulated, tmp_path):
    pytest.importorskip("altair")
    ran = simulated(
        "serve", "simulate", "mine.toml", "--seeds", "2", "--processes", "1", "--study", "kept.db", "--json",
        "--out", "mine.json", "--page", "mine.html", "--figures", "figures",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document == json.loads((tmp_path / "mine.json").read_text())
    assert document["schema"] == "wastenot.serve-sim/1" and document["evidence"] == "simulated"
    assert document["classes"] == ["SS", "SM", "SL", "MS", "MM", "ML", "LS", "LM", "LL"]
    (traffic,) = document["traffic"]
    assert traffic["kind"] == traffic["name"] == "poisson"
    first, clocks = traffic["policies"]
    assert [run["seed"] for run in first["runs"]] == [0, 1] and first["saved"] == {"mean": 0.0, "least": 0.0, "most": 0.0}
    energies = [run["energy_j"] for run in clocks["runs"]]
    assert clocks["energy_j"] == {"mean": pytest.approx(sum(energies) / 2), "least": min(energies), "most": max(energies)}
    assert clocks["failed"] == any(run["worst_class"] < 0.99 for run in clocks["runs"])
    page = (tmp_path / "mine.html").read_text()
    assert all(
        text in page for text in ("Energy and deadlines by policy", "Deadlines met, by class", "Timeline", "mine.toml")
    )
    assert "simulated numbers" in page
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {f"cluster-{name}.{form}" for name in ("energy", "timeline") for form in ("svg", "pdf", "png")} == names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "simulate", "none.toml"], "none.toml: cannot be read"),
        (["serve", "simulate", "mine.toml", "--policy", "best"], "--policy best: mine.toml has single-pool, scale-clocks"),
        (["serve", "simulate", "mine.toml", "--page", "mine.toml"], "--page mine.toml: is read; give another file"),
        (["serve", "simulate", "mine.toml", "--seeds", "0"], "--seeds"),
    ],
)
def test_what_is_wrong_is_one_line(simulated, tmp_path, arguments, says):
    before = sorted(tmp_path.iterdir())
    ran = simulated(*arguments)
    assert ran.code == 2 and says in ran.err, ran.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (str(ENGINE), "none.json", "mine.toml: cluster.engines: none.json: cannot be read"),
        ('"scale-clocks"', '"slower"', "mine.toml: run.policies[2]: 'slower' is not one of all-on"),
        ("hosts = 1", "hosts = 0", "mine.toml: cluster.hosts: Input should be greater than or equal to 1"),
        (DRAWN, 'kind = "trace"\nfile = "bad.csv"', "bad.csv:2: has 2 fields of 3"),
        (DRAWN, 'kind = "trace"\nfile = "no.csv"', "no.csv: cannot be read"),
    ],
)  # fmt: skip
def test_a_bad_scenario_is_said_by_file_and_key(simulated, tmp_path, old, new, says):
    (tmp_path / "bad.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.0,12\n")
    assert old in SCENARIO
    (tmp_path / "mine.toml").write_text(SCENARIO.replace(old, new))
    ran = simulated("serve", "simulate", "mine.toml", "--processes", "1")
    assert ran.code == 2 and says in " ".join(ran.err.split()), ran.err


def test_a_run_in_the_study_that_is_damaged_is_said_so(simulated, tmp_path):
    assert simulated("serve", "simulate", "mine.toml", "--processes", "1", "--policy", "single-pool").code == 0
    with sqlite3.connect(tmp_path / "mine.db") as database:
        database.execute("UPDATE wastenot_cluster_runs SET record = '{}'")
    ran = simulated("serve", "simulate", "mine.toml", "--processes", "1", "--policy", "single-pool")
    assert ran.code == 2 and "mine.db" in ran.err and "damaged" in ran.err


@pytest.mark.slow
def test_an_interruption_keeps_what_has_ended_and_leaves_no_process(simulated, tmp_path):
    long = SCENARIO.replace("duration_s = 10.0", "duration_s = 40000.0").replace("rate_per_s = 10", "rate_per_s = 60")
    (tmp_path / "mine.toml").write_text(long + f"seeds = {list(range(60))}\n")

    def kept() -> int:
        try:
            with sqlite3.connect(tmp_path / "mine.db") as database:
                return int(database.execute("SELECT count(*) FROM wastenot_cluster_runs").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    began = [sys.executable, "-c", _BEGUN, "serve", "simulate", "mine.toml", "--processes", "2"]
    program = subprocess.Popen(began, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 240.0
        while not kept() and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        _, said = program.communicate(timeout=120)
    finally:
        program.kill()
    assert program.returncode == 130 and "finished runs are kept" in said and "Traceback" not in said, said
    assert 1 <= kept() < 120
    deadline = time.monotonic() + 30.0
    while _alive(program.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _alive(program.pid) == []


def _alive(group: int) -> list[int]:
    """Processes of a group, zombies left out."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            state, _, of, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue  # it has ended, or is none
        if folder.name.isdecimal() and int(of) == group and state != "Z":
            found.append(int(folder.name))
    return found


_BEGUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs are begun without
from wastenot.cli.main import run
if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
"""
