"""What is believed of the settings of a job, for tests to hold it against what is true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.setting import Setting
from wastenot.jobs.plan.limits import Limits


@dataclass(frozen=True, slots=True)
class SettingOutlook:
    """Cost of a setting against the one that is held, as a ratio, its 95 % interval, and whether it was measured."""

    setting: Setting
    cost: float
    low: float
    high: float
    measured: bool


def outlook(limits: Limits, batch_size: int) -> tuple[SettingOutlook, ...]:
    """What is known of every setting at a batch size."""
    belief = limits._belief(batch_size, None)
    ratios = belief.costs / belief.costs[:, [belief.best]]
    low, high = np.quantile(ratios, (0.025, 0.975), axis=0).tolist()
    return tuple(
        SettingOutlook(setting, float(ratios[:, place].mean()), low[place], high[place], limits.known(batch_size, setting))
        for place, setting in enumerate(limits.terms.settings)
    )
