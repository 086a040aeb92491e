"""Engines' profiles as files, and cells of their tables that are not known."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables, OutsideProfileError
from wastenot.serving.model.profile_file import EngineProfile, StatedError, read_engine, write_engine


def made(gpus: int = 1) -> Engine:
    """An engine of two settings, whose largest batch does not hold the longest contexts."""
    rng = np.random.default_rng(gpus)
    decode = rng.uniform(0.01, 0.05, (2, 3, 2))
    decode[:, 2, 1] = np.nan
    tables = EngineTables(
        settings=(Setting(core_mhz=900.0), AUTO),
        prefill_tokens=np.array([1.0, 512.0]),
        past_tokens=np.array([0.0, 1024.0]),
        prefill_time_s=rng.uniform(0.01, 0.2, (2, 2, 2)),
        prefill_energy_j=rng.uniform(1.0, 20.0, (2, 2, 2)),
        batches=np.array([1.0, 64.0, 128.0]),
        context_tokens=np.array([256.0, 4096.0]),
        decode_time_s=decode,
        decode_energy_j=200.0 * decode,
        idle_power_w=np.array([60.0, 70.0]),
        source="measured",
        evidence="simulated",
    )
    return Engine(tables, cache_blocks=1000 * gpus, switch_s=0.02, gpus=gpus, model="a-model", device="sim:h200")


def test_reading_back_gives_the_same(tmp_path: Path) -> None:
    profile = EngineProfile((made(1), made(2)), (StatedError("decode time", 1, 0.02, 0.1, 30, "held out"),), ("a caveat",))
    write_engine(profile, tmp_path / "engine.json", command="wastenot serve profile")
    again = read_engine(tmp_path / "engine.json")
    assert (again.errors, again.notes, again.model, again.device) == (profile.errors, profile.notes, "a-model", "sim:h200")
    for one, other in zip(again.engines, profile.engines, strict=True):
        assert [getattr(one, name) for name in OWN] == [getattr(other, name) for name in OWN]
        for field in fields(EngineTables):
            np.testing.assert_equal(getattr(one.tables, field.name), getattr(other.tables, field.name))


def test_an_engine_of_one_degree() -> None:
    profile = EngineProfile((made(1), made(2)))
    assert profile.engine().gpus == 1
    assert profile.engine(2).gpus == 2
    with pytest.raises(BadInputError, match=r"gpus 4: this profile has no such parallel degree; there are: 1, 2"):
        profile.engine(4)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("engines", 0, "tables", "batches"), [1.0, 128.0, 64.0], "batches: is not ascending"),
        (("engines", 0, "tables", "idle_power_w"), [60.0], "1 values for 2 settings"),
        (("engines", 0, "tables", "decode_time_s", 0, 2), [1.0, 1.0, 1.0], "each row must have 2 values"),
        (("engines", 0, "tables", "decode_time_s", 0, 2, 1), 0.1, "null in other places"),
        (("engines", 0, "tables", "prefill_time_s", 0, 0, 0), -1.0, "greater than 0"),
        (("engines", 0, "cache_blocks"), 0, "greater than or equal to 1"),
        (("engines",), [], "at least 1"),
        (("schema",), "wastenot.engine/9", "wastenot.engine/1"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, path: tuple[str | int, ...], value: Any, problem: str) -> None:
    file = tmp_path / "engine.json"
    write_engine(EngineProfile((made(),)), file)
    document = json.loads(file.read_text())
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    file.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=problem) as caught:
        read_engine(file)
    assert str(caught.value).startswith(f"{file}:1: ")
    assert "\n" not in str(caught.value)


def test_degrees_ascend(tmp_path: Path) -> None:
    write_engine(EngineProfile((made(2), made(1))), tmp_path / "engine.json")
    with pytest.raises(BadInputError, match=r"parallel degrees \[2, 1\] are not ascending"):
        read_engine(tmp_path / "engine.json")


def test_cells_that_are_not_known_are_outside() -> None:
    tables = made().tables
    assert tables.decode(0, 128, 256).time_s == tables.decode_time_s[0, 2, 0]
    assert tables.decode(1, 64, 4096).energy_j == tables.decode_energy_j[1, 1, 1]
    with pytest.raises(OutsideProfileError, match="128 sequences with 1000 tokens in the cache each is outside"):
        tables.decode(0, 128, 1000)
    with pytest.raises(OutsideProfileError, match="65 sequences"):
        tables.decode(0, 65, 257)
    no_prefill = replace(tables, prefill_time_s=np.full((2, 2, 2), np.nan))
    with pytest.raises(OutsideProfileError, match="100 tokens on top of 3 ones"):
        no_prefill.prefill(0, 100, 3)


OWN = tuple(field.name for field in fields(Engine) if field.name != "tables")
