"""Power by clock of many operations, from the readings that were taken in wakes of products.

    python -m benchmarks.h200.natural_power    # ops.npz.xz -> ops-power-by-clock.csv

A reading sees power through the sensor's delay and lag. What it saw of the products before is taken off by their own power
at their clock; it is kept where most of what it saw was the operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.h200.natural_tables import recorded, write

DELAY_S, LAG_S = 0.012, 0.0125  # data/h200/fingrav, with half of the 20 ms between the sensor's samples
WHOLE, OWN = 0.97, 0.6  # fractions of a reading: that a run accounts for, and that must be the operation
PRODUCTS_MHZ_W = ((1350.0, 1590.0), (705.0, 920.0))  # power of the products themselves by clock, in these runs


def main() -> None:
    rows = [(meta["name"], *row) for meta, seen in recorded() for row in power_by_clock(seen)]
    write("ops-power-by-clock", ("name", "sm_mhz", "power_w", "fraction_seen"), rows)


def power_by_clock(seen: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The clock at which each reading saw the operation, its power there, and how much of the reading that was."""
    own, begin_s = seen["phase"] % 2 == 0, seen["at_s"]
    end_s = begin_s + seen["seconds"]
    for moment, watts in seen["readings"]:
        until = moment - DELAY_S
        late, early = (np.minimum(np.exp((edge - until) / LAG_S), 1.0) for edge in (end_s, begin_s))
        weight = late - early
        share = float(weight[own].sum())
        if weight.sum() > WHOLE and share > OWN * weight.sum():
            products_w = np.interp(seen["mhz"][~own], *PRODUCTS_MHZ_W)
            power_w = (watts - weight[~own] @ products_w) / share
            yield f"{weight[own] @ seen['mhz'][own] / share:.1f}", f"{power_w:.1f}", f"{share:.2f}"


if __name__ == "__main__":
    main()
