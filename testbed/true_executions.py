"""Executions of bursts on simulated GPUs, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import Burst
from wastenot.devices.simulated.instrument import SimulatedInstrument


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """One execution, exactly.

    Attributes:
        time_s: its time.
        mean_w: mean power by channel.
        power_w: power by channel over equal parts of it; shape (parts,).
    """

    time_s: float
    mean_w: Mapping[str, float]
    power_w: Mapping[str, FloatArray]


def true_executions(instrument: SimulatedInstrument, burst: Burst) -> tuple[Execution, ...]:
    """Every execution of a burst without randomness, at the current temperature and clocks."""
    bench = instrument._bench
    exact = instrument._trace(burst, None, bench.new_clock(82) if instrument._regulated else None)
    names, weights = [log.name for log in bench.logs], np.stack([log.weights for log in bench.logs])
    executions = []
    for begin, end in zip(exact.begin_s.tolist(), exact.end_s.tolist(), strict=True):
        bounds = np.linspace(begin, end, 33)
        power_w = weights @ exact.history.mean_w(bounds[:-1], bounds[1:], bench.idle().as_array()).T
        mean_w = dict(zip(names, power_w.mean(axis=1).tolist(), strict=True))
        executions.append(Execution(end - begin, mean_w, dict(zip(names, power_w, strict=True))))
    return tuple(executions)
