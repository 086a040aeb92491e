"""Numbers reached, beside those asked for."""

from __future__ import annotations


class Verdict:
    """Collects results and says whether all were reached."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def at_least(self, what: str, reached: float, asked: float) -> None:
        """A number that should be no smaller."""
        self._note(what, reached, f"at least {asked:g}", reached >= asked)

    def at_most(self, what: str, reached: float, asked: float) -> None:
        """A number that should be no larger."""
        self._note(what, reached, f"at most {asked:g}", reached <= asked)

    def _note(self, what: str, reached: float, asked: str, good: bool) -> None:
        print(f"  {'ok    ' if good else 'MISSED'} {what}: {reached:.4g} ({asked})", flush=True)
        if not good:
            self.missed.append(what)
