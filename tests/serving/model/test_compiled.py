from __future__ import annotations

from typing import Any

import pytest

from wastenot.serving.model import compiled


def twice(number: float) -> float:
    return 2 * number


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
