"""What a study in a file holds, seen from beside the program that writes it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def measured_rows(study: Path) -> int:
    """Measurements and timelines that a study holds; 0 while it is being made."""
    if not study.exists():
        return 0
    count = "SELECT (SELECT count(*) FROM wastenot_measurements) + (SELECT count(*) FROM wastenot_timelines)"
    with closing(sqlite3.connect(f"file:{study}?mode=ro", uri=True)) as reader:
        try:
            return int(reader.execute(count).fetchone()[0])
        except sqlite3.OperationalError:  # not made yet, or being written
            return 0
