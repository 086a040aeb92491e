"""``wastenot sensor``: how a device's power sensors make their readings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli.device_options import DeviceOption
from wastenot.cli.options import JsonOption, SeedOption

if TYPE_CHECKING:
    from wastenot.sensors.identity import SensorIdentity


def sensor(
    device: DeviceOption,
    kernel: Annotated[
        str, typer.Option("--kernel", metavar="K", help="The load: a steady, heavy kernel such as gemm:4096.")
    ] = "gemm:4096",
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Upper bound on the device time to spend, such as 60s.")
    ] = "60s",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="Write the result, for wastenot profile to use.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Identify a device's power sensors: how often they update, over what time they average or lag, their delay and noise.

    Runs bursts of the kernel with rests of random lengths; clocks are not touched. Notes say what could not be determined.
    """
    from wastenot.cli.output import print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.cli.sweep_verb import parse_time
    from wastenot.devices.instrument import instrument_of
    from wastenot.devices.open import open_device
    from wastenot.sensors.identify import identify_sensors
    from wastenot.sensors.identity import sensors_document, write_sensors
    from wastenot.workloads.primitives import primitive

    load, _ = primitive(kernel)
    seconds = parse_time(budget)
    instrument = instrument_of(open_device(device, seed=seed))
    with shown_progress("identifying sensors") as progress:
        sensors = identify_sensors(instrument, load, seconds, seed=seed, progress=progress)
    if out is not None:
        write_sensors(sensors, out)
    if as_json:
        print_json(sensors_document(sensors))
        return
    for one in sensors.channels:
        typer.echo(_line(one))
    # Notes that several channels share are printed once.
    for note in dict.fromkeys(note for one in sensors.channels for note in one.notes):
        names = [one.channel for one in sensors.channels if note in one.notes]
        say(("" if len(names) == len(sensors.channels) else f"{', '.join(names)}: ") + note)
    if out is not None:
        say(f"{out}: written")


def _line(one: SensorIdentity) -> str:
    parts = [
        _value("updates every", one.period_s, one.period_se_s),
        _value("window", one.window_s, one.window_se_s) if one.lag_s is None else _value("lag", one.lag_s, one.lag_se_s),
        _value("delay", one.delay_s, one.delay_se_s) + _drift(one),
        f"noise {_watts(one.noise_idle_w)} at rest, {_watts(one.noise_busy_w)} under load",
    ]
    return f"{one.channel:<9}" + "; ".join(parts)


def _drift(one: SensorIdentity) -> str:
    if not one.drifts or one.delay_drift is None or one.delay_drift_se is None:
        return ""
    drift = f" {1e3 * one.delay_drift:+.3g} ± {1e3 * one.delay_drift_se:.2g} ms per second"
    return drift if one.sample_s is None else f"{drift}, {_value('jumps of', one.sample_s, one.sample_se_s)}"


def _value(what: str, seconds: float | None, error_s: float | None) -> str:
    if seconds is None or error_s is None:
        return f"{what} not determined"
    digits = 6 if what == "updates every" else 3
    return f"{what} {1e3 * seconds:.{digits}g} ms ± {1e3 * error_s:.2g}"


def _watts(power_w: float | None) -> str:
    return "not determined" if power_w is None else f"{power_w:.3g} W"
