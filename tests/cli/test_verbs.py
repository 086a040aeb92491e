"""Every verb as a user runs it; JSON documents against golden files."""

import io
import json

import pytest

from testbed.golden import assert_as_agreed, close
from testbed.program import COMMANDS, SCHEMAS, SWEEP

JSON_VERBS = {
    "plan": ("kernel", "plan", "--study", "my.db", "--as-measured"),
    "plan_promised": ("kernel", "plan", "--study", "my.db", "--max-slowdown", "0.1"),
    "plan_relaxed_local_pass": ("kernel", "plan", "--study", "my.db", "--max-slowdown", "0.05", "--scope", "local",
                                "--granularity", "pass"),
    "plan_edp": ("kernel", "plan", "--study", "my.db", "--objective", "edp", "--edp-exponent", "2", "--max-slowdown",
                 "0.01"),
    "frontier": ("kernel", "frontier", "--study", "my.db", "--bounds=-0.5,0,0.02"),
    "compare": ("kernel", "frontier", "--compare", "--study", "my.db", "--bounds", "0.02", "--as-measured"),
    "show": ("show", "my.db"),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON_VERBS)
def test_json_is_one_document_as_it_was_agreed(study, name):
    assert_as_agreed(study(*JSON_VERBS[name], "--json"), name)


def test_the_documents_of_all_verbs_are_listed():
    taking = {name for name, verb in COMMANDS.items() if any("--json" in option.opts for option in verb.params)}
    assert taking == SCHEMAS.keys() == COMMANDS.keys() - {"demo"}


def test_a_plan_for_people_begins_with_what_can_be_applied_today(study):
    lines = study(
        "kernel", "plan", "--study", "my.db", "--as-measured", "--out", "mine.json", COLUMNS="200"
    ).out.splitlines()
    assert len(lines) == 6
    assert lines[1].startswith("Seems to save 14.55\xa0% of the energy, 0.03\xa0% faster: by a schedule of 2")
    assert lines[2].startswith("Upper bound, if switching were instant: ") and "promise nothing" in lines[2]
    assert lines[3:] == [
        "To apply it:",
        "  wastenot apply mine.json -- python train.py",
        "How to apply it, and each kernel: -v",
    ]


def test_a_plan_for_people_in_full_says_all_that_it_should(study):
    text = study("kernel", "plan", "--study", "my.db", "--price-per-kwh", "0.3", "--as-measured", "-v").out
    for part in ("Test GPU", "gemm", "9,501", "best of those given", "8 points", "Largest time saving", "kWh", "GPU-year",
                 "at 0.3 USD per kWh", "Clock switches", "if clocks switched fast enough", "as measured"):  # fmt: skip
        assert part in text, part
    told = [
        "promise nothing",
        "Applicable today",
        "Upper bound, if switching were instant\n",
        "What faster switching would add",
        "The plan in numbers",
    ]
    assert sorted(told, key=text.index) == told


def test_out_writes_what_diff_reads(study):
    assert study("kernel", "plan", "--study", "my.db", "--out", "a.json").code == 0
    assert study("kernel", "plan", "--study", "my.db", "--objective", "energy", "--out", "b.json").code == 0
    same = study("diff", "a.json", "a.json")
    assert same.code == 0 and "the plans are equal" in same.out
    differ = json.loads(study("diff", "a.json", "b.json", "--json").out)
    plans = [json.loads((study.folder / name).read_text()) for name in ("a.json", "b.json")]
    saved = plans[1]["predicted"]["energy_j"] - plans[0]["predicted"]["energy_j"]
    assert differ["energy_j"] == pytest.approx(saved) and differ["kernels"]
    assert all(kernel["kernel"] in study("diff", "a.json", "b.json").out for kernel in differ["kernels"])


def test_export_gives_back_every_number(study):
    assert study("study", "export", "out.csv", "--study", "my.db").code == 0
    assert study("study", "import", "out.csv", "--study", "other.db", "--workload", "tiny").code == 0
    study("study", "export", "again.csv", "--study", "other.db")
    assert (study.folder / "out.csv").read_bytes() == (study.folder / "again.csv").read_bytes()
    close(
        *(json.loads(study("kernel", "plan", "--study", name, "--json").out)["predicted"] for name in ("my.db", "other.db"))
    )


def test_show_and_frontier_for_people(study):
    assert "tiny" in study("show", "my.db").out
    frontier = study("kernel", "frontier", "--study", "my.db", "--bounds=-0.5,0").out
    assert "no plan is within −50.00\u00a0%" in frontier and "faster is possible" in frontier
    assert "pass granularity" in study("kernel", "frontier", "--compare", "--study", "my.db").out


