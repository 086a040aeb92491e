"""``wastenot pipeline plan`` as a user meets it."""

import csv
import io
import json
import re

import pytest

from testbed.pipeline_profiles import profile_text, write_profile

STAGES = 2
GIVEN = ("--micro-batches", "2", "--waiting-power", "70W")


@pytest.fixture
def program(wastenot):
    write_profile(wastenot.folder / "profile.csv", STAGES)
    return wastenot


def plain(text):
    return " ".join(text.split())


def test_a_profile_is_planned_in_a_screenful(program):
    ran = program("pipeline", "plan", "profile.csv", *GIVEN, "--out", "plan.json", COLUMNS="80")
    assert ran.code == 0, ran.err
    assert ran.err == "plan.json: plan written\n"
    lines = ran.out.splitlines()
    assert len(lines) < 30 and all(len(line) <= 80 for line in lines)
    assert re.search(r"^Expected to save \d+\.\d\s% of the energy, no slower: computed from", ran.out, re.M)
    text = plain(ran.out)
    assert "numbers: measured" in text and "all 2 GPUs." in text
    assert re.search(r"No plan saves more (instant )?than: ", text) and "at the highest clock" in text
    assert re.search(r"takes, 100 ms \(assumed; give yours with --switch-time\); .*If switching were \d+\.\d % saved", text)
    assert lines[-1] == "Next: wastenot apply plan.json -- torchrun ... train.py"


