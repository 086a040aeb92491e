"""The settings that a search tried on a running job, in words and as a table."""

from __future__ import annotations

from wastenot.control.status import Outcome, Summary, Trial
from wastenot.pages.formatting import SPACE, change
from wastenot.pages.table import Listed, Table, listing

HELD, GIVEN_UP = "held to the end", "found, then given up"
OUTCOMES: dict[Outcome, str] = {
    "held": HELD,
    "close": "not decided",
    "too slow": "too slow",
    "more energy": "saves less",
    "unusable": "could not be compared",
}


def held_of(summary: Summary) -> Trial | None:
    """The setting that was found and held; ``None`` where none was."""
    return next((each for each in summary.trials if each.outcome == "held"), None)


def still_held(summary: Summary) -> Trial | None:
    """The setting that a search found, where the job kept it to the end."""
    return held_of(summary) if summary.status.rung == 0 else None


def trial_words(trial: Trial) -> str:
    """A setting that was tried, in a few words: what is not named is left to the driver."""
    parts = (
        (trial.core_mhz, f"{SPACE}MHz"),
        (trial.memory_mhz, f"{SPACE}MHz memory clock"),
        (trial.power_limit_w, f"{SPACE}W power limit"),
    )
    named = [f"{value:,.0f}{unit}" for value, unit in parts if value is not None]
    return ", ".join(named if trial.profile is None else [f"profile {trial.profile}", *named])


def outcome_words(trial: Trial, *, kept: bool) -> str:
    """What became of a setting that was tried; ``kept`` is whether the job kept the one that was found."""
    return OUTCOMES[trial.outcome] if kept or trial.outcome != "held" else GIVEN_UP


def trials_table(summary: Summary) -> Table | None:
    """Every setting that was tried, those of least energy first."""
    if not summary.trials:
        return None
    kept = still_held(summary) is not None
    ordered = sorted(summary.trials, key=lambda each: each.energy_change.value if each.energy_change else 1.0)
    columns: list[Listed[Trial]] = [
        Listed("Setting", trial_words, numeric=False),
        Listed("Energy", lambda each: each.energy_change.value if each.energy_change else None, change),
        Listed("Time", lambda each: each.time_change.value if each.time_change else None, change),
        Listed("Comparisons", lambda each: each.stretches),
        Listed("Outcome", lambda each: outcome_words(each, kept=kept), numeric=False),
    ]
    note = "Changes relative to the default clocks; what is not named is left to the driver. –: abandoned earlier."
    return listing("Settings tried", ordered, columns, note, shown=10, rest="more settings")
