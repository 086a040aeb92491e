"""The best clock that is never changed: what a policy that steers must beat.

The lowest clocks keep no deadlines and the greatest waste energy; one in between is often nearly as good as any steering.
It has to be chosen before the load is known, so it is chosen on one part of a trace and judged on another; the one that
hindsight would have chosen stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate


@dataclass(frozen=True, slots=True)
class FixedClock:
    """One clock throughout a load.

    Attributes:
        setting: an index into the settings of the engine's tables.
        attainment: share of the requests that kept all of their deadlines.
        energy_j: of the run.
    """

    setting: int
    attainment: float
    energy_j: float


def fixed_clocks(requests: Requests, engine: Engine, deadlines: Deadlines) -> tuple[FixedClock, ...]:
    """Each setting throughout, by falling clock, down to the first that keeps the deadlines of less than half the requests.

    Lower clocks than that are left out: they keep fewer still, and an engine that cannot keep up with its load takes long to
    simulate.
    """
    found: list[FixedClock] = []
    for setting in reversed(range(len(engine.tables.settings))):
        served = simulate(requests, engine, Fixed(setting), deadlines=deadlines)
        found.append(FixedClock(setting, served.attainment(deadlines), served.total_energy_j))
        if found[-1].attainment < 0.5:
            break
    return tuple(found)


def best_fixed(clocks: tuple[FixedClock, ...], share: float) -> FixedClock:
    """The clock of least energy among those that attain a share; where none does, the one that attains most."""
    enough = [each for each in clocks if each.attainment >= share]
    if not enough:
        return max(clocks, key=lambda each: each.attainment)
    return min(enough, key=lambda each: each.energy_j)
