"""JSON documents against those that were agreed, which lie in tests/cli/golden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.program import Ran

GOLDEN = Path(__file__).parents[1] / "tests" / "cli" / "golden"


def close(found: Any, known: Any, path: str = "") -> None:
    """Equal, numbers to rounding; what differs from run to run is left out."""
    if isinstance(known, dict):
        assert found.keys() == known.keys(), path
        for key in known.keys() - {"digest", "created_at", "imported_at", "created_by"}:
            close(found[key], known[key], f"{path}.{key}")
    elif isinstance(known, list):
        assert len(found) == len(known), path
        for index, (one, other) in enumerate(zip(found, known, strict=True)):
            close(one, other, f"{path}[{index}]")
    elif isinstance(known, float):
        assert found == pytest.approx(known, rel=1e-9, abs=1e-12), path
    else:
        assert found == known, path


def assert_as_agreed(ran: Ran, name: str) -> None:
    """One JSON document on stdout and nothing else, as its golden file has it."""
    assert (ran.code, ran.err) == (0, "")
    golden = GOLDEN / f"{name}.json"
    if not golden.exists():
        golden.write_text(ran.out)
        pytest.fail(f"{golden} was missing and is made: look at it")
    close(json.loads(ran.out), json.loads(golden.read_text()))
