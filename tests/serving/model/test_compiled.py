from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from wastenot.serving.model import compiled


def twice(number: float) -> float:
    return 2 * number


def _loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file as a new module, among those imported: Numba imports the module of what it kept again by name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def test_a_function_is_compiled_even_where_it_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def njit(**options: Any) -> Any:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(compiled, "njit", njit, raising=False)
    monkeypatch.setattr(compiled, "COMPILED", True)
    assert compiled.compiled(twice, nogil=True)(3.0) == 6.0
    assert [each.get("cache") for each in asked] == [True, None]
    assert all(each["nogil"] for each in asked)


def test_without_numba_it_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "COMPILED", False)
    assert compiled.compiled(twice) is twice


def test_what_was_kept_is_compiled_again_once_a_file_that_it_uses_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled.COMPILED:
        pytest.skip("needs Numba")
    module, used = tmp_path / "kept_by_numba.py", tmp_path / "used.py"
    module.write_text("def one_more(number):\n    return number + 1\n")
    used.write_text("")

    def hits() -> int:
        function: Any = compiled.compiled(_loaded(module, monkeypatch).one_more, uses=[str(used)])
        assert function(1) == 2
        return sum(function.stats.cache_hits.values())

    assert [hits(), hits()] == [0, 1]
    os.utime(used, ns=(1, 1))
    assert [hits(), hits()] == [0, 1]


def test_what_another_version_kept_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled.COMPILED:
        pytest.skip("needs Numba")
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "kept"))
    module = tmp_path / "kept_by_an_earlier.py"
    module.write_text("def one_less(number):\n    return number - 1\n")

    def function() -> Any:
        return compiled.compiled(_loaded(module, monkeypatch).one_less)

    assert function()(1) == 0
    (index,) = tmp_path.rglob("*.nbi")
    with index.open("rb") as file:
        version = pickle.dumps(pickle.load(file))
        kept = file.read()
    for unreadable in (b"cwastenot.a_module_that_was_moved\nTables\n.", kept[:40]):  # a type, as pickle names it; cut short
        index.write_bytes(version + unreadable)
        assert function()(1) == 0
