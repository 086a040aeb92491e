"""Numbers pinned for refactorings: a command that fails is named, and the file is written all the same."""

import json
import sys

import pytest

from benchmarks import pinned


def test_commands_that_fail_are_named_and_the_others_kept(tmp_path, monkeypatch):
    typed = [
        ("workload", ("kernel", "workloads", "gpt3-small")),
        ("plan of nothing", ("kernel", "plan", "--study", "none.db")),
        ("", ("study", "import", "none.csv", "--study", "s.db")),
    ]
    monkeypatch.setattr(pinned, "commands", lambda: iter(typed))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    out = tmp_path / "pinned.json"
    with pytest.raises(SystemExit, match=r"failed: plan of nothing, study import none\.csv --study s\.db$"):
        pinned.main("write", str(out))
    found = json.loads(out.read_text())
    assert found.keys() == {"workload", "plan of nothing"}
    assert found["plan of nothing"].keys() == {"failed"} and "none.db" in found["plan of nothing"]["failed"]
    assert "kernels" in found["workload"]

    monkeypatch.setattr(pinned, "run_all", lambda: (found, []))
    with pytest.raises(SystemExit) as ended:
        pinned.main("write", str(out))
    assert not ended.value.code
