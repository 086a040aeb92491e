"""How many instances of which parallel degree a load that is seen needs, so that all together draw least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.setting import Setting
from wastenot.serving.cluster.seen_load import SeenLoad, carried
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine

_MOST = 4096
_BEYOND = (1.0, 1.1, 1.25, 1.5, 2.0)  # times the fewest instances: more of them may draw less, at lower clocks


@dataclass(frozen=True, slots=True)
class Recommended:
    """Instances that share a load evenly. Their power is predicted by the engine's profile, not measured.

    Attributes:
        instances: how many.
        gpus: of each.
        setting: of their clocks.
        power_w: of all of them.
    """

    instances: int
    gpus: int
    setting: Setting
    power_w: float


def recommended(
    load: SeenLoad, engines: Sequence[Engine], deadlines: Deadlines, *, headroom: float = 0.15
) -> Recommended | None:
    """The instances of least power that take a load; ``None`` where no number of them keeps the deadlines.

    Args:
        load: of all instances together.
        engines: of which they may be, one of each parallel degree.
        deadlines: to be kept.
        headroom: share of each deadline that is to be left over.
    """
    found: list[Recommended] = []
    for engine in engines:

        def shared(counts: Sequence[int], engine: Engine = engine) -> list[Recommended | None]:
            """So many instances each, counts descending."""
            rates = np.array([load.rate_per_s / count for count in counts])
            state = carried(load, engine, deadlines, headroom=headroom, rate_per_s=rates)
            return [
                None if at < 0 else Recommended(
                    count, engine.gpus, engine.tables.settings[at], count * float(state.power_w[at, place])
                )
                for place, (count, at) in enumerate(zip(counts, state.cheapest(deadlines.share), strict=True))
            ]  # fmt: skip

        powers = [2**power for power in range(_MOST.bit_length() - 1, -1, -1)]
        enough = [count for count, each in zip(powers, shared(powers), strict=True) if each is not None]
        if not enough:
            continue
        high = enough[-1]
        low = high // 2  # too few, or none
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shared([middle])[0] is None else (low, middle)
        tried = sorted({max(round(high * more), 1) for more in _BEYOND}, reverse=True)
        found.extend(each for each in shared(tried) if each is not None)
    return min(found, key=lambda each: (each.power_w, each.instances * each.gpus), default=None)
