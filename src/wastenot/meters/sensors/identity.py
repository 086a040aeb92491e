"""How a power sensor makes its readings, as identified from bursts of load, and the file that holds it.

The gain is not part of it: load shows when a sensor measures, not what it makes of a watt; that takes an external meter.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from wastenot.core.documents import Count, Finite, Name, NotNegative, Part, Positive, read_document
from wastenot.core.errors import BadInputError
from wastenot.core.files import write_text
from wastenot.devices.instrument import Channel

SCHEMA = "wastenot.sensors/2"
SOURCE = "identified by wastenot device sensor"

_SIGNIFICANT, _MIN_DRIFT = 3.0, 2e-5  # standard errors, and drift, above which a delay drifts
_UNIFORM_SD = 0.3  # standard deviation of a uniform distribution, as a fraction of its range
_LATER_S = 60.0  # for which a drift may have continued unobserved

GAIN_NOTE = "the gain cannot be determined from load alone: compare with an external meter; readings are used as they are"


@dataclass(frozen=True, slots=True)
class SensorIdentity:
    """What is known of one power channel; ``None`` where a value could not be determined.

    Attributes:
        channel: ``total``, or the name of a component.
        period_s, period_se_s: between updates, and its standard error.
        window_s, window_se_s: averaging window of a reading; ``None`` where it is a lag.
        lag_s, lag_se_s: time constant of a reading that is a first-order lag; ``None`` where it is a mean.
        left_w: root mean square residual of the readings that distinguish the two, without the largest fifth.
        other_left_w: the same for the best fit of the other kind (a lag for a mean, a mean for a lag); ``None`` where
            the two cannot be distinguished.
        delay_s, delay_se_s: from the end of a reading's window to its timestamp, at ``delay_at_s``.
        delay_drift, delay_drift_se: seconds by which the delay grows each second.
        delay_at_s: moment of the host's clock.
        sample_s, sample_se_s: by which the delay jumped back; ``None`` where no jump was observed.
        noise_idle_w, noise_busy_w: standard deviation of a reading at rest, and under load.
        idle_w, busy_w: what it reads at rest, and under steady load.
        runs: number of bursts this is based on.
        seconds: of device time that they took.
        notes: what could not be determined, and why.
    """

    channel: Name
    period_s: Positive | None
    period_se_s: NotNegative | None
    window_s: Positive | None
    window_se_s: NotNegative | None
    lag_s: Positive | None
    lag_se_s: NotNegative | None
    left_w: NotNegative | None
    other_left_w: NotNegative | None
    delay_s: NotNegative | None
    delay_se_s: NotNegative | None
    delay_drift: Finite | None
    delay_drift_se: NotNegative | None
    delay_at_s: Finite | None
    sample_s: Positive | None
    sample_se_s: NotNegative | None
    noise_idle_w: NotNegative | None
    noise_busy_w: NotNegative | None
    idle_w: NotNegative | None
    busy_w: NotNegative | None
    runs: Count
    seconds: NotNegative
    notes: tuple[str, ...] = ()

    @property
    def determined(self) -> bool:
        """Whether period, window or lag, and delay are known."""
        return None not in (self.period_s, self.delay_s) and (self.window_s is not None or self.lag_s is not None)

    @property
    def drifts(self) -> bool:
        """Whether the delay drifts significantly."""
        return (
            self.delay_drift is not None
            and self.delay_drift_se is not None
            and abs(self.delay_drift) > max(_SIGNIFICANT * self.delay_drift_se, _MIN_DRIFT)
        )

    def as_channel(self) -> Channel:
        """As profiles use it, with a gain of 1.

        Raises:
            BadInputError: it is not determined.
        """
        window_s = 2.0 * self.lag_s if self.lag_s is not None else self.window_s
        if self.period_s is None or window_s is None or self.delay_s is None:
            why = "; ".join(note for note in self.notes if note != GAIN_NOTE) or "too few readings changed"
            raise BadInputError(f"channel '{self.channel}': its window is not determined: {why}")
        noise = max((one for one in (self.noise_idle_w, self.noise_busy_w) if one is not None), default=None)
        known = Channel(self.channel, self.period_s, window_s, self.delay_s, 1.0, noise, SOURCE, self.lag_s or 0.0)
        if not self.drifts or self.delay_drift is None:
            return known
        # It may have jumped since: anywhere within a sample, or, where none was observed, as far as it drifts in a minute.
        doubt_s = _UNIFORM_SD * self.sample_s if self.sample_s else abs(self.delay_drift) * _LATER_S
        return replace(
            known,
            delay_error_s=doubt_s,
            delay_drift=self.delay_drift,
            delay_at_s=self.delay_at_s or 0.0,
            sample_s=self.sample_s or 0.0,
        )


@dataclass(frozen=True, slots=True)
class Sensors:
    """The channels of one device, in its order, and the kernel that was the load."""

    device: str
    model: str
    kernel: str
    channels: tuple[SensorIdentity, ...]

    def channel(self, name: str) -> Channel:
        """A determined channel by name.

        Raises:
            BadInputError: there is none, or it is not determined.
        """
        for one in self.channels:
            if one.channel == name:
                return one.as_channel()
        raise BadInputError(f"channel '{name}': not among {', '.join(one.channel for one in self.channels)}")

    def known(self, device: str) -> tuple[Channel, ...]:
        """The channels that are determined, for a profile on a device.

        Raises:
            BadInputError: they are of another device.
        """
        if device != self.device:
            raise BadInputError(
                f"these sensors are of {self.device}, not of {device}: run wastenot device sensor on {device}"
            )
        return tuple(one.as_channel() for one in self.channels if one.determined)


def sensors_document(sensors: Sensors) -> dict[str, Any]:
    """As JSON values."""
    return {"schema": SCHEMA} | asdict(sensors)


def write_sensors(sensors: Sensors, path: str | os.PathLike[str]) -> None:
    """Write the file that profiles use.

    Raises:
        BadInputError: it cannot be written.
    """
    write_text(path, json.dumps(sensors_document(sensors), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_sensors(path: str | os.PathLike[str]) -> Sensors:
    """Read such a file.

    Raises:
        BadInputError: it is missing, of another kind, or a value is missing or impossible; names the field.
    """
    file = read_document(path, _File, "make it with 'wastenot device sensor --out'").content
    return Sensors(file.device, file.model, file.kernel, file.channels)


class _File(Part):
    schema_: Literal["wastenot.sensors/2"] = Field(alias="schema")
    device: str
    model: str
    kernel: str
    channels: Annotated[tuple[SensorIdentity, ...], Field(min_length=1)]
