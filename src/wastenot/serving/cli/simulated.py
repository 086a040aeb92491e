"""What a simulation of servers gives to be shown, whichever it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.pages.page import Page


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulation's result.

    Attributes:
        kind: of its document.
        document: as JSON values.
        text: for a terminal.
        page: draws the figures, too.
    """

    kind: str
    document: dict[str, Any]
    text: Callable[[], RenderableType]
    page: Callable[[], Page]
