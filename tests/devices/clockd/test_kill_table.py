"""The table of kills in the documentation is that of the data."""

import csv

from benchmarks.bench_kills import ALL, BEGIN, DATA, DOCS, END, table


def test_the_table_is_that_of_the_data():
    assert DOCS.read_text().partition(BEGIN)[2].partition(END)[0] == table()


def test_nothing_was_left():
    with DATA.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["kind"] for row in rows} == set(ALL)
    assert sum(int(row["kills"]) for row in rows) >= 5000 and all(row["left"] == "0" for row in rows)
    assert all(int(row["clocks_changed"]) > 0 for row in rows)
