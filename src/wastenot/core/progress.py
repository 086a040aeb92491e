"""How long work reports its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Informed of every step of long work."""

    def begin(self, steps: int, done: int = 0) -> None:
        """Work begins.

        Args:
            steps: it has altogether.
            done: of these, done before.
        """

    def step(self, what: str) -> None:
        """One more step is done.

        Args:
            what: comes next or was done, for a person.
        """

    def say(self, message: str) -> None:
        """Something a person should know, such as that the device drifts."""


class Silent:
    """Shows nothing."""

    def begin(self, steps: int, done: int = 0) -> None:
        """Work begins."""

    def step(self, what: str) -> None:
        """One more step is done."""

    def say(self, message: str) -> None:
        """Something a person should know."""