def test_how_long_switching_takes_can_be_given(program):
    def planned(*given):
        ran = program("pipeline", "plan", "profile.csv", "--micro-batches", "4", *GIVEN[2:], *given, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    free, given, default, named = (
        planned(*each) for each in (("--switch-time", "0"), ("--switch-time", "50ms"), (), ("--switch-time", "auto"))
    )
    assert (free["switching"], free["free"]) == (None, None)
    assert (given["switching"]["core_s"], given["switching"]["basis"]) == (0.05, "given")
    assert default == named and default["free"] == given["free"] == free["predicted"]
    assert free["predicted"]["energy_j"] < given["predicted"]["energy_j"] < default["predicted"]["energy_j"]
    text = plain(program("pipeline", "plan", "profile.csv", *GIVEN, "--switch-time", "0").out)
    assert "Switching: assumed to be free" in text


def test_json_is_the_plan_as_it_is_written(program):
    ran = program("pipeline", "plan", "profile.csv", *GIVEN, "--device", "a100", "--json", "--out", "plan.json")
    plan = json.loads(ran.out)
    assert plan == json.loads((program.folder / "plan.json").read_text())
    assert plan["device"] == "a100" and "A100" in plan["switching"]["source"]
    assert plan["lower_bound_j"] <= plan["lasting_lower_bound_j"] <= plan["predicted"]["energy_j"]


def test_the_frontier_as_text_and_as_a_table(program):
    ran = program("pipeline", "plan", "profile.csv", *GIVEN, "--frontier", "4", "--csv", "frontier.csv")
    assert ran.code == 0, ran.err
    shown = ran.out.partition("Plans at other deadlines")[2].splitlines()
    assert len([line for line in shown if "\N{NO-BREAK SPACE}J" in line]) == 4
    rows = list(csv.DictReader(io.StringIO((program.folder / "frontier.csv").read_text())))
    assert len(rows) == 4 and float(rows[0]["time_s"]) < float(rows[3]["time_s"])
    assert all(float(row["lower_bound_j"]) <= float(row["energy_j"]) for row in rows)


def test_stragglers_as_people_write_them(program):
    def until_s(text):
        ran = program("pipeline", "plan", "profile.csv", *GIVEN, "--straggler", text, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["until_s"]

    assert until_s("1.2") == pytest.approx(until_s("20%")) == pytest.approx(until_s(f"{until_s('1.2')}s"))
    said = plain(program("pipeline", "plan", "profile.csv", *GIVEN, "--straggler", "20%").out)
    assert "of the energy while another pipeline is 20.0 % slower: finishes when the other does" in said
    four = plain(program("pipeline", "plan", "profile.csv", *GIVEN, "--straggler", "20%", "--data-parallel", "4").out)
    assert "3 that wait for the straggler, 6 GPUs: " in four


def test_the_page(program, monkeypatch):
    drawn = []  # tests/cli/test_pipeline_report.py has the files of the figures
    monkeypatch.setattr("wastenot.pages.page.export_figures", lambda *given: drawn.append(given) or [given[2]])
    ran = program("pipeline", "plan", "profile.csv", *GIVEN, "--page", "page.html", "--figures", "figures")
    assert ran.code == 0, ran.err
    assert "profile.csv" in (program.folder / "page.html").read_text()
    assert "page.html: page written" in ran.err and "figures: 1 figure file written" in ran.err
    [(figures, origin, folder)] = drawn
    assert figures[0].name == "pipeline-energy" and (origin, folder.name) == ("measured", "figures")


def test_a_schedule_in_a_file(program):
    (program.folder / "order.txt").write_text("".join(f"{stage}F0,{stage}B0\n" for stage in range(STAGES)))
    ran = program("pipeline", "plan", "profile.csv", "--waiting-power", "70", "--schedule", "order.txt", "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    assert (plan["schedule"], plan["micro_batches"]) == ("order", 1)


def test_a_dry_run_says_what_would_be_measured_and_measures_nothing(program):
    before = sorted(program.folder.iterdir())
    arguments = [*MODEL, "--study", "s.db", "--out", "plan.json", "--dry-run"]
    ran = program(*arguments)
    assert ran.code == 0, ran.err
    assert "nothing was measured or written" in ran.out and "on sim:h200" in ran.out
    (part,) = json.loads(program(*arguments, "--json").out)["parts"]
    assert part["todo" if "todo" in part else "points"] > 100 and part["virtual"]
    assert sorted(program.folder.iterdir()) == before


def test_a_model_is_measured_once_and_planned_again_from_its_study(program):
    first = program(*MODEL, "--study", "s.db", "--json")
    assert first.code == 0, first.err
    one = json.loads(first.out)
    assert (one["origin"], one["device"], one["baseline_clocks"]) == ("simulated", "sim:h200", "auto")
    assert one["promise"]["probability"] >= 0.95 and one["predicted"]["energy_j"] < one["baseline"]["energy_j"]
    again = json.loads(program("pipeline", "plan", "--study", "s.db", *GIVEN, "--stages", "2", "--json").out)
    assert again["baseline"] == one["baseline"]
    assert again["predicted"]["energy_j"] == pytest.approx(one["predicted"]["energy_j"], rel=2e-3)


def rows_without(condition):
    return "\n".join(line for line in profile_text(STAGES).splitlines() if not condition(line)) + "\n"


PLAIN = ["pipeline", "plan", "profile.csv", *GIVEN]
MODEL = ["pipeline", "plan", "gpt3-xl", *GIVEN, "--stages", "2", "--device", "sim:h200"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pipeline", "plan", "profile.csv", "--waiting-power", "70"], "--micro-batches: how many"),
        (["pipeline", "plan", "profile.csv", "--micro-batches", "8"], "--waiting-power: profile.csv does not say"),
        # A file that is not there comes before what is to be said of it.
        (["pipeline", "plan", "none.csv"], "none.csv: there is no such file"),
        (["pipeline", "plan", "none.json"], "'none.json': there is no such file"),
        (["pipeline", "plan", "--study", "none.db"], "none.db: there is no study here"),
        (["pipeline", "plan", "none.csv", *GIVEN], "none.csv"),
        (["pipeline", "plan", *GIVEN], "name a model such as gpt3-175b, a CSV file, or a study (--study)"),
        (["pipeline", "plan", "gpt3-xl", *GIVEN, "--stages", "4"], "--device: on which device are the kernels of gpt3-xl"),
        (["pipeline", "plan", "gpt3-xl", *GIVEN, "--device", "sim:h200"], "--stages: how many"),
        (["pipeline", "plan", "gpt9", *GIVEN, "--stages", "4", "--device", "sim:h200"], "gpt9"),
        (["pipeline", "plan", "gpt3-xl", *GIVEN, "--stages", "99", "--device", "sim:h200"], "99"),
        ([*MODEL, "--partition", "6,6,6"], "partition"),
        ([*MODEL, "--partition", "much", "--study", "s.db"], "--partition"),
        ([*MODEL, "--partition", "balance"], "did you mean 'balanced'"),
        (["pipeline", "plan", "gpt3-xl", *GIVEN, "--stages", "4", "--device", "sim:nothing", "--study", "s.db"],
         "sim:nothing"),
        ([*MODEL, "--max-slowdown", "nan", "--study", "s.db"], "--max-slowdown"),
        ([*MODEL, "--confidence", "0.3", "--study", "s.db"], "--confidence"),
        ([*MODEL, "--schedule", "zb-h2", "--study", "s.db"], "zb-h1"),
        ([*PLAIN, "--stages", "5"], "--stages 5: the profile has 2 stages"),
        ([*PLAIN, "--schedule", "2f2b"], "--schedule '2f2b': unknown"),
        ([*PLAIN, "--schedule", "1f1"], "did you mean '1f1b'?"),
        ([*PLAIN, "--schedule", "none.txt"], "none.txt"),
        ([*PLAIN, "--chunks", "2"], "--chunks 2"),
        ([*PLAIN, "--schedule", "interleaved", "--chunks", "3"], "--chunks 3"),
        (["pipeline", "plan", "profile.csv", "--waiting-power", "70", "--micro-batches", "0"], "--micro-batches 0"),
        (["pipeline", "plan", "profile.csv", "--waiting-power", "70", "--micro-batches", "1e9"], "--micro-batches"),
        (["pipeline", "plan", "profile.csv", "--waiting-power", "70kW", "--micro-batches", "8"],
         "70,000 W: no GPU draws that"),
        (["pipeline", "plan", "profile.csv", "--waiting-power", "-3", "--micro-batches", "8"], "waiting"),
        (["pipeline", "plan", "profile.csv", "--waiting-power", "nan", "--micro-batches", "8"], "waiting"),
        ([*PLAIN, "--max-slowdown", "-5%"], "no plan finishes in"),
        ([*PLAIN, "--max-slowdown", "2"], "for 2 % write 2%"),
        ([*PLAIN, "--max-slowdown", "nan"], "--max-slowdown"),
        ([*PLAIN, "--straggler", "0.5"], "--straggler 0.5: write 1.2"),
        ([*PLAIN, "--straggler", "-20%"], "--straggler"),
        ([*PLAIN, "--straggler", "1ms"], "--straggler"),
        ([*PLAIN, "--straggler", "slow"], "--straggler slow: write"),
        ([*PLAIN, "--straggler", "inf"], "--straggler"),
        ([*PLAIN, "--frontier", "1"], "--frontier 1: must be at least 2"),
        ([*PLAIN, "--csv", "frontier.csv"], "--csv: has no effect without --frontier"),
        ([*PLAIN, "--data-parallel", "0"], "--data-parallel"),
        ([*PLAIN, "--tensor-parallel", "0"], "--tensor-parallel"),
        ([*PLAIN, "--partition", "1,1,1,1"], "--partition: has no effect on profile.csv"),
        ([*PLAIN, "--device", "sim:h200"], "--device: has no effect on profile.csv"),
        ([*PLAIN, "--granularity", "kernel"], "--granularity: has no effect on profile.csv"),
        ([*PLAIN, "--seed", "1"], "--seed: has no effect"),
        ([*PLAIN, "--switch-time", "5"], "--switch-time: 5 has no unit: write 5ms or 5s"),
        ([*PLAIN, "--dry-run"], "--dry-run: has no effect on profile.csv"),
        (["pipeline", "plan", *GIVEN, "--dry-run"], "--dry-run: shows what would be measured of a model on a device"),
        ([*PLAIN, "--out", "no/plan.json"], "no/plan.json"),
        ([*PLAIN, "--out", "profile.csv"], "--out profile.csv: is read; give another file"),
        ([*PLAIN, "--out", "a", "--page", "a"], "--page a: is what --out writes; give another file"),
        ([*PLAIN, "--frontier", "1000000000"], "--frontier 1000000000: must be at most 10,000"),
        ([*PLAIN, "--out", "/dev/full"], "No space left"),
        ([*PLAIN, "--page", "no/page.html"], "no/page.html"),
        ([*PLAIN, "--figures", "profile.csv"], "profile.csv: is a file"),
        (["pipeline", "plan", "--study", "none.db", *GIVEN, "--stages", "4"], "none.db"),
        (["pipeline", "plan", "--study", "my.db", *GIVEN, "--stages", "4", "--device", "sim:h200"],
         "--device: has no effect"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_in_one_line(program, arguments, says):
    before = {path: path.read_bytes() for path in program.folder.iterdir()}
    assert says in program.refuse(*arguments)
    assert {path: path.read_bytes() for path in program.folder.iterdir()} == before


def test_a_deadline_that_no_plan_meets_names_the_fastest(program):
    assert re.search(
        r"--max-slowdown -0\.05: no plan finishes in [\d.]+ s; the fastest takes [\d.]+ s, a slowdown of 0",
        program.refuse(*PLAIN, "--max-slowdown", "-5%"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (rows_without(lambda line: line.startswith("0,")), "stage 0"),
        (rows_without(lambda line: line.startswith("1,backward")), "stage 1 has no backward"),
        (rows_without(lambda line: line.startswith("1,forward,810")), "810"),
        (profile_text(STAGES).replace("1,forward,810", "1,forward,bad"), "bad"),
        (profile_text(STAGES).replace("stage,", "step,"), "stage"),
        ("", "profile.csv"),
        ("stage,instruction,frequency,time,energy\n", "profile.csv"),
    ],
)
def test_a_bad_profile_is_refused_with_file_and_reason(program, text, says):
    (program.folder / "profile.csv").write_text(text)
    said = program.refuse(*PLAIN)
    assert "profile.csv" in said and says in said


def test_a_schedule_that_deadlocks_says_who_waits_for_whom(program):
    (program.folder / "order.txt").write_text("0B0,0F0\n1F0,1B0\n")
    said = program.refuse("pipeline", "plan", "profile.csv", "--waiting-power", "70", "--schedule", "order.txt")
    assert "order.txt" in said and "waits for" in said
    (program.folder / "order.txt").write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    said = program.refuse("pipeline", "plan", "profile.csv", "--waiting-power", "70", "--schedule", "order.txt")
    assert "deadlocks" in said and "rank 0 cannot run" in said
