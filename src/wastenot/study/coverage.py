"""What a workload was meant to be measured at, and how far that got: what a plan may claim rests on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Literal

from wastenot.core.setting import AUTO, Setting

SweepKind = Literal["grid", "search", "auto", "refine", "natural"]
"""What a sweep sets out to do: measure every kernel at every setting; choose among these points; measure at the default
clocks only; measure the finalists of a plan again; or measure at clocks that the GPU goes through by itself."""

Point = tuple[str, Setting]
"""A kernel, by name, at a setting."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a sweep sets out to do.

    Attributes:
        kind: see :data:`SweepKind`.
        settings: besides auto, which is always measured.
        excluded: points of these that are not to be measured, such as those that the device cannot run.
        share: fraction of the points that a search may measure; ``None`` for other kinds.
        max_slowdown: of the plans that a search looks for; ``None`` for other kinds.
        command: that resumes it, where there is one.
    """

    kind: SweepKind
    settings: tuple[Setting, ...] = ()
    excluded: frozenset[Point] = frozenset()
    share: float | None = None
    max_slowdown: float | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedSweep:
    """A sweep as the study remembers it.

    Attributes:
        started_at: in UTC.
        finished_at: when it came to its end; ``None`` where it was interrupted or is still running.
    """

    intent: Intent
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what was intended is measured.

    A point is a kernel at a setting, auto included; at natural clocks, which nobody chose, it is a kernel.

    Attributes:
        kind: ``grid``, ``search``, ``auto``, ``refine`` or ``natural`` after the sweeps of the workload; ``given`` where the
            points came from a file, or from a wastenot that did not record what it set out to measure.
        measured: points that there are.
        of: those and the points still intended; ``None`` where nobody said what was intended.
        complete: whether every point that was intended is measured; ``None`` as for ``of``.
        finished: whether the sweeps came to their ends; ``None`` where there were none.
        command: that resumes the last one that did not, where known.
    """

    kind: SweepKind | Literal["given"]
    measured: int
    of: int | None = None
    complete: bool | None = None
    finished: bool | None = None
    command: str | None = None

    @property
    def shares_settings(self) -> bool:
        """Whether kernels were measured at common settings, as plans need that give several kernels one setting."""
        return bool(self.complete) or self.kind not in ("search", "refine")


def intended_points(intent: Intent, kernels: Iterable[str]) -> set[Point]:
    """The points that a sweep is to measure or to choose from.

    Args:
        intent: of the sweep.
        kernels: names of all kernels of the workload.
    """
    return {point for point in product(kernels, (AUTO, *intent.settings)) if point not in intent.excluded}


def coverage_of(recorded: Sequence[RecordedSweep], kernels: Iterable[str], measured: Set[Point]) -> Coverage:
    """What the sweeps of a workload came to; the points intended are those of all of them together.

    Args:
        recorded: the sweeps.
        kernels: names of all kernels of the workload.
        measured: the points that there are.
    """
    if not recorded:
        return Coverage("given", len(measured))
    kinds = {sweep.intent.kind for sweep in recorded}
    settings = {AUTO, *(setting for sweep in recorded for setting in sweep.intent.settings)}
    deciding = [sweep for sweep in recorded if sweep.intent.kind != "refine"] or recorded
    unfinished = [sweep for sweep in deciding if sweep.finished_at is None]
    finished, command = not unfinished, unfinished[-1].intent.command if unfinished else None
    if kinds == {"natural"}:
        done = {kernel for kernel, setting in measured if setting.is_auto}
        of = len(done.union(kernels))
        return Coverage("natural", len(done), of, len(done) == of, finished, command)
    if kinds <= {"auto", "refine"}:
        if any(setting not in settings for _, setting in measured):  # which no recorded sweep brought
            return Coverage("given", len(measured))
        if "refine" in kinds:
            return Coverage("refine", len(measured), finished=finished, command=command)
    names = tuple(kernels)
    of = len(set(measured).union(*(intended_points(sweep.intent, names) for sweep in deciding)))
    # A complete grid beside a search is one where kernels share settings; so is one that was broken off.
    kind: Literal["grid", "search", "auto"] = "grid" if "grid" in kinds else "search" if "search" in kinds else "auto"
    return Coverage(kind, len(measured), of, len(measured) == of, finished, command)
