"""The kills and trials that the documentation tells of."""

import csv
import json

from benchmarks.bench_kills import ALL, KILLS
from benchmarks.bench_safety import NAMES, SAFETY
from docs.make.daemon import TRIALS, WORDS


def test_nothing_was_left():
    with KILLS.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["kind"] for row in rows} == set(ALL) == WORDS.keys()
    assert sum(int(row["kills"]) for row in rows) >= 5000 and all(row["left"] == "0" for row in rows)
    assert all(int(row["clocks_changed"]) > 0 for row in rows)


def test_no_trial_failed():
    found = json.loads(SAFETY.read_text(encoding="utf-8"))
    assert [*found] == [*NAMES] == [*TRIALS]
    assert all(each["failed"] == 0 and each["count"] > 0 for each in found.values())
    assert found["flood"]["numbers"]["clients"] == 500 and found["flood"]["numbers"]["p99_s"] <= 0.05
    assert min(found["listeners"]["numbers"].values()) >= 10_000
    assert found["driver-faults"]["count"] >= 500 and found["kills"]["count"] >= 1000
    assert found["reboots"]["count"] >= 200 and found["reboots"]["numbers"]["journals_found"] > 0
