"""``wastenot job list`` and ``wastenot job show``."""

import json
import shutil

import pytest

import wastenot as wn
from testbed.recurring_jobs import keep, recurred


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The study of two jobs, to be copied."""
    study = tmp_path_factory.mktemp("jobs") / "jobs.db"
    keep(recurred(recurrences=6), study)
    keep(recurred("on-cpu", family="smooth", seed=4, recurrences=2, energy=False, device="cpu:A"), study)
    return study


@pytest.fixture
def jobs(wastenot, kept):
    shutil.copy(kept, wastenot.folder)
    return wastenot


def test_jobs_are_listed(jobs):
    done = jobs("job", "list", "--study", "jobs.db")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["job", "device", "next"]
    assert [line.split()[0] for line in lines[1:]] == ["nightly", "on-cpu"]
    listed = json.loads(jobs("job", "list", "--study", "jobs.db", "--json").out)["jobs"]
    assert [(each["name"], each["device"]) for each in listed] == [("nightly", "sim:made-up"), ("on-cpu", "cpu:A")]


def test_a_job_as_text_and_as_a_document(jobs):
    done = jobs("job", "show", "nightly", "--study", "jobs.db", "--runs", "2")
    assert done.code == 0, done.err
    for said in (
        "nightly on sim:made-up",
        "(numbers: simulated)",
        "Next: batch size ",
        "Regret so far",
        "default",
        "The last 2 of ",
    ):
        assert said in done.out
    document = json.loads(jobs("job", "show", "nightly", "--study", "jobs.db", "--json").out)
    assert document["runs"] == len(document["history"]) >= 6
    assert document["reached"] == sum(run["outcome"] == "reached" for run in document["history"])
    assert document["total_cost"] == pytest.approx(sum(run["cost"] for run in document["history"]))
    assert document["cost_unit"] == "J" and document["terms"]["eta"] == 0.5
    on_frontier = [pair for pair in document["pairs"] if pair["on_frontier"]]
    known = [pair for pair in document["pairs"] if not pair["forecast"]]
    assert on_frontier and min(pair["time_s"] for pair in known) == min(pair["time_s"] for pair in on_frontier)
    assert f"atch size {document['next']['batch_size']:,}" in done.out


def test_the_frontier_answers_questions(jobs):
    pairs = json.loads(jobs("job", "show", "nightly", "--study", "jobs.db", "--json").out)["pairs"]
    pairs = [pair for pair in pairs if not pair["forecast"]]
    within_s = sorted(pair["time_s"] for pair in pairs)[len(pairs) // 2]
    asked = ("--within", f"{within_s:.17g}s", "--power-budget", "10kW")
    answers = json.loads(jobs("job", "show", "nightly", "--study", "jobs.db", "--json", *asked).out)["answers"]
    assert answers[0]["energy_j"] == min(pair["energy_j"] for pair in pairs if pair["time_s"] <= within_s)
    assert answers[1]["time_s"] == min(pair["time_s"] for pair in pairs)
    assert "Within the time" in jobs("job", "show", "nightly", "--study", "jobs.db", "--within", "1d").out


def test_a_job_without_energies_is_of_time_alone(jobs):
    done = jobs("job", "show", "on-cpu", "--study", "jobs.db")
    assert done.code == 0, done.err
    assert "shortest time" in done.out and "Energy" not in done.out


def test_a_page_with_its_figures(jobs, svg_only):
    done = jobs("job", "show", "nightly", "--study", "jobs.db", "--page", "page.html", "--figures", "figures")
    assert done.code == 0, done.err
    page = (jobs.folder / "page.html").read_text()
    assert "wastenot job show nightly --study jobs.db --page page.html" in page
    assert len(list((jobs.folder / "figures").glob("job-*.svg"))) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("job", "show", "nighty", "--study", "jobs.db"), "did you mean 'nightly'?"),
        (("job", "show", "nightly", "--study", "jobs.db", "--device", "gpu"), "--device gpu: the job has not run there"),
        (("job", "show", "nightly", "--study", "jobs.db", "--within", "1ms"), "--within 0.001: no measured pair"),
        (("job", "show", "nightly", "--study", "jobs.db", "--power-budget", "1W"), "--power-budget 1: every measured pair"),
        (("job", "show", "on-cpu", "--study", "jobs.db", "--within", "1d"), "energy is not measured"),
        (("job", "show", "nightly", "--study", "jobs.db", "--page", "no/page.html"), "--page no/page.html"),
        (("job", "show", "nightly", "--study", "missing.db"), "missing.db"),
        (("job", "list", "--study", "sweep.csv"), "sweep.csv"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(jobs, arguments, said):
    before = sorted(path.name for path in jobs.folder.iterdir())
    assert said in jobs.refuse(*arguments)
    assert sorted(path.name for path in jobs.folder.iterdir()) == before


def test_a_study_without_jobs(wastenot):
    wastenot("study", "import", "sweep.csv", "--study", "my.db", "--device-name", "Test GPU")
    assert "no jobs yet" in wastenot("job", "list", "--study", "my.db").out
    assert "holds no jobs" in wastenot.refuse("job", "show", "nightly", "--study", "my.db")


def test_the_library_knows_the_same(jobs):
    document = json.loads(jobs("job", "show", "nightly", "--study", "jobs.db", "--json").out)
    overview = wn.job_overview(jobs.folder / "jobs.db", "nightly")
    overview.write(jobs.folder / "job.json")
    written = json.loads((jobs.folder / "job.json").read_text())
    assert written == {name: value for name, value in document.items() if name not in ("study", "answers")}
    assert overview.regret == document["regret"] and overview.next.batch_size == document["next"]["batch_size"]
    point = overview.frontier().least_energy()
    assert point.energy_j == min(pair["energy_j"] for pair in document["pairs"] if not pair["forecast"])
