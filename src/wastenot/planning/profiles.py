"""What the vendor's workload power profiles do, to set a plan beside them.

A profile holds for whole iterations, as nobody changes it from kernel to kernel. Its rows are left out of what plans are
made of: which clocks it sets inside the card is not published, so they are no points of the curves by which noise is
estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.profiles import profile_name
from wastenot.planning.costs import combine_repeats
from wastenot.study.coverage import RecordedSweep
from wastenot.study.sweep import Sweep, rows_of


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """An iteration under a profile, the clocks left to the driver, against the default; errors are standard errors.

    Attributes:
        name: of the profile.
        time_change: T/T_auto − 1, as measured.
        energy_change: likewise.
        time_error: of ``time_change``; ``None`` where a measurement has none.
        energy_error: likewise.
    """

    name: str
    time_change: float
    energy_change: float
    time_error: float | None
    energy_error: float | None


def without_profiles(sweep: Sweep) -> Sweep:
    """The rows at no profile; the sweep itself where it has no others."""
    keep = np.isnan(sweep.profile)
    if keep.all():
        return sweep
    return replace(rows_of(sweep, np.flatnonzero(keep)), recorded=tuple(map(_without_profiles, sweep.recorded)))


def _without_profiles(recorded: RecordedSweep) -> RecordedSweep:
    intent = recorded.intent
    settings = tuple(each for each in intent.settings if each.profile is None)
    excluded = frozenset(point for point in intent.excluded if point[1].profile is None)
    return replace(recorded, intent=replace(intent, settings=settings, excluded=excluded))


def profile_outcomes(sweep: Sweep) -> tuple[ProfileOutcome, ...]:
    """Those of the profiles at which every kernel was measured with the clocks left to the driver, by falling saving.

    The change S/S_auto − 1 of a sum S = Σ count · value, whose error is σ, has the error
    S/S_auto · √((σ/S)² + (σ_auto/S_auto)²).
    """
    costs = combine_repeats(sweep)
    alone = np.isnan(costs.core_mhz) & np.isnan(costs.memory_mhz) & np.isnan(costs.power_limit_w)
    base = costs.start[:-1]
    found = []
    for number in np.unique(costs.profile[alone & ~np.isnan(costs.profile)]):
        rows = np.flatnonzero(alone & (costs.profile == number))
        if len(rows) < len(costs.kernels):
            continue
        changes = []
        for value, error in ((costs.time_s, costs.time_se_s), (costs.energy_j, costs.energy_se_j)):
            whole, auto = (float(costs.count @ value[each]) for each in (rows, base))
            apart = [math.hypot(*(costs.count * error[each])) for each in (rows, base)]
            spread = whole / auto * math.hypot(apart[0] / whole, apart[1] / auto)
            changes.append((whole / auto - 1.0, None if math.isnan(spread) else spread))
        (time, time_error), (energy, energy_error) = changes
        found.append(ProfileOutcome(profile_name(int(number)), time, energy, time_error, energy_error))
    return tuple(sorted(found, key=lambda each: each.energy_change))
