"""Where a plan and its study are, to be named in the commands that pages and terminals print."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from wastenot.study.database import parse_address


@dataclass(frozen=True, slots=True)
class Files:
    """Where a plan and the study that it is made from are; ``None`` where that is not known, or they were not written."""

    study: str | None = None
    plan: Path | None = None

    @property
    def study_text(self) -> str:
        """The study as a command names it; in capitals what the reader is to fill in."""
        return "STUDY.db" if self.study is None else shlex.quote(parse_address(self.study).label)

    @property
    def plan_text(self) -> str:
        """The plan, likewise."""
        return "PLAN.json" if self.plan is None else shlex.quote(str(self.plan))
