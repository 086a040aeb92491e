"""A simulated GPU as it runs phases of kernels, group by group, and the power it draws.

stream    ▮▮▮│▮▮▮│▮▮▮│▯▯▯▯▯▯│▯▯▯▯▯▯│▯▯▯▯▯▯│       groups of calls with stamps in between
pieces    └┘└┘└┘└┘└┘└┘└─┘└─┘└┘└─┘└─┘└┘└─┘└┘       of one kernel at one clock: each has one speed and one power
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.devices.simulated.bench import Bench
from wastenot.devices.simulated.pace import Load, Pace
from wastenot.devices.simulated.power_history import PowerHistory
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.devices.simulated.trace import history_of, respond
from wastenot.devices.timeline import REST, Phase


@dataclass(frozen=True, slots=True)
class Group:
    """Calls between two stamps, exactly; cycles of the clock in effect, and those that are counted, in millions."""

    phase: int
    subject: int
    calls: int
    begin_s: float
    end_s: float
    megacycles: float
    counted: float


class Stream:
    """The GPU as it runs phases of kernels; arguments are those of :class:`Pace`."""

    def __init__(self, bench: Bench, loads: Sequence[Load], regulated: RegulatedClock | None) -> None:
        preset = bench.physics.preset
        self._dynamics, self._rng = preset.dynamics, bench.rng
        self._loads, self._idle = loads, bench.idle()
        self._pace = Pace(bench, loads, regulated)
        self._time_factor = np.exp(preset.noise.run_time * bench.rng.standard_normal(len(loads))).tolist()
        self._power_factor = np.exp(preset.noise.run_power * bench.rng.standard_normal(len(loads))).tolist()
        self._executed = 0  # since the last rest
        self._stretch = -1  # of one kernel, or of rest
        self._pieces: list[tuple[float, int, bool, float, float, float]] = []  # seconds, stretch, stamp, power above idle
        self._heavy: list[bool] = []  # by stretch
        self.groups: list[Group] = []

    @property
    def now_s(self) -> float:
        """Time since it began."""
        return self._pace.now_s

    def run(self, index: int, phase: Phase) -> None:
        """Run a phase."""
        self._stretch += 1
        self._heavy.append(phase.subject != REST and self._loads[phase.subject].heavy)
        if phase.subject == REST:
            self._executed = 0
            self._pace.begin(None)
            self._rest(phase.seconds)
            return
        self._pace.begin(phase.subject)
        load, warm_up = self._loads[phase.subject], self._dynamics.warm_up
        groups = max(round(phase.seconds / (load.calls * load.call_s)), 1)
        slower = self._dynamics.jitter / math.sqrt(load.calls) * self._rng.standard_normal(groups)
        for jitter in slower.tolist():
            self._stamp(phase.subject)
            extra = sum(warm_up[self._executed : self._executed + load.calls])
            self._executed += load.calls
            begin_s = self.now_s
            cycles = self._execute(phase.subject, (load.calls + extra) * (1.0 + jitter))
            self.groups.append(Group(index, phase.subject, load.calls, begin_s, self.now_s, *cycles))

    def history(self) -> PowerHistory:
        """Power along what has run."""
        pieces = np.array(self._pieces)
        step_s, stretch, above_w = pieces[:, 0], pieces[:, 1].astype(np.intp), np.ascontiguousarray(pieces[:, 3:].T)
        begin_s = np.cumsum(step_s) - step_s
        # A stamp counts as part of the kernel that follows it.
        index = np.where(pieces[:, 2] > 0.0, len(pieces) - 1, np.arange(len(pieces)))
        following = np.minimum.accumulate(index[::-1])[::-1]
        heavy = np.array(self._heavy)[stretch]
        middle_s = begin_s + 0.5 * step_s
        demand = respond(self._dynamics, above_w, above_w[:, following], stretch, begin_s, middle_s, heavy)
        return history_of(self._dynamics, demand, step_s, self._idle)

    def _rest(self, seconds: float) -> None:
        while seconds > 0.0:
            taken_s = min(seconds, self._pace.left_s)
            seconds -= taken_s
            self._pass(taken_s, 0.0, 0.0, 0.0)

    def _stamp(self, subject: int) -> None:
        """One warp reads the counters; the chip stays awake."""
        base_w = self._pace.at(subject).base_w - self._idle.base
        seconds = self._dynamics.cycle_clock.cost_s
        while seconds > 0.0:
            taken_s = min(seconds, self._pace.left_s)
            seconds -= taken_s
            self._pass(taken_s, base_w, 0.0, 0.0, stamp=True)

    def _execute(self, subject: int, calls: float) -> tuple[float, float]:
        """Run calls of a subject; returns how many millions of cycles that took, and how many of them are counted."""
        slower, more = self._time_factor[subject], self._power_factor[subject]
        idle_w, megacycles, counted = self._idle.base, 0.0, 0.0
        while calls > 0.0:
            speed = self._pace.at(subject)
            call_s = speed.call_s * slower
            needed_s = calls * call_s
            taken_s = min(needed_s, self._pace.left_s)
            calls = calls - taken_s / call_s if taken_s < needed_s else 0.0
            megacycles += taken_s * speed.core_mhz
            counted += taken_s * speed.counted_mhz
            self._pass(taken_s, more * speed.base_w - idle_w, more * speed.core_w, more * speed.memory_w)
        return megacycles, counted

    def _pass(self, seconds: float, base_w: float, core_w: float, memory_w: float, stamp: bool = False) -> None:
        """Let time pass at one power above idle; not beyond the next step."""
        self._pieces.append((seconds, self._stretch, stamp, base_w, core_w, memory_w))
        self._pace.elapse(seconds, base_w + core_w + memory_w)
