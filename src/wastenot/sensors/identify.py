"""Identify how a device's power sensors make their readings, from bursts of one heavy kernel.

    steps       two long bursts, long rests             period, rough window and delay
    rhythm      bursts and rests of random lengths      readings whose windows hold edges, in all places
                about the rough window
    fits        each channel by itself                  a mean or a lag, delay and its drift, with standard errors

Random lengths keep the load from beating with the sensor's period. Yang et al., "Part-time power measurements" (SC 2024),
identify windows by square waves; this fits delay, lags and levels with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import Instrument
from wastenot.errors import BadInputError
from wastenot.progress import Progress, Silent
from wastenot.sensors.burst_timing import Aim
from wastenot.sensors.bursts import Rhythm
from wastenot.sensors.channel_fit import Edges
from wastenot.sensors.findings import Found, told
from wastenot.sensors.identity import Sensors
from wastenot.sensors.model import Seen
from wastenot.sensors.noise import noise_of
from wastenot.sensors.update_period import Updates, find_updates
from wastenot.workloads.kernel import KernelSpec

LEAST_BUDGET_S = 5.0

_STEP_S, _STEP_SHARE, _STEPS = 1.6, 0.03, 2  # long bursts: each at most so long, at most such a share of the budget
_LENGTHS = 6  # of bursts: each is made ready once
_SHORTEST, _LONGEST = 0.4, 2.2  # bursts, in rough windows
_REST = (0.3, 1.6)  # rests, in rough windows
_FEW = 8.0  # executions in a period under which bursts are all of one length
_FEW_BURST, _FEW_REST = 25, (4.0, 8.0)  # such a burst in executions, and rests in periods
_MOST_RUNS = 2500
_CHECKS = (0.3, 0.6, 1.0)  # shares of the budget after which precision is looked at
_LEAST_READINGS = 16
_LIKE = 100  # bursts that the usual length is taken from
_FEW_DEEP_S = 0.02  # rough window that sensors of short periods are taken to have at most


@dataclass(slots=True)
class _Teller:
    """Tells of the share of the budget that is spent, in hundredths."""

    progress: Progress
    instrument: Instrument
    began_s: float
    budget_s: float
    told: int = 0

    def __call__(self) -> None:
        spent = int(100 * (self.instrument.now_s() - self.began_s) / self.budget_s)
        while self.told < min(spent, 100):
            self.told += 1
            self.progress.step("bursts and rests")


def identify_sensors(
    instrument: Instrument, kernel: KernelSpec, budget_s: float = 60.0, *, seed: int = 0, progress: Progress | None = None
) -> Sensors:
    """Identify every power channel.

    Args:
        instrument: of the device.
        kernel: the load: steady and heavy.
        budget_s: of the device's time; less is spent where that is enough.
        seed: of burst lengths and rests.
        progress: told of hundredths of the budget.

    Raises:
        BadInputError: the budget is too small.
        DeviceError: the device failed, or its clocks cannot be told together.
    """
    if not LEAST_BUDGET_S <= budget_s < math.inf:
        raise BadInputError(f"budget {budget_s:g} s: must be at least {LEAST_BUDGET_S:g} s")
    rng = np.random.default_rng(seed)
    rhythm = Rhythm(instrument, kernel)
    began_s = instrument.now_s()
    tell = _Teller(progress or Silent(), instrument, began_s, budget_s)
    tell.progress.begin(100)
    until_s = began_s + budget_s
    step_s = min(_STEP_S, _STEP_SHARE * budget_s)
    rhythm.play([20] * 3, lambda: 0.05, until_s, tell)
    rhythm.play([math.ceil(step_s / rhythm.execution_s())] * _STEPS, lambda: step_s, until_s, tell)
    name = instrument.channels[0].name
    found: dict[str, Found] = {}
    for share in _CHECKS:
        if share < 1.0 and name in found and found[name].fine:
            continue  # it takes what there is
        _more(rhythm, name, rng, began_s + share * budget_s, step_s, tell, found.get(name))
        found[name] = _look(rhythm, name, step_s, rng, before=found.get(name))
        if found[name].precise or len(rhythm.runs) >= _MOST_RUNS:
            break
    spent_s = instrument.now_s() - began_s
    burst_s = float(np.median([run.end_s[-1] - run.begin_s[0] for run in rhythm.runs]))
    channels = []
    for channel in instrument.channels:
        one = found.get(channel.name) or _look(rhythm, channel.name, step_s, rng, found[name])
        channels.append(told(channel.name, one, len(rhythm.runs), spent_s, burst_s))
    identity = instrument.identity
    return Sensors(identity.name, identity.model, kernel.name, tuple(channels))


def _more(
    rhythm: Rhythm,
    channel: str,
    rng: np.random.Generator,
    until_s: float,
    step_s: float,
    tell: _Teller,
    known: Found | None,
) -> None:
    """More bursts, of lengths and with rests that suit what is known of the channel by now."""
    period_s, scale_s = _scale(rhythm, channel, step_s)
    execution_s = rhythm.execution_s()
    most = _MOST_RUNS - len(rhythm.runs)
    if period_s <= _FEW * execution_s and scale_s < _FEW_DEEP_S:
        length = max(_FEW_BURST, math.ceil(3.0 * scale_s / execution_s))
        low, high = (share * max(period_s, 0.5 * scale_s) for share in _FEW_REST)

        def by_chance_s() -> float:
            return float(rng.uniform(low, high))

        rest_s: Callable[[], float] = by_chance_s
        if known is not None and known.fit is not None and known.fine and known.updates is not None:
            length = len(rhythm.runs[-1].begin_s)
            load = rhythm.load(known.clocks)
            usual_s = float(np.median((load.end_s - load.begin_s)[-_LIKE:]))
            rest_s = Aim(rhythm, float(known.updates.moment_s[-1]), period_s, known.fit.sensing, usual_s, (low, high), rng)
        rhythm.play([length] * most, rest_s, until_s, tell)
        return
    lengths = np.maximum(np.ceil(scale_s * np.geomspace(_SHORTEST, _LONGEST, _LENGTHS) / execution_s), 4).astype(int)
    low, high = (share * scale_s for share in _REST)
    rhythm.play(rng.choice(lengths, most).tolist(), lambda: float(rng.uniform(low, high) + rng.uniform(0.0, period_s)),
                until_s, tell)  # fmt: skip


def _scale(rhythm: Rhythm, channel: str, step_s: float) -> tuple[float, float]:
    """The period, and about how long a burst is seen after its end."""
    edges, updates, _ = _edges(rhythm, channel)
    if updates is None:
        return 0.1, 0.5 * step_s
    rough = edges.rough(updates.period_s, step_s, np.random.default_rng(0))
    return updates.period_s, max(updates.period_s, rough.span_s + rough.delay_s)


def _edges(rhythm: Rhythm, channel: str) -> tuple[Edges, Updates | None, ClockFit]:
    clocks = rhythm.clocks()
    load = rhythm.load(clocks)
    moment, power, run = rhythm.readings(channel, clocks)
    updates = find_updates(moment, power, polled=rhythm.instrument.readings_by == "host")
    if updates is not None:
        moment, power, run = updates.moment_s, updates.power_w, run[updates.place]
    pace_s = np.array([np.median(one.end_s - one.begin_s) for one in rhythm.runs])
    return Edges(Seen.of(moment, power, load), run, load, pace_s), updates, clocks


def _look(
    rhythm: Rhythm,
    channel: str,
    step_s: float,
    rng: np.random.Generator,
    like: Found | None = None,
    before: Found | None = None,
) -> Found:
    """What is known of a channel by now.

    Args:
        rhythm: bursts so far.
        channel: its name.
        step_s: longest window and delay.
        rng: to choose readings with.
        like: another channel; where both are logged together, this one's sensor is taken to be like that one's at first.
        before: the same channel, by fewer bursts.
    """
    edges, updates, clocks = _edges(rhythm, channel)
    readings = len(edges.seen.moment_s)
    if updates is None or readings < _LEAST_READINGS:
        return Found(updates, clocks, readings, (None, None), None, False)
    rough = edges.rough(updates.period_s, step_s, rng)
    idle_w = noise_of(edges, rough, rhythm.executions(clocks), busy=False)
    near = None
    if like is not None and like.updates is not None and np.array_equal(like.updates.moment_s, updates.moment_s):
        near = None if like.fit is None else like.fit.sensing
    earlier = None if before is None or before.fit is None else before.fit.sensing
    fit = edges.fitted(rough, max(idle_w or 0.0, 1e-3 * float(np.ptp(updates.power_w)), 1e-6), rng, near, earlier)
    idle_w = noise_of(edges, fit.sensing, rhythm.executions(clocks), busy=False)
    busy_w = noise_of(edges, fit.sensing, rhythm.executions(clocks), busy=True)
    fine = edges.shaped(fit.sensing)
    return Found(updates, clocks, readings, (idle_w, busy_w), fit, fine)
