"""How long work tells of its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of every step of long work."""

    def begin(self, steps: int, done: int = 0) -> None:
        """Work begins.

        Args:
            steps: it has altogether.
            done: of which were done before.
        """

    def step(self, what: str) -> None:
        """One more step is done.

        Args:
            what: comes next or was done, for a person.
        """

    def say(self, message: str) -> None:
        """Something a person should know, such as that the device drifts."""


class Silent:
    """Tells nobody."""

    def begin(self, steps: int, done: int = 0) -> None:
        """Work begins."""

    def step(self, what: str) -> None:
        """One more step is done."""

    def say(self, message: str) -> None:
        """Something a person should know."""
