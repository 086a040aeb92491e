"""Plan files: round trip, and everything that may have happened to one."""

import json

import pytest

from testbed.small_sweeps import random_sweep
from wastenot.core.errors import BadInputError
from wastenot.planning.difference import difference
from wastenot.planning.objective import Objective
from wastenot.planning.plan_file import read_plan
from wastenot.planning.planner import plan


@pytest.fixture
def made(rng):
    return plan(random_sweep(rng, kernels=3, settings=4), Objective("waste", 0.1))


def test_round_trip(made, tmp_path):
    made.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == made


def edit(document, path, value):
    *outer, last = path
    for step in outer:
        document = document[step]
    document[last] = value


@pytest.mark.parametrize(
    ("path", "value", "field", "line_holds"),
    [
        (("predicted", "energy_j"), 1.0, "predicted.energy_j", '"energy_j": 1.0'),
        (("assignments", 1, "time_s"), "fast", "assignments.1.time_s", '"time_s": "fast"'),
        (("assignments", 2, "energy_j"), -1.0, "assignments.2.energy_j", '"energy_j": -1.0'),
        (("assignments", 0, "core_mhz"), 1.0, "digest", "digest"),
        (("assignments", 0, "count"), 0, "assignments.0.count", '"count": 0'),
        (("assignments", 0, "time_change"), -2.0, "assignments.0.time_change", "-2.0"),
        (("certificate", "gap"), 0.5, "certificate.gap", '"gap": 0.5'),
        (("device",), "another", "digest", "digest"),
        (("extra",), 1, "extra", '"extra": 1'),
        (("schema",), "wastenot.plan/99", "schema", "wastenot.plan/99"),
        (("assignments",), [], "assignments", '"assignments": []'),
    ],
)
def test_an_edit_is_noticed_with_its_line_and_field(made, tmp_path, path, value, field, line_holds):
    document = json.loads(made.to_json())
    edit(document, path, value)
    text = json.dumps(document, indent=2)
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(BadInputError) as refused:
        read_plan(tmp_path / "plan.json")
    message = str(refused.value)
    assert f" {field}: " in message and "\n" not in message
    line = int(message.removeprefix(f"{tmp_path}/plan.json:").split(":")[0])
    assert line_holds in text.splitlines()[line - 1]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": NaN}', b"[" * 100_000, b'{"schema": "wastenot.plan/1"}'],
)
def test_what_is_not_a_plan_is_refused(tmp_path, content):
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(BadInputError, match=r"plan\.json"):
        read_plan(tmp_path / "plan.json")


def test_a_missing_plan_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="wastenot kernel plan"):
        read_plan(tmp_path / "none.json")


def test_writing_fails_without_touching_what_was_there(made, tmp_path):
    with pytest.raises(BadInputError, match="cannot be written"):
        made.write(tmp_path / "no-such-folder" / "plan.json")
    with pytest.raises(BadInputError, match="No space left"):
        made.write("/dev/full")


def test_differences_between_plans(rng):
    sweep = random_sweep(rng, kernels=4, settings=5)
    strict, free = plan(sweep), plan(sweep, Objective("energy"))
    found = difference(strict, free)
    assert found.energy_j == pytest.approx(free.predicted.energy_j - strict.predicted.energy_j)
    assert sum(row.energy_j for row in found.kernels) == pytest.approx(found.energy_j)
    assert sum(row.time_s for row in found.kernels) == pytest.approx(found.time_s)
    assert found.same + len(found.kernels) == 4
    assert difference(strict, strict).kernels == ()
