"""What the trials of a search showed: while it runs, at its end, and as settings to hold."""

from __future__ import annotations

import math
from dataclasses import asdict

from wastenot.control.estimate import LogMean
from wastenot.control.one_setting import Change
from wastenot.control.setting_search import Candidate, SettingSearch
from wastenot.control.status import Estimate, Outcome, Trial, Tuning


def tuning_of(search: SettingSearch, done: bool, iterations: int, trying: Candidate | None, rehearsed: bool) -> Tuning:
    """Where a search stands.

    Args:
        search: the search.
        done: whether it has ended.
        iterations: of the job that it took so far.
        trying: the setting that runs now; ``None`` at the default clocks.
        rehearsed: whether nothing was compared.
    """
    best = None if rehearsed else search.winner if done else search.best
    return Tuning(
        done=done,
        tried=len(search.tried),
        left=len(search.left),
        trials=sum(len(each.energy) for each in search.candidates),
        iterations=iterations,
        trying=None if trying is None else str(trying.setting),
        best=None if best is None else str(best.setting),
        time_change=None if best is None else _interval(search, search.time(best)),
        energy_change=None if best is None else _interval(search, search.energy(best)),
        regret=math.expm1(search.regret) if search.left and not rehearsed else None,
    )


def trials_of(search: SettingSearch, held: Candidate | None) -> tuple[Trial, ...]:
    """What every setting that was tried showed; one of them may be held now."""
    return tuple(_trial(search, each, each is held) for each in search.tried)


def changes_of(search: SettingSearch, winner: Candidate) -> list[Change]:
    """The setting that was found, and faster ones to step to, which save something, each faster than the one before."""
    rungs, best = [winner], search.time(winner).mean
    saving = [each for each in search.candidates if each.energy and search.energy(each).mean < 0.0]
    for each in sorted(saving, key=lambda one: search.energy(one).mean):
        if 0.0 < search.time(each).mean < best - 1e-4:
            rungs.append(each)
            best = search.time(each).mean
    return [Change(each.setting, search.time(each).mean, search.energy(each).mean) for each in rungs]


def _trial(search: SettingSearch, candidate: Candidate, held: bool) -> Trial:
    compared = bool(candidate.energy)
    outcome: Outcome = "close"
    if held:
        outcome = "held"
    elif candidate.slow:
        outcome = "too slow"
    elif candidate.dropped:
        outcome = "more energy" if compared else "unusable"
    return Trial(
        **asdict(candidate.setting),
        stretches=len(candidate.energy),
        time_change=_interval(search, search.time(candidate)) if compared else None,
        energy_change=_interval(search, search.energy(candidate)) if compared else None,
        outcome=outcome,
    )


def _interval(search: SettingSearch, mean: LogMean) -> Estimate:
    """The ratio − 1 with its 95 % interval, of a mean whose half length leaves no doubt; a proxy's error added."""
    return LogMean(mean.mean, 1.959964 / search.sure * mean.half + search.error).change
