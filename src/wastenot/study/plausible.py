"""Whether numbers can be what they are said to be: the power that they amount to, and the unit that would explain it.

Energies or times that are off by the same factor everywhere leave every saving and slowdown in percent as it is, but joules,
kilowatt-hours and costs are wrong. So implausible numbers are pointed at wherever they show, and never refused: a rack, or
a board of a few milliwatts, is for its owner to judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.study.sweep import Sweep

LEAST_W, MOST_W = 1.0, 10_000.0  # no card that runs kernels draws less or more
_USUAL_W = 200.0
# What the numbers may be in instead, how to fix it, and the factor by which the power is then too large.
_UNITS = (
    ("energy_j looks like millijoules", "divide energy_j by 1,000", 1e3),
    ("energy_j looks like microjoules", "divide energy_j by 1,000,000", 1e6),
    ("time_s looks like milliseconds", "divide time_s by 1,000", 1e-3),
    ("time_s looks like microseconds", "divide time_s by 1,000,000", 1e-6),
    ("time_s looks like nanoseconds", "divide time_s by 1,000,000,000", 1e-9),
)
_PREFIXES = ((1e9, "GW"), (1e6, "MW"), (1e3, "kW"), (1.0, "W"), (1e-3, "mW"), (1e-6, "µW"))


@dataclass(frozen=True, slots=True)
class Implausible:
    """Rows whose power no card draws.

    Attributes:
        rows: how many.
        power_w: of the one in the middle.
        text: which, how much, and what the unit may be, for a person to read.
    """

    rows: int
    power_w: float
    text: str


def implausible_rows(sweep: Sweep) -> Implausible | None:
    """The rows of a sweep whose power no card draws; ``None`` where there are none.

    Args:
        sweep: its times and energies are above 0.
    """
    power_w = sweep.energy_j / sweep.time_s
    wrong = np.flatnonzero((power_w < LEAST_W) | (power_w > MOST_W))
    if not len(wrong):
        return None
    row = int(wrong[np.argsort(power_w[wrong], kind="stable")[len(wrong) // 2]])
    kernel = sweep.kernels[sweep.kernel_index[row]].name
    example = (
        f"{sweep.energy_j[row]:,g} J in {_duration(float(sweep.time_s[row]))} are {watts(float(power_w[row]))} "
        f"('{kernel}' at {sweep.setting(row)})"
    )
    which = "every row" if len(wrong) == len(sweep) else f"{len(wrong):,} of {len(sweep):,} rows"
    text = f"{which}: no card draws such power: {example}; {_likely(float(power_w[row]))}"
    return Implausible(len(wrong), float(power_w[row]), text)


def implausible_power(time_s: float, energy_j: float) -> str | None:
    """What to say of a total whose mean power no card draws; ``None`` where that is possible, or nothing was measured."""
    if 0.0 in (time_s, energy_j):
        return None
    power_w = energy_j / time_s
    if LEAST_W <= power_w <= MOST_W:
        return None
    return (
        f"No card draws {watts(power_w)}, the mean power at auto: {_likely(power_w)}. Until then joules and costs are wrong"
    )


def watts(power_w: float) -> str:
    """A power in a unit that people can read."""
    scale, unit = next(((scale, unit) for scale, unit in _PREFIXES if power_w >= scale), _PREFIXES[-1])
    return f"{power_w / scale:.3g} {unit}"


def _likely(power_w: float) -> str:
    """The unit that would bring a power closest to that of a usual card."""
    off = {factor: abs(math.log(power_w / factor / _USUAL_W)) for _, _, factor in _UNITS}
    what, remedy, _ = min(_UNITS, key=lambda unit: off[unit[2]])
    return f"{what}; give seconds and joules of one call: {remedy} and import it into a new study"


def _duration(time_s: float) -> str:
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if time_s >= s), (1e-9, "ns"))
    return f"{time_s / scale:.3g} {unit}"
