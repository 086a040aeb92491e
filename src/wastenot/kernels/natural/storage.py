"""What was seen at natural clocks, as a study keeps it: timelines as they were recorded, and curves estimated from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.instrument import Channel, Readings, RoundTrip
from wastenot.devices.timeline import ClockStamps, Timeline
from wastenot.kernels.natural.curves import AutoPoint, KernelCurve, NaturalCurves
from wastenot.kernels.natural.seen import Recorded
from wastenot.study.packing import Packed
from wastenot.study.recorder import Measurement
from wastenot.study.sweep import Sweep

_NANOSECOND = 1e-9


def packed_timeline(seen: Recorded) -> Packed:
    """As a study keeps it. Times are rounded to nanoseconds; clocks and power keep seven digits."""
    timeline = seen.timeline
    origin = float(timeline.begin_s[0]) if len(timeline.begin_s) else 0.0
    begin, duration = _nanoseconds(timeline.begin_s - origin), _nanoseconds(timeline.end_s - timeline.begin_s)
    arrays: dict[str, Any] = {
        "phase": timeline.phase.astype(np.int32),
        "subject": timeline.subject.astype(np.int8),
        "calls": timeline.calls.astype(np.int32),
        "begin_step_ns": np.diff(begin, prepend=0),
        "duration_ns": duration,
        "core_mhz": timeline.core_mhz.astype(np.float32),
    }
    if timeline.counted_mhz is not None:
        arrays["counted_mhz"] = timeline.counted_mhz.astype(np.float32)
    for name, readings in timeline.readings.items():
        arrays[f"moment_s {name}"] = readings.moment_s
        arrays[f"power_w {name}"] = readings.power_w.astype(np.float32)
    header = {
        "version": 1,
        "origin_s": origin,
        "channels": [asdict(channel) for channel in seen.channels],
        "stamps": asdict(seen.stamps),
        "subjects": [list(subject) for subject in seen.subjects],
        "call_s": list(seen.call_s),
        "how": seen.how,
        "round_trips": [[trip.before_s, trip.gpu_s, trip.after_s] for trip in timeline.round_trips],
        "temperature_c": None if timeline.temperature_c is None else list(timeline.temperature_c),
        "shared": timeline.shared,
    }
    return Packed(header, arrays)


def unpacked_timeline(packed: Packed) -> Recorded:
    """The inverse of :func:`packed_timeline`.

    Raises:
        ValueError: it was written by a newer wastenot, or is damaged.
    """
    header, arrays = packed.header, packed.arrays
    with _understood(header, "a timeline"):
        begin_s = header["origin_s"] + np.cumsum(arrays["begin_step_ns"]) * _NANOSECOND
        names = [name.removeprefix("moment_s ") for name in arrays if name.startswith("moment_s ")]
        temperature = header["temperature_c"]
        timeline = Timeline(
            phase=arrays["phase"].astype(np.intp),
            subject=arrays["subject"].astype(np.intp),
            calls=arrays["calls"].astype(np.intp),
            begin_s=begin_s,
            end_s=begin_s + arrays["duration_ns"] * _NANOSECOND,
            core_mhz=arrays["core_mhz"].astype(float),
            readings={name: Readings(arrays[f"moment_s {name}"], arrays[f"power_w {name}"].astype(float)) for name in names},
            round_trips=tuple(RoundTrip(*trip) for trip in header["round_trips"]),
            temperature_c=None if temperature is None else (temperature[0], temperature[1]),
            shared=header["shared"],
            counted_mhz=arrays["counted_mhz"].astype(float) if "counted_mhz" in arrays else None,
        )
        return Recorded(
            timeline,
            tuple((name, data) for name, data in header["subjects"]),
            tuple(header["call_s"]),
            tuple(Channel(**channel) for channel in header["channels"]),
            ClockStamps(**header["stamps"]),
            header["how"],
        )


def rows_of_curve(
    curve: KernelCurve, seconds: float, how: str, temperature_c: float | None, memory_mhz: float | None = None
) -> tuple[Measurement, ...]:
    """A curve as rows of a study: one at auto, and one at each clock in effect, which nobody requested.

    Args:
        curve: of a kernel.
        seconds: that it was measured for.
        how: the kernel was run.
        temperature_c: of the GPU meanwhile.
        memory_mhz: memory clock in effect.
    """
    auto = curve.auto
    relative = np.hypot(auto.time_se_s / auto.time_s, auto.power_se_w / auto.power_w)
    common = Measurement(
        kernel=curve.kernel,
        setting=AUTO,
        time_s=auto.time_s,
        time_se_s=auto.time_se_s,
        energy_j=auto.energy_j,
        energy_se_j=float(auto.energy_j * relative),
        effective_core_mhz=auto.core_mhz,
        effective_memory_mhz=memory_mhz,
        calls=max(1, curve.groups),
        temperature_c=temperature_c,
        window_s=seconds,
        throttled_share=1.0 if auto.limited else 0.0,
        memory_power_w=None,
        how=how,
        stopped="natural clocks",
        flags=(),
    )
    columns = (curve.core_mhz, curve.time_s, curve.time_se_s, curve.energy_j, curve.energy_se_j)
    return (
        common,
        *(
            replace(
                common, setting=Setting(mhz), time_s=time, time_se_s=time_error, energy_j=energy, energy_se_j=energy_error,
                effective_core_mhz=mhz, throttled_share=None,
            )
            for mhz, time, time_error, energy, energy_error in zip(*(each.tolist() for each in columns), strict=True)
        ),
    )  # fmt: skip


def packed_curve(curve: KernelCurve, *, together: bool, seconds: float) -> Packed:
    """What rows do not say of a curve.

    Args:
        curve: of a kernel.
        together: whether it was estimated together with those of all other kernels.
        seconds: device time that it took.
    """
    header = {
        "version": 1,
        "auto": asdict(curve.auto),
        "groups": curve.groups,
        "readings": curve.readings,
        "notes": list(curve.notes),
        "together": together,
        "seconds": seconds,
    }
    arrays: dict[str, FloatArray] = {
        name: getattr(curve, name) for name in ("core_mhz", "time_s", "power_w", "log_time_cov", "log_power_cov")
    }
    return Packed(header, arrays)


def unpacked_curve(kernel: str, packed: Packed) -> KernelCurve:
    """The inverse of :func:`packed_curve`.

    Raises:
        ValueError: it was written by a newer wastenot, or is damaged.
    """
    header = packed.header
    with _understood(header, "a curve"):
        return KernelCurve(
            kernel=kernel,
            **packed.arrays,
            auto=AutoPoint(**header["auto"]),
            groups=header["groups"],
            readings=header["readings"],
            notes=tuple(header["notes"]),
        )


@contextmanager
def _understood(header: Mapping[str, Any], what: str) -> Iterator[None]:
    """Refuse what a newer wastenot wrote, or what lacks a part."""
    if header.get("version") != 1:
        raise ValueError(f"{what} of version {header.get('version')!r}")
    try:
        yield
    except (KeyError, TypeError) as error:
        raise ValueError(f"{what} without {error}") from error


def curves_of(sweep: Sweep, packed: Mapping[str, Packed]) -> NaturalCurves:
    """The curves of a sweep at natural clocks, with what its rows do not say.

    Raises:
        BadInputError: there is nothing of one of its kernels, as in a sweep that came from a file.
    """
    curves = []
    for kernel in sweep.kernels:
        if kernel.name not in packed:
            raise BadInputError(
                f"workload '{sweep.key}': the curve of kernel '{kernel.name}' is not in this study, only its rows; use the "
                "study that it was measured into"
            )
        curves.append(unpacked_curve(kernel.name, packed[kernel.name]))
    temperatures = sweep.temperature_c[np.isfinite(sweep.temperature_c)]
    return NaturalCurves(
        device=sweep.device,
        workload=sweep.workload,
        origin=sweep.origin,
        curves=tuple(curves),
        temperature_c=float(temperatures.mean()) if len(temperatures) else None,
        seconds=float(sum(packed[kernel.name].header["seconds"] for kernel in sweep.kernels)),
    )


def _nanoseconds(seconds: FloatArray) -> Any:
    return np.rint(seconds / _NANOSECOND).astype(np.int64)
