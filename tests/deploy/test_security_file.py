"""SECURITY.md names a test for each threat, and each of them is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_threat_has_an_answer_and_a_test_that_is_there():
    text = (ROOT / "SECURITY.md").read_text().partition("## Threats")[2]
    threats = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(threats) > 10
    for threat, answer, tests in threats[1:]:
        named = re.findall(r"`(\w+)`", tests)
        assert threat and answer and named and not {*named} - there, (threat, {*named} - there)
