"""Files of what energy costs over time, and which decisions of a controller a cost changes that changes over time.

Deadlines leave no request to be put off, so at each moment the least energy is the least cost. Only trades between now and
later differ: an instance that is kept parked draws power now, one that is stopped takes a start later.

    kept parked    ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   parked power, at the costs of all this time
    stopped        ················▄▄▄▄   power of a start, at the costs of its end
                   now                  when it serves again
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import HOUR_S, Tariff
from wastenot.serving.cluster.traffic import timed_values

AHEAD_S = 7 * 24 * HOUR_S
"""How far a trade between now and later looks ahead."""


def start_outweighed_s(tariff: Tariff, now_s: float, kept_w: float, start_w: float, start_s: float) -> float:
    """For how long something must not be needed for it to be worth stopping.

    Kept, it draws power from now on; stopped, it takes a start that ends, or nearly so, when it is needed again.
    Energy that is paid for being drawn counts as free: nothing is to be drawn for its own sake.

    Args:
        tariff: what energy costs over time.
        now_s: time of the run.
        kept_w: power while it is kept; above 0.
        start_w: power of a start.
        start_s: that a start takes.

    Returns:
        The time from which on keeping it costs more than a start does; at most :data:`AHEAD_S`.
    """
    known = replace(tariff, per_kwh=np.maximum(tariff.per_kwh, 0.0))
    turns = known.turns(now_s, now_s + AHEAD_S + start_s) - now_s
    turns = np.unique(np.concatenate([[0.0, AHEAD_S], turns, turns - start_s]))
    ends = turns[(turns >= 0) & (turns <= AHEAD_S)]
    now, end = known.integral(np.array([now_s])), known.integral(now_s + ends)
    # What keeping it costs beyond a start: linear between the turns.
    beyond = kept_w * (end - now) - start_w * (known.integral(now_s + ends + start_s) - end)
    last = int(np.flatnonzero(beyond <= 0)[-1]) if (beyond <= 0).any() else 0
    if last == len(ends) - 1:
        return AHEAD_S
    share = max(-beyond[last], 0.0) / (beyond[last + 1] - min(beyond[last], 0.0))
    return float(ends[last] + share * (ends[last + 1] - ends[last]))


def read_tariff(path: Path) -> Tariff:
    """A tariff from a CSV: times (dates or seconds, ascending), then what a kilowatt-hour costs from then on.

    Times count from the first; the last value holds on.

    Raises:
        BadInputError: the file cannot be read, or is not like this.
    """
    _, times, values = timed_values(path, "what a kWh costs from then on")
    try:
        return Tariff(np.array(times) - (times[0] if times else 0.0), np.array(values))
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error
