"""How a report came to be: its files, the call that made it, and the measurements that it rests on."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wastenot.core.wording import counted
from wastenot.planning.plan import Plan
from wastenot.study.address import parse_address
from wastenot.study.store import Study
from wastenot.study.sweep import Sweep


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


def report_call(source: object, out: object, **arguments: Any) -> str:
    """The call of ``wastenot.report`` in Python, as one would write it; of an address only what may be shown."""
    given = ", ".join(f"{name}={_written(name, value)}" for name, value in arguments.items() if value is not None)
    return f"wn.report({_written('study', source)}, {_written('out', out)}{', ' if given else ''}{given})"


def provenance(study: Study | None, sweep: Sweep) -> tuple[tuple[str, str], ...]:
    """What the numbers of a sweep come from, as (name, text) pairs; nothing where the sweep stands for itself."""
    if study is None:
        return ()
    key = (sweep.key.name, sweep.key.state, sweep.key.granularity)
    held = next((each for each in study.summary().workloads if (each.name, each.state, each.granularity) == key), None)
    made = []
    if held is not None:
        made += [f"swept {each.started_at:%Y-%m-%d %H:%M} UTC" for each in held.sweeps[-1:]]
        made = made or [f"{each.source}, imported {each.imported_at:%Y-%m-%d %H:%M} UTC" for each in held.imports[-1:]]
    return (("Study", ", ".join((str(study), *made))), ("Measurements", f"{sweep.key}: {counted(len(sweep), 'row')}"))


def _written(name: str, value: object) -> str:
    """An argument as Python code: files by name, objects by the name that they would have."""
    if isinstance(value, Study):
        value = str(value)
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return repr(parse_address(text).label if name == "study" else str(Path(text)))
    if isinstance(value, Plan | Sweep):
        return type(value).__name__.lower()
    return repr(value)
