"""What is known of a power channel after so many bursts, and how that is told."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from wastenot.devices.clock_fit import ClockFit
from wastenot.sensors.identity import GAIN_NOTE, SensorIdentity
from wastenot.sensors.response_fit import SensorFit
from wastenot.sensors.update_period import Updates

# Standard errors that are good enough: of window or lag as a share, of the delay, and of its drift.
_PRECISE, _PRECISE_S, _PRECISE_DRIFT = 0.015, 5e-4, 2.5e-5
_TOLD_APART = 1.1  # times what the better kind of response leaves, from which the other is surely wrong
_VAGUE = 0.25  # standard error of a window or lag, as a share of it, from which it is not determined
_BEYOND = 2.5  # usual bursts that window and delay may be as long as
_FOLLOWS = 5.0  # noises that load must lift a channel by


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What is known of a channel by now.

    Attributes:
        updates: its readings, each once; ``None`` where too few differ.
        clocks: that its stamps were put on the host's clock by.
        readings: how many.
        noise_w: standard deviation of a reading at rest and under load; ``None`` where too few tell.
        fit: the sensor; ``None`` where readings are too few.
        fine: whether the sensor sees the shape of executions.
    """

    updates: Updates | None
    clocks: ClockFit
    readings: int
    noise_w: tuple[float | None, float | None]
    fit: SensorFit | None
    fine: bool

    @property
    def precise(self) -> bool:
        """Whether more of the same would not be worth the time."""
        fit = self.fit
        return (
            fit is not None
            and not self.fine
            and fit.span_se_s < _PRECISE * fit.sensing.span_s
            and fit.delay_se_s < _PRECISE_S
            and fit.drift_se < _PRECISE_DRIFT
            and told_apart(fit)
        )


def told_apart(fit: SensorFit) -> bool:
    """Whether the better kind of response is surely the better one."""
    return fit.usual_w is not None and fit.other_usual_w is not None and fit.other_usual_w > _TOLD_APART * fit.usual_w


def told(channel: str, found: Found, runs: int, spent_s: float, burst_s: float) -> SensorIdentity:
    """What is known of a channel, with what could not be told and why.

    Args:
        channel: its name.
        found: what is known of it.
        runs: bursts that this rests on.
        spent_s: of the device's time that they took.
        burst_s: usual length of a burst.
    """
    updates, fit = found.updates, found.fit
    known: dict[str, float | None] = {field.name: None for field in fields(SensorIdentity)}
    notes = [GAIN_NOTE]
    if updates is not None:
        known |= {"period_s": updates.period_s, "period_se_s": updates.period_se_s}
        if not updates.regular:
            notes.append("it keeps no regular time: delays vary by as much as its stamps do")
    if fit is None:
        notes.append(
            f"window and delay are not determined: {found.readings} readings in {spent_s:.0f} s; give it a larger budget"
        )
    elif fit.busy_w - fit.idle_w < _FOLLOWS * max(found.noise_w[0] or 0.0, 1e-9) / math.sqrt(found.readings):
        notes.append("window and delay are not determined: the channel does not follow the load")
    else:
        known |= {"idle_w": max(fit.idle_w, 0.0), "busy_w": max(fit.busy_w, 0.0)}
        sensing = fit.sensing
        reach_s = sensing.delay_s + sensing.span_s * (2.0 if sensing.lagging else 1.0)
        if reach_s > _BEYOND * burst_s:
            notes.append(
                f"window and delay are not determined: they are about {reach_s:.2g} s together, more than bursts made for "
                "the first channel can tell"
            )
        elif fit.span_se_s < _VAGUE * sensing.span_s:
            known |= _sensing(fit, found.clocks)
            notes += _kind_notes(fit)
        else:
            most_s = sensing.span_s + 2.0 * fit.span_se_s
            about = f"the window is likely below {most_s:.2g} s; " if math.isfinite(most_s) else ""
            notes.append(f"window and delay are not determined: {about}give it a larger budget")
        if not found.fine:
            notes.append("delay may hold some of what power itself lags by: a sensor this slow cannot tell them apart")
    known |= {"noise_idle_w": found.noise_w[0], "noise_busy_w": found.noise_w[1]}
    values: dict[str, Any] = known | {"channel": channel, "runs": runs, "seconds": spent_s, "notes": ()}
    identity = SensorIdentity(**values)
    if identity.drifts and fit is not None:
        notes.append(_drift_note(fit))
    return replace(identity, notes=tuple(notes))


def _sensing(fit: SensorFit, clocks: ClockFit) -> dict[str, float | None]:
    """What a fit says, by the names of an identity."""
    sensing, kind = fit.sensing, "lag" if fit.sensing.lagging else "window"
    return {
        f"{kind}_s": sensing.span_s,
        f"{kind}_se_s": fit.span_se_s,
        "left_w": fit.usual_w,
        "other_left_w": fit.other_usual_w,
        "delay_s": max(sensing.delay_s, 0.0),
        "delay_se_s": math.hypot(fit.delay_se_s, clocks.error_s),
        "delay_drift": sensing.drift,
        "delay_drift_se": fit.drift_se,
        "delay_at_s": sensing.at_s,
        "sample_s": sensing.sample_s or None,
        "sample_se_s": fit.sample_se_s if sensing.sample_s else None,
    }


def _kind_notes(fit: SensorFit) -> list[str]:
    if fit.usual_w is None or fit.other_usual_w is None:
        return ["taken as a mean: whether it lags instead cannot be told where power itself lags by as much"]
    names = ("a first-order lag", "a mean over a window")
    this, other = names if fit.sensing.lagging else names[::-1]
    left = f"{this} leaves {fit.usual_w:.2g} W of readings, {other} {fit.other_usual_w:.2g} W"
    return [left if told_apart(fit) else f"{left}: the two can hardly be told apart"]


def _drift_note(fit: SensorFit) -> str:
    drift, sample_s = fit.sensing.drift, fit.sensing.sample_s
    way = "grows" if drift > 0.0 else "shrinks"
    jumps = f"and jumps by {1e3 * sample_s:.3g} ms" if sample_s else "and will jump back, though no jump was seen"
    return f"delay {way} by {1e3 * abs(drift):.2g} ms each second {jumps}: the sensor samples by a clock of its own"
