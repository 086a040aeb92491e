r"""Rests that let an edge of the next burst fall where a reading will see it.

A window much shorter than the period sees few edges by chance. Where the sensor keeps a grid and bursts begin about when
they are asked to, a rest can be chosen so that the next reading's window lies about an edge.

    readings        •           •           •           •           •
    windows         ▭           ▭           ▭           ▭           ▭
    burst       ___________________________/▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔\____        in turn its begin and its end are aimed at one
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wastenot.sensors.bursts import Rhythm
from wastenot.sensors.model import Sensing

_BEFORE, _AFTER = 0.5, 3.0  # windows that edges are aimed before and after a reading's window's end
_LAGS = 3.0  # fast lags that are worth looking at on top
_RECENT = 50  # bursts that lateness is taken from


@dataclass(slots=True)
class Aim:
    """Chooses rests.

    Attributes:
        rhythm: bursts so far.
        grid_s, period_s: moments of readings on the host's clock: one of them, and between them.
        sensing: as known by now.
        length_s: of the next bursts.
        rest_s: least and greatest rest, but for a period more.
        rng: chance.
    """

    rhythm: Rhythm
    grid_s: float
    period_s: float
    sensing: Sensing
    length_s: float
    rest_s: tuple[float, float]
    rng: np.random.Generator
    _planned_s: list[float] = field(default_factory=list)
    _late_s: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """The next rest."""
        now = self.rhythm.instrument.now_s()
        if self._planned_s:
            begin = self.rhythm.last_begin_s()
            self._late_s = [*self._late_s, begin - self._planned_s[-1]][-_RECENT:]
        late = float(np.median(self._late_s)) if self._late_s else 0.0
        rest = float(self.rng.uniform(*self.rest_s))
        after = self.rng.uniform(-_BEFORE * self.sensing.span_s, _AFTER * self.sensing.span_s + _LAGS * self.sensing.fast_s)
        edge = now + rest + late + (self.length_s if len(self._planned_s) % 2 else 0.0)
        seen = edge + self.sensing.delay_s + float(after)
        rest += (self.grid_s - seen) % self.period_s
        self._planned_s.append(now + rest)
        return rest
