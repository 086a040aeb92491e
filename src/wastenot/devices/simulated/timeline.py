"""Timelines of a simulated GPU: kernels in phases at the clocks that its regulator goes through, and its sensors' log.

regulator │ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷    acts at regular intervals; the clock is constant in between
stream    ▮▮▮│▮▮▮│▮▮▮│▯▯▯▯▯▯│▯▯▯▯▯▯│▯▯▯▯▯▯│       groups of calls with stamps in between
pieces    └┘└┘└┘└┘└┘└┘└─┘└─┘└┘└─┘└─┘└┘└─┘└┘       of one kernel at one clock: each has one speed and one power
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import Readings
from wastenot.devices.simulated.bench import Bench
from wastenot.devices.simulated.pace import Load, load_of
from wastenot.devices.simulated.stream import Stream
from wastenot.devices.timeline import ClockStamps, Phase, PreparedTimeline, Subject, Timeline


class SimulatedTimelines:
    """Runs phases of kernels on a simulated GPU."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        preset = bench.physics.preset
        self.identity = bench.identity
        self.channels = bench.channels
        model = preset.dynamics.cycle_clock
        self.stamps = ClockStamps(model.cost_s, model.resolution_s, model.multiprocessors)
        self._timer = preset.dynamics.gpu_clock.model_copy(update={"resolution_s": model.resolution_s})

    @contextmanager
    def prepare(self, subjects: Sequence[Subject], *, group_s: float = 1e-3) -> Iterator[PreparedTimeline]:
        """Check that every kernel is known; nothing else needs preparing."""
        physics, engine = self._bench.physics, self._bench.engine
        loads = [load_of(physics, subject, engine.setting, engine.temperature_c, group_s) for subject in subjects]
        yield PreparedTimeline(tuple(load.call_s for load in loads), partial(self._run, tuple(loads)))

    def _run(self, loads: Sequence[Load], phases: Sequence[Phase]) -> Timeline:
        bench, engine = self._bench, self._bench.engine
        before = bench.round_trips(5, self._timer)
        began_s, began_c = engine.now_s, engine.temperature_c
        stream = Stream(bench, loads, bench.rested_clock())
        for index, phase in enumerate(phases):
            stream.run(index, phase)
        groups = stream.groups
        readings = bench.play(stream.history(), stream.now_s, max(began_s - bench.channels[0].period_s, 0.0))
        after = bench.round_trips(5, self._timer)
        if bench.has_log:
            host = fit_clocks((*before, *after)).host
            readings = {name: Readings(host(log.moment_s), log.power_w) for name, log in readings.items()}
        begin_s = self._timer.at(began_s + np.array([group.begin_s for group in groups]))
        end_s = self._timer.at(began_s + np.array([group.end_s for group in groups]))
        core_mhz, counted_mhz = (
            np.array([getattr(group, name) for group in groups]) / (end_s - begin_s) for name in ("megacycles", "counted")
        )
        skips = np.array([loads[group.subject].skips for group in groups], dtype=bool)
        look_error = self.stamps.relative_error(bench.physics.preset.dynamics.cycle_clock.look_s)
        core_mhz *= 1.0 + look_error * np.where(skips, bench.rng.standard_normal(len(groups)), 0.0)
        return Timeline(
            phase=np.array([group.phase for group in groups], dtype=np.intp),
            subject=np.array([group.subject for group in groups], dtype=np.intp),
            calls=np.array([group.calls for group in groups], dtype=np.intp),
            begin_s=begin_s,
            end_s=end_s,
            core_mhz=core_mhz,
            readings=readings,
            round_trips=before + after,
            temperature_c=(float(round(began_c)), float(round(engine.temperature_c))),
            counted_mhz=counted_mhz if bench.physics.preset.dynamics.cycle_clock.skipped else None,
        )
