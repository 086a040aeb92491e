"""What a switch costs beyond its latency: iterations in a window with many switches, against the same at steady clocks.

    trace     AAAAAA│BBBBBB│BBAAABBBAAABBBAAABBB│BBBBBB│AAAAAA
              steady steady       switches       steady steady

The steady stretches say how long an iteration takes at A and at B, and what it uses; those of the window in the middle would
have taken and used so much too, had there been no switches. What is left over is what the switches cost. Steady stretches
lie on both sides, so that a slow drift cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.progress import Progress
from wastenot.devices.protocol import Device
from wastenot.devices.tracer import Trace
from wastenot.kernels.latency.arrivals import filtered, signal
from wastenot.kernels.latency.design import settling_s
from wastenot.kernels.latency.session import Session
from wastenot.planning.latency import SwitchCost

REPEATS = 8
_SWITCHES = 20  # in a window
_LEAST_SWITCHES = 6
_WINDOW_S = 4.0  # longest window, where that is enough for the least number of switches
_STEADY_S = 1.0
_POLL_S = 0.5e-3  # of the energy counter
_DITHER_S = 0.02  # random pauses, so that polls fall differently on the counter's steps each time
_HELD_UP = 1.3  # times as long as those around it is an iteration that was
_STEP_S = 0.5  # by when a counter has moved, if it does


@dataclass(frozen=True, slots=True)
class _Mark:
    """A moment at which the energy counter moved, and its value then."""

    moment_s: float
    energy_j: float | None


def cost_of(session: Session, device: Device, progress: Progress, most_s: float) -> SwitchCost | None:
    """What a switch costs between two values that are easily told apart; ``None`` where there are none, or no time.

    Args:
        session: whose latencies are measured.
        device: whose clocks may be set.
        progress: told of every repeat.
        most_s: device time.
    """
    pair = _nearest_pair(session)
    if pair is None:
        return None
    stay_s = max(session.window_s(value) for value in pair)
    switches = max(min(_SWITCHES, 2 * math.floor(0.5 * _WINDOW_S / stay_s)), _LEAST_SWITCHES)
    began_s, found = device.time.now_s(), []
    for repeat in range(REPEATS):
        if device.time.now_s() - began_s >= most_s:
            break
        first, second = pair if repeat % 2 == 0 else pair[::-1]
        found.append(_once(session, device, first, second, stay_s, switches))
        for _ in range(switches):
            progress.step(f"{session.part.name}: what switches cost")
    if len(found) < 2:
        return None
    stalls_s = np.array([stall_s for stall_s, _ in found])
    energies_j = [energy_j for _, energy_j in found if energy_j is not None]
    by_energy = len(energies_j) == len(found)
    return SwitchCost(
        what=session.part.what,
        switches=switches * len(found),
        stall_s=float(stalls_s.mean()),
        stall_error_s=_standard_error(stalls_s.tolist()),
        energy_j=float(np.mean(energies_j)) if by_energy else None,
        energy_error_j=_standard_error(energies_j) if by_energy else None,
    )


def _nearest_pair(session: Session) -> tuple[float, float] | None:
    """The two values whose iterations take the most similar time among those told apart at once: least is misattributed."""
    narrow = [pair for pair in session.widths if pair[0] > pair[1]]
    return min(
        narrow,
        key=lambda pair: (session.widths[pair], abs(session.levels[pair[0]].mean - session.levels[pair[1]].mean)),
        default=None,
    )


def _once(
    session: Session, device: Device, first: float, second: float, stay_s: float, switches: int
) -> tuple[float, float | None]:
    """Time and energy that a switch costs, from one trace."""
    part, clocks, time = session.part, device.clocks, device.time
    clocks.request(part.setting(first))
    time.sleep(settling_s(stay_s))

    def dither_s() -> float:
        return _DITHER_S * float(session.rng.random())

    seconds = switches * stay_s + 4.0 * _STEADY_S + 4.0 * stay_s + 8.0 * _STEP_S
    with device.tracer().start(part.what, seconds) as run:
        time.sleep(stay_s)
        marks: list[_Mark] = []
        for value, stay in ((first, 0.0), (second, stay_s)):
            if stay:
                clocks.request(part.setting(value))
                time.sleep(stay)
            marks += [_after(device, dither_s()), _after(device, _STEADY_S + dither_s())]
        for switch in range(switches):
            clocks.request(part.setting(first if switch % 2 == 0 else second))
            time.sleep(stay_s)
        marks += [_after(device, dither_s()), _after(device, _STEADY_S + dither_s())]
        clocks.request(part.setting(first))
        time.sleep(stay_s)
        marks += [_after(device, dither_s()), _after(device, _STEADY_S + dither_s())]
    return _left_over(session, run.trace, marks, (first, second), switches)


def _left_over(
    session: Session, trace: Trace, marks: Sequence[_Mark], values: tuple[float, float], switches: int
) -> tuple[float, float | None]:
    first, second = (session.levels[value].mean for value in values)
    seen = filtered(signal(trace, session.part.what), session.widths[values])
    # By times, in whose middle iterations during a change are attributed without bias.
    at_first = (np.abs(1.0 / seen - 1.0 / first) < np.abs(1.0 / seen - 1.0 / second)).astype(float)
    # An iteration that is interrupted, or in which kernels pause, belongs to what is around it: half each during a change.
    lasted_s = trace.seconds
    held_up = np.flatnonzero(lasted_s > _HELD_UP * filtered(lasted_s, session.widths[values]))
    held_up = held_up[(held_up >= 2) & (held_up < len(lasted_s) - 2)]
    at_first[held_up] = 0.5 * (at_first[held_up - 2] + at_first[held_up + 2])
    done = np.concatenate([[0.0], np.cumsum(at_first)]), np.concatenate([[0.0], np.cumsum(1.0 - at_first)])

    def iterations(which: int, begin: _Mark, end: _Mark) -> float:
        counts = np.interp([begin.moment_s, end.moment_s], trace.bounds_s, done[which])
        return float(counts[1] - counts[0])

    steady = {0: ((marks[0], marks[1]), (marks[6], marks[7])), 1: ((marks[2], marks[3]), (marks[4], marks[5]))}
    begin, end = marks[3], marks[4]
    stall_s = end.moment_s - begin.moment_s
    energy_j = None if end.energy_j is None or begin.energy_j is None else end.energy_j - begin.energy_j
    for which, stretches in steady.items():
        counted = iterations(which, begin, end)
        number = sum(iterations(which, *stretch) for stretch in stretches)
        stall_s -= counted * sum(to.moment_s - since.moment_s for since, to in stretches) / number
        if energy_j is not None:
            used_j = sum((to.energy_j or 0.0) - (since.energy_j or 0.0) for since, to in stretches)
            energy_j -= counted * used_j / number
    return stall_s / switches, None if energy_j is None else energy_j / switches


def _after(device: Device, seconds: float) -> _Mark:
    device.time.sleep(seconds)
    return _mark(device)


def _mark(device: Device) -> _Mark:
    """Wait until the energy counter moves: its value is then that of the moment."""
    before_j = device.sensors.energy_j()
    if before_j is None:
        return _Mark(device.time.now_s(), None)
    began_s = device.time.now_s()
    while device.time.now_s() - began_s < _STEP_S:
        device.time.sleep(_POLL_S)
        asked_s = device.time.now_s()
        energy_j = device.sensors.energy_j()
        if energy_j is not None and energy_j != before_j:
            return _Mark(asked_s, energy_j)
    return _Mark(device.time.now_s(), before_j)


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))
