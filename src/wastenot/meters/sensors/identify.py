"""Identifies how a device's power sensors make their readings, from bursts of one heavy kernel.

    steps       two long bursts, long rests              period, rough window and delay
    bursts      bursts and rests of random lengths       readings whose windows cover edges, at all phases
                around the rough window
    fits        each channel by itself                   a mean or a lag, delay and its drift, with standard errors

Random lengths avoid a beat between the load and the sensor's period. Yang et al., "Part-time power measurements" (SC 2024),
identify windows by square waves; this fits delay, lags and power levels along with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress, Silent
from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import Instrument
from wastenot.meters.sensors.bursts import AimedRests, BurstSeries
from wastenot.meters.sensors.channel_readings import ChannelReadings, reading_noise
from wastenot.meters.sensors.fit import SensorFit, fit_channel
from wastenot.meters.sensors.identity import GAIN_NOTE, SensorIdentity, Sensors
from wastenot.meters.sensors.model import BurstReadings
from wastenot.meters.sensors.rough_fit import rough_fit
from wastenot.meters.sensors.updates import Updates, find_updates
from wastenot.workloads.kernel import KernelSpec

MIN_BUDGET_S = 5.0

_STEP_S, _STEP_FRACTION, _STEPS = 1.6, 0.03, 2  # long bursts: duration at most, also as a fraction of the budget
_LENGTHS = 6  # distinct lengths of bursts: each is prepared once
_SHORTEST, _LONGEST = 0.4, 2.2  # bursts, in rough windows
_REST = (0.3, 1.6)  # rests, in rough windows
_FEW_EXECUTIONS = 8.0  # in a period, up to which all bursts are of one length
_EQUAL_BURST, _EQUAL_REST = 25, (4.0, 8.0)  # such a burst in executions, and rests in periods
_MAX_RUNS = 2500
_PRECISION_CHECKS = (0.3, 0.6, 1.0)  # fractions of the budget after which precision is checked
_MIN_READINGS = 16
_TYPICAL_BURSTS = 100  # that the usual length is estimated from
_FAST_WINDOW_S = 0.02  # longest rough window of a sensor with a short period

# Standard errors that are small enough: of window or lag as a fraction, of the delay, and of its drift.
_PRECISE, _PRECISE_S, _PRECISE_DRIFT = 0.015, 5e-4, 2.5e-5
_CLEARLY_WORSE = 1.1  # ratio of residuals, above which the other kind of response is clearly wrong
_VAGUE = 0.25  # relative standard error of a window or lag, above which it is not determined
_MAX_BURSTS_LONG = 2.5  # usual bursts that window and delay may span together
_FOLLOWS_NOISES = 5.0  # standard deviations of the noise that load must raise a channel by


@dataclass(frozen=True, slots=True, eq=False)
class _ChannelFindings:
    """What is known of a channel so far.

    Attributes:
        updates: its readings, each once; ``None`` where too few differ.
        noise_w: standard deviation of a reading at rest and under load; ``None`` where there are too few.
        fit: of the sensor; ``None`` where there are too few readings.
        fine: whether the sensor resolves the shape of executions.
    """

    updates: Updates | None
    clocks: ClockFit
    readings: int
    noise_w: tuple[float | None, float | None]
    fit: SensorFit | None
    fine: bool

    @property
    def precise(self) -> bool:
        """Whether more readings would not be worth the time."""
        fit = self.fit
        return (
            fit is not None
            and not self.fine
            and fit.span_se_s < _PRECISE * fit.parameters.span_s
            and fit.delay_se_s < _PRECISE_S
            and fit.drift_se < _PRECISE_DRIFT
            and _kind_is_clear(fit)
        )


@dataclass(slots=True)
class _BudgetProgress:
    """Reports the fraction of the budget that is spent, in hundredths."""

    progress: Progress
    instrument: Instrument
    began_s: float
    budget_s: float
    reported: int = 0

    def __call__(self) -> None:
        spent = int(100 * (self.instrument.now_s() - self.began_s) / self.budget_s)
        while self.reported < min(spent, 100):
            self.reported += 1
            self.progress.step("bursts and rests")


@single_threaded()
def identify_sensors(
    instrument: Instrument, kernel: KernelSpec, budget_s: float = 60.0, *, seed: int = 0, progress: Progress | None = None
) -> Sensors:
    """Identify every power channel.

    Args:
        instrument: of the device.
        kernel: the load: steady and heavy.
        budget_s: of device time; less is spent where that suffices.
        seed: of burst lengths and rests.
        progress: receives hundredths of the budget.

    Raises:
        BadInputError: the budget is too small.
        DeviceError: the device failed, or its clocks cannot be synchronised.
    """
    if not MIN_BUDGET_S <= budget_s < math.inf:
        raise BadInputError(f"budget {budget_s:g} s: must be at least {MIN_BUDGET_S:g} s")
    rng = np.random.default_rng(seed)
    series = BurstSeries(instrument, kernel)
    began_s = instrument.now_s()
    report = _BudgetProgress(progress or Silent(), instrument, began_s, budget_s)
    report.progress.begin(100)
    until_s = began_s + budget_s
    step_s = min(_STEP_S, _STEP_FRACTION * budget_s)
    series.run([20] * 3, lambda: 0.05, until_s, report)
    series.run([math.ceil(step_s / series.execution_s())] * _STEPS, lambda: step_s, until_s, report)
    first: _ChannelFindings | None = None
    name = instrument.channels[0].name
    for fraction in _PRECISION_CHECKS:
        if fraction < 1.0 and first is not None and first.fine:
            continue  # it needs the whole budget
        _run_more(series, name, rng, began_s + fraction * budget_s, step_s, report, first)
        first = _analyse(series, name, step_s, rng, earlier=first)
        if first.precise or len(series.runs) >= _MAX_RUNS:
            break
    assert first is not None
    spent_s = instrument.now_s() - began_s
    burst_s = float(np.median([run.end_s[-1] - run.begin_s[0] for run in series.runs]))
    channels = []
    for channel in instrument.channels:
        findings = first if channel.name == name else _analyse(series, channel.name, step_s, rng, like=first)
        channels.append(_identity(channel.name, findings, len(series.runs), spent_s, burst_s))
    identity = instrument.identity
    return Sensors(identity.name, identity.model, kernel.name, tuple(channels))


def _run_more(
    series: BurstSeries,
    channel: str,
    rng: np.random.Generator,
    until_s: float,
    step_s: float,
    report: Callable[[], None],
    known: _ChannelFindings | None,
) -> None:
    """More bursts, of lengths and with rests that suit what is known of the channel."""
    period_s, scale_s = _time_scales(series, channel, step_s)
    execution_s = series.execution_s()
    most = _MAX_RUNS - len(series.runs)
    if period_s <= _FEW_EXECUTIONS * execution_s and scale_s < _FAST_WINDOW_S:
        length = max(_EQUAL_BURST, math.ceil(3.0 * scale_s / execution_s))
        low, high = (factor * max(period_s, 0.5 * scale_s) for factor in _EQUAL_REST)

        def random_rest_s() -> float:
            return float(rng.uniform(low, high))

        rest_s: Callable[[], float] = random_rest_s
        if known is not None and known.fit is not None and known.fine and known.updates is not None:
            length = len(series.runs[-1].begin_s)
            load = series.load(known.clocks)
            usual_s = float(np.median((load.end_s - load.begin_s)[-_TYPICAL_BURSTS:]))
            grid_s = float(known.updates.moment_s[-1])
            rest_s = AimedRests(series, grid_s, period_s, known.fit.parameters, usual_s, (low, high), rng)
        series.run([length] * most, rest_s, until_s, report)
        return
    lengths = np.maximum(np.ceil(scale_s * np.geomspace(_SHORTEST, _LONGEST, _LENGTHS) / execution_s), 4).astype(int)
    low, high = (factor * scale_s for factor in _REST)
    series.run(rng.choice(lengths, most).tolist(), lambda: float(rng.uniform(low, high) + rng.uniform(0.0, period_s)),
               until_s, report)  # fmt: skip


def _time_scales(series: BurstSeries, channel: str, step_s: float) -> tuple[float, float]:
    """The period, and about how long after its end a burst is visible."""
    readings, updates, _ = _readings(series, channel)
    if updates is None:
        return 0.1, 0.5 * step_s
    rough = rough_fit(readings, updates.period_s, step_s, np.random.default_rng(0))
    return updates.period_s, max(updates.period_s, rough.span_s + rough.delay_s)


def _readings(series: BurstSeries, channel: str) -> tuple[ChannelReadings, Updates | None, ClockFit]:
    clocks = series.clocks()
    load = series.load(clocks)
    moment, power, run = series.readings(channel, clocks)
    updates = find_updates(moment, power, polled=series.instrument.readings_by == "host")
    if updates is not None:
        moment, power, run = updates.moment_s, updates.power_w, run[updates.index]
    pace_s = np.array([np.median(one.end_s - one.begin_s) for one in series.runs])
    return ChannelReadings(BurstReadings.of(moment, power, load), run, load, pace_s), updates, clocks


def _analyse(
    series: BurstSeries,
    channel: str,
    step_s: float,
    rng: np.random.Generator,
    like: _ChannelFindings | None = None,
    earlier: _ChannelFindings | None = None,
) -> _ChannelFindings:
    """What is known of a channel so far, starting from ``like``, one logged with it, or ``earlier``, from fewer bursts."""
    readings, updates, clocks = _readings(series, channel)
    number = len(readings.run)
    if updates is None or number < _MIN_READINGS:
        return _ChannelFindings(updates, clocks, number, (None, None), None, False)
    executions_s = series.executions(clocks)
    rough = rough_fit(readings, updates.period_s, step_s, rng)
    idle_w = reading_noise(readings, rough, executions_s, busy=False)
    noise_w = max(idle_w or 0.0, 1e-3 * float(np.ptp(updates.power_w)), 1e-6)
    together = like is not None and like.updates is not None and np.array_equal(like.updates.moment_s, updates.moment_s)
    similar = like.fit.parameters if together and like is not None and like.fit is not None else None
    before = earlier.fit.parameters if earlier is not None and earlier.fit is not None else None
    fit = fit_channel(readings, rough, noise_w, rng, similar, before)
    noises_w = tuple(reading_noise(readings, fit.parameters, executions_s, busy=busy) for busy in (False, True))
    return _ChannelFindings(updates, clocks, number, (noises_w[0], noises_w[1]), fit, readings.sees_shape(fit.parameters))


def _identity(channel: str, findings: _ChannelFindings, runs: int, spent_s: float, burst_s: float) -> SensorIdentity:
    """What is known of a channel, with notes on what could not be determined and why."""
    updates, fit = findings.updates, findings.fit
    known: dict[str, float | None] = {field.name: None for field in fields(SensorIdentity)}
    notes = [GAIN_NOTE]
    if updates is not None:
        known |= {"period_s": updates.period_s, "period_se_s": updates.period_se_s}
        if not updates.regular:
            notes.append("updates are irregular: delays vary by as much as timestamps do")
    if fit is None:
        notes.append(
            f"window and delay are not determined: {findings.readings} readings in {spent_s:.0f} s; allow a larger budget"
        )
    elif fit.busy_w - fit.idle_w < _FOLLOWS_NOISES * max(findings.noise_w[0] or 0.0, 1e-9) / math.sqrt(findings.readings):
        notes.append("window and delay are not determined: the channel does not follow the load")
    else:
        known |= {"idle_w": max(fit.idle_w, 0.0), "busy_w": max(fit.busy_w, 0.0)}
        parameters = fit.parameters
        together_s = parameters.delay_s + parameters.span_s * (2.0 if parameters.is_lag else 1.0)
        if together_s > _MAX_BURSTS_LONG * burst_s:
            notes.append(
                f"window and delay are not determined: together they are about {together_s:.2g} s, too long for the "
                "bursts chosen for the first channel"
            )
        elif fit.span_se_s < _VAGUE * parameters.span_s:
            known |= _fitted_fields(fit, findings.clocks)
            notes += _notes_on_kind(fit)
        else:
            most_s = parameters.span_s + 2.0 * fit.span_se_s
            bound = f"the window is likely below {most_s:.2g} s; " if math.isfinite(most_s) else ""
            notes.append(f"window and delay are not determined: {bound}allow a larger budget")
        if not findings.fine:
            notes.append("the delay may include some lag of power itself: a sensor this slow cannot separate the two")
    known |= {"noise_idle_w": findings.noise_w[0], "noise_busy_w": findings.noise_w[1]}
    values: dict[str, Any] = known | {"channel": channel, "runs": runs, "seconds": spent_s, "notes": ()}
    identity = SensorIdentity(**values)
    if identity.drifts and fit is not None:
        notes.append(_note_on_drift(fit))
    return replace(identity, notes=tuple(notes))


def _fitted_fields(fit: SensorFit, clocks: ClockFit) -> dict[str, float | None]:
    """A fit by the field names of an identity."""
    parameters, kind = fit.parameters, "lag" if fit.parameters.is_lag else "window"
    return {
        f"{kind}_s": parameters.span_s,
        f"{kind}_se_s": fit.span_se_s,
        "left_w": fit.rms_w,
        "other_left_w": fit.other_rms_w,
        "delay_s": max(parameters.delay_s, 0.0),
        "delay_se_s": math.hypot(fit.delay_se_s, clocks.error_s),
        "delay_drift": parameters.drift,
        "delay_drift_se": fit.drift_se,
        "delay_at_s": parameters.at_s,
        "sample_s": parameters.sample_s or None,
        "sample_se_s": fit.sample_se_s if parameters.sample_s else None,
    }


def _kind_is_clear(fit: SensorFit) -> bool:
    """Whether the better kind of response is clearly better."""
    return fit.rms_w is not None and fit.other_rms_w is not None and fit.other_rms_w > _CLEARLY_WORSE * fit.rms_w


def _notes_on_kind(fit: SensorFit) -> list[str]:
    if fit.rms_w is None or fit.other_rms_w is None:
        return ["assumed to be a mean: a lag cannot be distinguished where power itself lags by as much"]
    names = ("a first-order lag", "a mean over a window")
    this, other = names if fit.parameters.is_lag else names[::-1]
    residuals = f"{this} leaves residuals of {fit.rms_w:.2g} W, {other} of {fit.other_rms_w:.2g} W"
    return [residuals if _kind_is_clear(fit) else f"{residuals}: the two can hardly be distinguished"]


def _note_on_drift(fit: SensorFit) -> str:
    drift, sample_s = fit.parameters.drift, fit.parameters.sample_s
    direction = "grows" if drift > 0.0 else "shrinks"
    jumps = f"and jumps by {1e3 * sample_s:.3g} ms" if sample_s else "and will jump back, though no jump was observed"
    return f"delay {direction} by {1e3 * abs(drift):.2g} ms per second {jumps}: the sensor samples on its own clock"
