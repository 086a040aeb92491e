"""The kills that the documentation tells of."""

import csv

from benchmarks.bench_kills import ALL, KILLS
from docs.make.daemon import WORDS


def test_nothing_was_left():
    with KILLS.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["kind"] for row in rows} == set(ALL) == WORDS.keys()
    assert sum(int(row["kills"]) for row in rows) >= 5000 and all(row["left"] == "0" for row in rows)
    assert all(int(row["clocks_changed"]) > 0 for row in rows)
