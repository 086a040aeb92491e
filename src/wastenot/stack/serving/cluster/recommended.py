"""How many instances of which parallel degree a load that is seen needs, so that all together draw least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wastenot.setting import Setting
from wastenot.stack.serving.cluster.seen_load import SeenLoad, carried
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.policies.costs import StepCosts

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
        costs = StepCosts(engine.tables)

        def shared(instances: int, engine: Engine = engine, costs: StepCosts = costs) -> Recommended | None:
            state = carried(load.times(1.0 / instances), engine, costs, deadlines, headroom=headroom)
            at = state.cheapest()
            if at is None:
                return None
            power_w = instances * float(state.power_w[at])
            return Recommended(instances, engine.gpus, engine.tables.settings[at], power_w)

        high = 1
        while high < _MOST and shared(high) is None:
            high *= 2
        low = high // 2  # too few, or none
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shared(middle) is None else (low, middle)
        tried = (shared(max(round(high * more), 1)) for more in _BEYOND)
        found.extend(each for each in tried if each is not None)
    return min(found, key=lambda each: (each.power_w, each.instances * each.gpus), default=None)
