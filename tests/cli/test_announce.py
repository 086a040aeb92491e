"""What long work says before it begins, and dry runs, which say only that."""

import json
from dataclasses import replace

import pytest

import wastenot as wn
from wastenot.kernels.judge import reproduction
from wastenot.kernels.judge.reproduction import CardResult, Reproduction
from wastenot.kernels.run.interleaved import Interval, Transfer, TransferRow
from wastenot.planning.comparison import compare
from wastenot.sweeping.announce import announcement


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "sweep", "gpt3-small", "--device", "sim:h200", "--study", "s.db"],
         "= 782 points; 895 measurements with repeats"),
        (["kernel", "sweep", "gpt3-small", "--device", "sim:h200", "--study", "s.db", "--clocks", "auto"],
         "at the default clocks"),
        (["kernel", "sweep", "gpt3-small", "--device", "sim:h200", "--study", "s.db", "--search", "model"],
         "at most 234 points"),
        (["kernel", "sweep", "gpt3-small", "--device", "sim:h200", "--study", "s.db", "--budget", "30m"],
         "no more are begun after 30"),
        (["kernel", "natural", "gpt3-small", "--device", "sim:h200"], "at natural clocks, none set"),
        (["kernel", "run", "gpt3-small", "--device", "sim:h200", "--out", "all"], "10 times each = 920 points"),
    ],
)  # fmt: skip
def test_a_dry_run_says_how_long_it_takes_and_writes_nothing(wastenot, arguments, says):
    before = set(wastenot.folder.iterdir())
    ran = wastenot(*arguments, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert says in ran.out and "of virtual device time" in ran.out and "here it takes" in ran.out.splitlines()[1]
    assert ran.out.endswith("nothing was measured or written (--dry-run)\n")
    document = json.loads(wastenot(*arguments, "--dry-run", "--json").out)
    assert document["schema"] == "wastenot.estimate/1"
    assert all(part["todo"] == part["points"] > 0 and part["device_s"] > 0.0 for part in document["parts"])
    assert set(wastenot.folder.iterdir()) == before


def test_a_long_wait_is_said_with_what_makes_it_shorter(tmp_path):
    estimate = wn.sweep("gpt3-xl", "sim:rtx-3080-ti", tmp_path / "s.db", dry_run=True).estimate
    assert "shorter" not in "".join(announcement([estimate]))
    real = replace(estimate, device="nvidia:0", origin="measured", virtual=False, wait_s=estimate.device_s)
    lines = announcement([real])
    assert "2,459 to measure: about 7.8\N{NO-BREAK SPACE}h of device time" in lines[1]
    assert all(word in lines[-1] for word in ("--search model", "--core-step", "--core", "--relative-error", "--budget"))
    assert "virtual" not in "".join(lines)


def test_notes_name_flags(tmp_path):
    estimate = wn.sweep("gpt3-small", "sim:h200", tmp_path / "s.db", dry_run=True).estimate
    refused = replace(estimate, notes=("this would be refused: clocks are only changed with `allow_clock_control`",))
    assert "  this would be refused: clocks are only changed with --allow-clock-control" in announcement([refused])


@pytest.mark.slow
def test_the_parts_of_a_reproduction_are_known_before(wastenot):
    document = json.loads(wastenot("reproduce", "--dry-run", "--json").out)
    assert len(document["parts"]) == 16 and sum(part["points"] for part in document["parts"]) > 10_000


def test_a_reproduction_prints_the_plans_of_each_card(wastenot, monkeypatch):
    source = wastenot.folder / "my.db"
    wn.import_sweep(wastenot.folder / "sweep.csv", source, device="sim:card")
    made, by_pass = (wn.plan(source, as_measured=True, granularity=each) for each in ("kernel", "pass"))
    card = CardResult("sim:card", made, compare(source, as_measured=True), by_pass)
    change = Interval(mean=-0.1, low=-0.2, high=0.0, least_pair=-0.3, greatest_pair=0.1)
    moved = Transfer("gpt3-xl", "sim:card", "simulated", 10, (TransferRow("gpt3-xl at 8", change, change, 0.1, 20.0),))
    monkeypatch.setattr(reproduction, "estimate_reproduction", lambda folder, seed: ())
    monkeypatch.setattr(reproduction, "reproduce", lambda *arguments: Reproduction((card,), moved, moved, ""))
    document = json.loads(wastenot("reproduce", "--json").out)
    assert [each["plan"]["digest"] for each in document["cards"]] == [made.digest]
    assert document["batches"]["rows"][0]["energy_change"]["least_pair"] == -0.3
