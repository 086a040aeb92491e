"""From runs at natural clocks to curves: time and power of each kernel by its clock, and where it is by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.kernels.natural.curves import POWER_SLOPES, AutoPoint, KernelCurve
from wastenot.kernels.natural.delays import at_nominal_delay, with_delays
from wastenot.kernels.natural.powers import IDLE, IDLE_W, PowerFit, PowerSpread, Sensed, fit_powers
from wastenot.kernels.natural.readings import response_of
from wastenot.kernels.natural.seen import Groups, Load, Recorded, groups_of
from wastenot.kernels.natural.times import Spread, TimeFit, fit_time, knots_mhz, pooled_spread, within
from wastenot.planning.natural import hat_weights

_TIME_ROUNDS, _POWER_ROUNDS = 3, 3
_OTHERS_RUNS = 12  # in which the time of a kernel that others are measured beside is looked at
_KNOT_STEP = 0.035  # between knots beyond those of time
_TOP_QUANTILE = 0.995
_HELD = 0.985  # of the highest clock seen: a kernel whose mean clock by itself is below is held back
_SETTLED_S = (1.0, 0.5, 0.25, 0.1, 0.0)  # since rest or other kernels: the longer, the more a kernel is in steady state
_UNHELD = 2  # of these, for kernels that nothing holds back
_ALONE_S = 0.5  # in steady state, to know its clock
_SWING_S = 0.5  # half of the period of the regulator's slow swings
_KNOWN = 0.03  # standard error of log power, up to which a clock at an end of the range counts as seen
_LEAST_POWER_SHARE = 2.0  # readings' worth of a kernel's power, without which it is not known


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What runs say.

    Attributes:
        curves: of each kernel of interest, in the order in which they first ran.
        beside: of kernels that others were measured beside, such as products, at the clocks seen there.
        temperature_c: at which powers are stated; NaN where it is unknown.
        idle_w: power at rest between phases.
        power: the fit of readings, for who wants to look at residuals; ``None`` where there were none.
    """

    curves: tuple[KernelCurve, ...]
    beside: tuple[KernelCurve, ...]
    temperature_c: float
    idle_w: float
    power: PowerFit | None

    def of(self, kernel: str) -> KernelCurve:
        """The curve of a kernel, whether of interest or beside others.

        Raises:
            BadInputError: there is none.
        """
        for curve in (*self.curves, *self.beside):
            if curve.kernel == kernel:
                return curve
        raise BadInputError(f"kernel {kernel}: no curve of it")


