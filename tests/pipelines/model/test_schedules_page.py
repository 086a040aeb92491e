"""docs/pipelines-schedules.md shows what the code does."""

import re
from pathlib import Path

from docs.make.page import DOCS
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.schedule_file import read_schedule
from wastenot.pipelines.model.schedules import SCHEDULES, build_schedule

TEXT = (DOCS / "pipelines-schedules.md").read_text()


def test_every_schedule_is_explained() -> None:
    assert re.findall(r"^\| `([\w-]+)` \| .* \| .* \|$", TEXT, re.M)[: len(SCHEDULES)] == list(SCHEDULES)


def test_the_files_on_the_page_are_read(tmp_path: Path) -> None:
    examples = dict(re.findall(r"<!-- file: ([\w.]+) -->\n```\w+\n(.*?)```", TEXT, re.DOTALL))
    for name, content in examples.items():
        (tmp_path / name).write_text(content)
    expected = build_schedule("1f1b", ranks=2, micro_batches=2).ranks
    assert read_schedule(tmp_path / "schedule.txt").ranks == expected
    assert read_schedule(tmp_path / "schedule.json").ranks == expected
    profile = read_perseus_csv(tmp_path / "profile.csv", waiting_w=70.0)
    assert profile.baseline == {(0, "forward"): (0.0502, 23.81), (0, "backward"): (0.093, 44.58)}
    assert len(examples) == 3
