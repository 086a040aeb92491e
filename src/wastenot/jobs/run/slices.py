"""A slice: iterations of a running job that follow each other at one setting, with the energy at both ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from wastenot.control.blocks import MOST_PAUSES, PAUSE
from wastenot.control.energy_edges import Edge, EnergyEdges

_LONG = 2.0  # as PAUSE, against the job's latest iterations at whatever settings
_LONGEST_WAIT_S = 1.0  # for the counter to move twice
_EDGE = 0.2  # of a period of the energy counter, by which the energy at an edge is off, as a power
_STEADY_POWER = 0.003  # by which the power of a slice differs from what the setting would show in the long run


class Slice:
    """Iterations at one setting; begun by :meth:`begin`.

    Args:
        edges: tell the energy of each GPU.

    Attributes:
        times_s: of its iterations.
    """

    def __init__(self, edges: Sequence[EnergyEdges]) -> None:
        self._edges = tuple(edges)
        self.times_s: list[float] = []
        self._begin: list[Edge] = []
        self._end: list[Edge] = []
        self._pauses = 0

    def begin(self, now_s: float) -> None:
        """An iteration begins, the first that counts."""
        self._pauses = 0
        self._begin_anew(now_s)

    def _begin_anew(self, now_s: float) -> None:
        self.times_s, self._end = [], []
        self._begin = [edges.add(now_s) for edges in self._edges]

    def count(self, took_s: float, now_s: float, latest_s: Sequence[float]) -> bool:
        """Count an iteration that has ended; returns whether it counts, or the slice starts over after a pause.

        Args:
            took_s: its time.
            now_s: when it ended.
            latest_s: times of the job's latest iterations, whatever ran.
        """
        # Another setting may be slower by itself, as only iterations of its own can tell.
        most_s = PAUSE * median(self.times_s) if len(self.times_s) > 2 else _LONG * median(latest_s or [math.inf])
        if took_s > most_s:
            self._pauses += 1
            if self._pauses < MOST_PAUSES:  # a checkpoint, or a validation
                self._begin_anew(now_s)
                return False
        self.times_s.append(took_s)
        return True

    def end(self, now_s: float) -> None:
        """The last iteration has ended; the energy until then is known a little later."""
        self._end = [edges.add(now_s) for edges in self._edges]

    @property
    def ended_s(self) -> float:
        """When it ended."""
        return self._end[0].moment_s

    @property
    def wait_ends_s(self) -> float:
        """When no energy is expected any more."""
        return self.ended_s + _LONGEST_WAIT_S

    @property
    def settled(self) -> bool:
        """Whether its energy is known."""
        return all(edge.energy_j is not None for edge in (*self._begin, *self._end))

    @property
    def mean_s(self) -> float:
        """Mean time of an iteration."""
        return math.fsum(self.times_s) / len(self.times_s)

    @property
    def power_w(self) -> float | None:
        """Mean power of all GPUs; ``None`` where it is not known."""
        if not self.settled:
            return None
        used_j = [(e.energy_j or 0.0) - (b.energy_j or 0.0) for b, e in zip(self._begin, self._end, strict=True)]
        power_w = math.fsum(used_j) / (self.ended_s - self._begin[0].moment_s)
        return power_w if math.isfinite(power_w) and power_w > 0.0 else None

    @property
    def power_error(self) -> float:
        """Standard error of the power, as a fraction: counters move rarely."""
        span_s = self.ended_s - self._begin[0].moment_s
        return math.hypot(_STEADY_POWER, _EDGE * max(edges.period_s for edges in self._edges) / span_s)