def test_origin_is_shown(wastenot):
    wastenot("study", "import", "sweep.csv", "--study", "s.db", "--origin", "synthetic")
    assert json.loads(wastenot("kernel", "plan", "--study", "s.db", "--json").out)["origin"] == "synthetic"
    assert "synthetic" in wastenot("kernel", "plan", "--study", "s.db").out
    assert "synthetic" in wastenot("kernel", "frontier", "--compare", "--study", "s.db").out


def test_report_and_figures(study, svg_only):
    ran = study("report", "my.db", "--page", "report.html", "--figures", "figures", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["page"] == "report.html" and document["plan"]["schema"] == "wastenot.plan/1"
    assert all((study.folder / figure).is_file() for figure in document["figures"]) and document["figures"]
    assert (study.folder / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert {path.suffix for path in (study.folder / "figures").iterdir()} == {".svg", ".pdf", ".png"}


def test_powers_that_no_card_draws_are_pointed_at_wherever_they_show(wastenot):
    text = (wastenot.folder / "sweep.csv").read_text().splitlines()
    rows = [line.split(",") for line in text[1:]]
    wrong = [",".join([*row[:5], f"{1000 * float(row[5]):g}", *row[6:]]) for row in rows]
    (wastenot.folder / "mj.csv").write_text("\n".join([text[0], *wrong]) + "\n")
    ran = wastenot("study", "import", "mj.csv", "--study", "mj.db")
    assert ran.code == 0
    assert "warning: mj.csv: every row: no card draws such power" in ran.err and "looks like millijoules" in ran.err
    document = json.loads(wastenot("study", "import", "mj.csv", "--study", "other.db", "--json").out)
    assert len(document["warnings"]) == 1 and "looks like millijoules" in document["warnings"][0]
    for command in (("show", "mj.db"), ("kernel", "plan", "--study", "mj.db")):
        assert "energy_j looks like millijoules" in " ".join(wastenot(*command).out.split())
    right = wastenot("study", "import", "sweep.csv", "--study", "right.db", "--json")
    assert json.loads(right.out)["warnings"] == [] and right.err == ""


def test_validating_an_imported_study_needs_a_device(study):
    study("kernel", "plan", "--study", "my.db", "--out", "plan.json")
    said = study.refuse("kernel", "validate", "--study", "my.db", "--plan", "plan.json")
    assert "--device: my.db was measured on 'Test GPU', which is not the name of a device; give the device" in said
    said = study.refuse("kernel", "validate", "--study", "my.db", "--plan", "plan.json", "--device", "sim:h200")
    assert "made on 'Test GPU', not on 'sim:h200'" in said and "--device-name 'sim:h200'" in said
    study("study", "import", "sweep.csv", "--study", "nameless.db")
    study("kernel", "plan", "--study", "nameless.db", "--out", "nameless.json")
    said = study.refuse("kernel", "validate", "--study", "nameless.db", "--plan", "nameless.json")
    assert "nameless.db does not record on which device it was measured; give the device to measure" in said
    # Whoever knows the device names it.
    known = study(
        "kernel", "validate", "--study", "nameless.db", "--plan", "nameless.json", "--device", "recorded:nameless.db"
    )
    assert known.code == 0, known.err


def test_a_sweep_comes_from_stdin_and_goes_to_stdout(study):
    written = study.process("study", "export", "-", "--study", "my.db")
    assert (written.code, written.err) == (0, "")
    study("study", "export", "out.csv", "--study", "my.db")
    assert written.out == (study.folder / "out.csv").read_text()
    piped = study.process("study", "import", "-", "--study", "piped.db", "--device-name", "Test GPU", stdin=written.out)
    assert (piped.code, piped.out) == (0, "") and "workload 'stdin': 8 measured rows" in piped.err
    study("study", "export", "again.csv", "--study", "piped.db")
    assert (study.folder / "again.csv").read_text() == written.out


@pytest.mark.parametrize(("text", "says"), [
    (SWEEP.replace("0.0099", "-0.0099"), "error: stdin:4: time_s: "),
    ("", "error: stdin:1: header: the file is empty"),
])  # fmt: skip
def test_errors_about_stdin_name_its_line(wastenot, monkeypatch, text, says):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    ran = wastenot("study", "import", "-", "--study", "piped.db")
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith(says) and ran.err.count("\n") == 1
    assert not (wastenot.folder / "piped.db").exists()
