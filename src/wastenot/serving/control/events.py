"""What a controller of servers tells: a clock that is set, a server that is left to its default clocks, a recommendation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal["began", "clock", "default", "controlled", "recommendation", "note", "ended"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        kind: of it.
        text: for a person.
        instance: that it is about; empty for all of them.
        values: for a program.
    """

    kind: EventKind
    text: str
    instance: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


Tell = Callable[[Event], None]
