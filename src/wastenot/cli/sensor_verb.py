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
        str, typer.Option("--budget", metavar="TIME", help="Device time to spend at most, such as 60s.")
    ] = "60s",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="Write what was found, for profiles to take.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Identify how often power sensors update, what a reading is a mean or a lag of, how late it comes, and its noise.

    Bursts of the kernel with rests of random lengths; clocks are not touched. What cannot be told is said to be so.
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
        found = identify_sensors(instrument, load, seconds, seed=seed, progress=progress)
    if out is not None:
        write_sensors(found, out)
    if as_json:
        print_json(sensors_document(found))
        return
    for one in found.channels:
        typer.echo(_line(one))
    # What holds for several channels is said once.
    for note in dict.fromkeys(note for one in found.channels for note in one.notes):
        names = [one.channel for one in found.channels if note in one.notes]
        say(("" if len(names) == len(found.channels) else f"{', '.join(names)}: ") + note)
    if out is not None:
        say(f"{out}: written")


def _line(one: SensorIdentity) -> str:
    parts = [
        _value("new each", one.period_s, one.period_se_s),
        _value("window", one.window_s, one.window_se_s) if one.lag_s is None else _value("lag", one.lag_s, one.lag_se_s),
        _value("delay", one.delay_s, one.delay_se_s) + _drift(one),
        f"noise {_watts(one.noise_idle_w)} at rest, {_watts(one.noise_busy_w)} under load",
    ]
    return f"{one.channel:<9}" + "; ".join(parts)


def _drift(one: SensorIdentity) -> str:
    if not one.drifts or one.delay_drift is None or one.delay_drift_se is None:
        return ""
    drift = f" {1e3 * one.delay_drift:+.3g} ± {1e3 * one.delay_drift_se:.2g} ms each second"
    return drift if one.sample_s is None else f"{drift}, {_value('jumps of', one.sample_s, one.sample_se_s)}"


def _value(what: str, seconds: float | None, error_s: float | None) -> str:
    if seconds is None or error_s is None:
        return f"{what} not determined"
    digits = 6 if what == "new each" else 3
    return f"{what} {1e3 * seconds:.{digits}g} ms ± {1e3 * error_s:.2g}"


def _watts(power_w: float | None) -> str:
    return "not determined" if power_w is None else f"{power_w:.3g} W"