@single_threaded()
def estimate(runs: Sequence[Recorded]) -> Estimate:
    """Estimate time and power by clock from all runs together.

    Errors are those of the runs given. Runs of a kernel that was prepared only once share its buffers: prepared again,
    it took 0.4 % more or less time on two H200s, at all clocks alike.

    Args:
        runs: as recorded; the first subject of each is the kernel of interest.

    Raises:
        BadInputError: there are no runs, or none has power readings.
    """
    if not runs:
        raise BadInputError("no run at natural clocks to estimate from")
    groups = [groups_of(run) for run in runs]
    kernels = list(dict.fromkeys(each.loads[0] for each in groups))
    others = [load for load in dict.fromkeys(load for each in groups for load in each.loads) if load not in kernels]
    times = _times(groups, kernels)
    for load in others:
        containing = [each for each in groups if load in each.loads and len(each.used(each.loads.index(load)))]
        step = max(len(containing) // _OTHERS_RUNS, 1)
        fitted = fit_time(containing[::step], load, Spread())
        if fitted is not None:
            times[load] = fitted
    log_knots = {load: _power_knots(load, groups, times.get(load)) for load in (*kernels, *others)}
    temperature_c = _mean_temperature(groups)
    power, sensed = _power(runs, groups, log_knots, temperature_c)
    curves = tuple(_curve(load, groups, times[load], log_knots[load], power, sensed) for load in kernels if load in times)
    beside = tuple(
        _curve(load, groups, times[load], log_knots[load], power, sensed)
        for load in others
        if load in times and load[1] == "random"
    )
    if power is None:
        return Estimate(curves, beside, temperature_c, float("nan"), None)
    return Estimate(curves, beside, temperature_c, float(power.power_w[IDLE][0]), power)


def _times(groups: Sequence[Groups], kernels: Sequence[Load]) -> dict[Load, TimeFit]:
    """Time of all kernels of interest, and how much errors have in common."""
    spread = Spread()
    of_kernel = {load: [each for each in groups if any(name == load[0] for name, _ in each.loads)] for load in kernels}
    for _ in range(_TIME_ROUNDS):
        fits = {load: fit_time(of_kernel[load], load, spread) for load in kernels}
        found = {load: one for load, one in fits.items() if one is not None}
        spread = pooled_spread(list(found.values()), spread)
    return found


def _power_knots(load: Load, groups: Sequence[Groups], time: TimeFit | None) -> FloatArray:
    """Logarithms of the clocks at which power is sought: those of time, and beyond them as far as the kernel went at all."""
    clocks = np.concatenate([each.core_mhz[each.load == each.loads.index(load)] for each in groups if load in each.loads])
    clocks = clocks[clocks > 0.0]
    if not len(clocks):
        return np.log([1000.0])
    knots = np.log(knots_mhz(clocks) if time is None else time.knots_mhz)
    low, high = np.log(clocks.min()) - knots[0], np.log(clocks.max()) - knots[-1]
    below = knots[0] + low * np.arange(round(-low / _KNOT_STEP), 0, -1) / max(round(-low / _KNOT_STEP), 1)
    above = knots[-1] + high * np.arange(1, round(high / _KNOT_STEP) + 1) / max(round(high / _KNOT_STEP), 1)
    return np.concatenate([below, knots, above])


def _mean_temperature(groups: Sequence[Groups]) -> float:
    known = [each.temperature_c for each in groups if np.isfinite(each.temperature_c)]
    return float(np.mean(known)) if known else float("nan")


def _power(
    runs: Sequence[Recorded], groups: Sequence[Groups], log_knots: dict[Load, FloatArray], temperature_c: float
) -> tuple[PowerFit | None, list[Sensed]]:
    """Power of all loads, with the delays of readings found in alternation."""
    channel: Channel | None = None
    sensed = []
    for run, each in zip(runs, groups, strict=True):
        if any(load not in log_knots for load in each.loads):
            continue
        response = response_of(run, each, log_knots)
        if response is not None:
            channel = channel or next(one for one in run.channels if one.name == TOTAL)
            sensed.append(at_nominal_delay(each.loads[0], response, channel))
    if channel is None:
        return None, []
    log_knots = {load: knots for load, knots in log_knots.items() if any(load in one.response.loads for one in sensed)}
    log_knots[IDLE] = np.zeros(1)
    guess = _guess(sensed, log_knots)
    spread = PowerSpread(noise_w=channel.noise_w or PowerSpread().noise_w)
    for _ in range(_POWER_ROUNDS):
        fitted = fit_powers(sensed, log_knots, guess, 0.0 if np.isnan(temperature_c) else temperature_c, spread)
        guess, spread = dict(fitted.power_w), fitted.spread
        if not channel.delay_error_s:
            break
        sensed = with_delays(sensed, guess, spread.noise_w, channel)
    return fit_powers(sensed, log_knots, guess, 0.0 if np.isnan(temperature_c) else temperature_c, spread), sensed


def _guess(sensed: Sequence[Sensed], log_knots: Mapping[Load, FloatArray]) -> dict[Load, FloatArray]:
    """Powers to begin with: the mean of readings, weighted by how much of each load they show."""
    shown = dict.fromkeys(log_knots, 0.0)
    weighted = dict.fromkeys(log_knots, 0.0)
    for one in sensed:
        seen = one.response.at(one.delay_s)
        for load, where in zip(one.response.loads, one.response.columns, strict=True):
            share = seen[:, where].sum(axis=1) ** 4  # mostly those that show little else
            shown[load] += float(share.sum())
            weighted[load] += float(share @ one.response.power_w)
    guess = {}
    for load, knots in log_knots.items():
        level = weighted[load] / shown[load] if shown[load] > 0.0 else 500.0
        guess[load] = np.maximum(level, 1.0) * np.exp(0.8 * (knots - knots.mean()))
    guess[IDLE] = np.array([IDLE_W])
    return guess


def _curve(
    load: Load, groups: Sequence[Groups], time: TimeFit, at: FloatArray, power: PowerFit | None, sensed: Sequence[Sensed]
) -> KernelCurve:
    log_knots = np.log(time.knots_mhz)
    power_w, log_power_cov, readings, notes = _power_of(load, power, sensed, len(at))
    log_power, log_power_cov = within(np.log(power_w), log_power_cov, at, POWER_SLOPES)
    first = int(np.argmin(np.abs(at - log_knots[0])))
    known = _known(log_power_cov, slice(first, first + len(log_knots)))
    log_power, log_power_cov = log_power[known], log_power_cov[known, known]
    known = slice(known.start - first, known.stop - first)
    log_knots, log_time, log_time_cov = log_knots[known], time.log_time[known], time.covariance[known, known]
    power_w = np.exp(log_power)
    auto = _auto(load, groups, log_knots, (log_time, log_time_cov), (log_power, log_power_cov))
    if len(log_knots) == 1:
        notes.append("none of the loads made it run at another clock")
    return KernelCurve(
        load[0], np.exp(log_knots), np.exp(log_time), power_w, log_time_cov, log_power_cov, auto, time.groups, readings,
        tuple(notes),
    )  # fmt: skip


def _known(log_power_cov: FloatArray, knots: slice) -> slice:
    """The knots without those at either end where power is hardly known; all of them if that left less than two."""
    fine = np.flatnonzero(np.sqrt(np.diag(log_power_cov))[knots] <= _KNOWN)
    if len(fine) < 2:
        return knots
    return slice(knots.start + int(fine[0]), knots.start + int(fine[-1]) + 1)


def _power_of(
    load: Load, power: PowerFit | None, sensed: Sequence[Sensed], knots: int
) -> tuple[FloatArray, FloatArray, int, list[str]]:
    """Power at the knots, the covariance of its logarithm, the readings that show it, and notes."""
    if power is None or load not in power.power_w:
        return np.full(knots, 1.0), np.full((knots, knots), 1.0), 0, ["no power reading shows it"]
    share = 0.0
    number = 0
    for one in sensed:
        if load in one.response.loads:
            where = one.response.columns[one.response.loads.index(load)]
            seen = one.response.at(one.delay_s)[:, where].sum(axis=1)
            share += float(seen.sum())
            number += int(np.count_nonzero(seen > 0.1))
    power_w = np.maximum(power.power_w[load], 1.0)
    notes = ["too few power readings show it"] if share < _LEAST_POWER_SHARE else []
    return power_w, power.covariance[load] / np.outer(power_w, power_w), number, notes


def _auto(
    load: Load,
    groups: Sequence[Groups],
    log_knots: FloatArray,
    log_time: tuple[FloatArray, FloatArray],
    log_power: tuple[FloatArray, FloatArray],
) -> AutoPoint:
    """The kernel by itself in steady state: the curve at the clocks that it then has, weighted by time."""
    top = max(float(np.quantile(each.core_mhz, _TOP_QUANTILE)) for each in groups)
    alone = [_alone(load, groups, settled_s) for settled_s in _SETTLED_S]
    enough = (each for each in alone if each[1].sum() >= _ALONE_S)
    clocks, seconds = next(enough, max(alone, key=lambda each: float(each[1].sum())))
    if not len(clocks):  # never by itself: where it was at its highest
        clocks, seconds = np.exp(log_knots[-1:]), np.ones(1)
    limited = float(np.average(clocks, weights=seconds)) < _HELD * top
    if not limited and len(alone[_UNHELD][0]):
        clocks, seconds = alone[_UNHELD]
    mean_mhz = float(np.average(clocks, weights=seconds))
    weights = hat_weights(np.log(clocks), log_knots)
    call_s, watts = np.exp(weights @ log_time[0]), np.exp(weights @ log_power[0])
    time_s = float(seconds.sum() / np.sum(seconds / call_s))
    power_w = float(np.average(watts, weights=seconds))
    mean = np.average(weights, axis=0, weights=seconds)
    # The regulator swings: a short look sees one part of it.
    looks = max(float(seconds.sum()) / _SWING_S, 1.0) if limited else np.inf
    errors = [
        (max(float(mean @ cov @ mean), 0.0) + float(np.var(np.log(values))) / looks) ** 0.5
        for cov, values in ((log_time[1], call_s), (log_power[1], watts))
    ]
    return AutoPoint(mean_mhz, time_s, power_w, errors[0] * time_s, errors[1] * power_w, limited)


def _alone(load: Load, groups: Sequence[Groups], settled_s: float) -> tuple[FloatArray, FloatArray]:
    """Clocks and durations of groups that come so long after anything else."""
    clocks, seconds = [], []
    for each in groups:
        if load not in each.loads:
            continue
        own = each.load == each.loads.index(load)
        chosen = own & (_since_change_s(each, own) >= settled_s)
        clocks.append(each.core_mhz[chosen])
        seconds.append((each.end_s - each.begin_s)[chosen])
    return (np.concatenate(clocks), np.concatenate(seconds)) if clocks else (np.zeros(0), np.zeros(0))


def _since_change_s(groups: Groups, own: BoolArray) -> FloatArray:
    """Time since another kernel ran or the GPU rested."""
    changed = np.append(True, np.diff(own.astype(int)) != 0) | (groups.rested > 0.0)
    last = np.maximum.accumulate(np.where(changed, np.arange(len(own)), 0))
    return np.asarray(groups.begin_s - groups.begin_s[last])
