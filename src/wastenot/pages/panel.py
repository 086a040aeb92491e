"""What stands at the head of a page and of a plan's printed text, in words; pages and terminals only lay it out."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

Tone = Literal["kept", "missed", "undecided", "promised", "as-measured", "neutral"]
"""How sure a plan is of its slowdown limit; pages colour it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A named detail of a panel; one that ``warns`` stands out."""

    label: str
    text: str
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the three things that a reader is to know of a plan.

    Attributes:
        title: which.
        value: the answer, in a few words that stand in no other panel.
        text: what completes it; may be empty.
        commands: to copy and run.
        undo: the commands that undo these.
        lines: details.
        note: what to know before acting on it, else ``None``.
    """

    title: str
    value: str
    text: str
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    note: str | None = None

    @property
    def sentence(self) -> str:
        """Value and text as one sentence."""
        if not self.text:
            return self.value
        return f"{self.value}{',' if self.text.startswith(('since ', 'which ')) else ''} {self.text}"


@dataclass(frozen=True, slots=True)
class Next:
    """What to do after reading a page.

    Attributes:
        text: what the commands do, one sentence without its full stop, such as ``Train with these clocks``.
        commands: to copy and run, one after the other; in capitals what the reader is to fill in.
        apart: whether each has a box of its own, since the first runs until it is stopped.
    """

    text: str
    commands: tuple[str, ...]
    apart: bool = False

    def filled(self, command: str) -> Next:
        """The same with the files that the page's own command wrote or reported: ``PLAN.json`` becomes ``tuned.json``.

        Args:
            command: that made the page. Of two places for files of a kind, the second stays to be filled in.
        """
        texts = [self.text, *self.commands]
        words = shlex.split(command) if command.startswith("wastenot ") else []
        named = [after for word, after in pairwise(words) if word in _FILES or word == "report"]
        for place in dict.fromkeys(_PLACE.findall(" ".join(self.commands))):
            files = [shlex.quote(each) for each in named if each.endswith(place[place.index(".") :])]
            if len(files) == 1 and files[0] not in " ".join(texts):
                texts = [text.replace(place, files[0]) for text in texts]
        return replace(self, text=texts[0], commands=tuple(texts[1:]))


_PLACE = re.compile(r"\b[A-Z]+\.(?:json|db|parquet|csv)\b")
_FILES = ("--out", "--study")


@dataclass(frozen=True, slots=True)
class Story:
    """What a plan says in ten seconds.

    Attributes:
        tone: how sure it is.
        effect: what can be had today, such as ``Saves 1.79 % of the energy, 0.15 % faster``.
        how: it is applied, and in what the true change lies; may be empty.
        known: how sure that is, and whether the limit was kept.
        missing: what was not done to be surer; may be empty.
        panels: three things that follow, in the order they are shown.
        bound: what the whole plan would do, a sentence; ``None`` where it can be had today.
    """

    tone: Tone
    effect: str
    how: str
    known: str
    missing: str
    panels: tuple[Panel, Panel, Panel]
    bound: str | None = None

    @property
    def verdict(self) -> str:
        """How the effect is known, in full; continues where ``effect`` ends."""
        return "; ".join(filter(None, (self.how, self.known, self.missing)))

    @property
    def sentence(self) -> str:
        """Effect and verdict as one sentence."""
        return f"{self.effect}: {self.verdict}"
