"""Verbs on devices: list, sensor, reset. Doctor has a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.core.errors import DeviceError
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import DeviceOption, JsonOption, SeedOption, say_left_changed

if TYPE_CHECKING:
    from wastenot.devices.simulated.preset import Preset
    from wastenot.meters.sensors.identity import SensorIdentity, Sensors


def list_(as_json: JsonOption = False) -> None:
    """List the simulated GPUs, and how accurate each one is."""
    from wastenot.devices.simulated.basis import preset_names
    from wastenot.devices.simulated.preset import find_preset
    from wastenot.pages.table import Listed, listing
    from wastenot.terminal.output import console, print_json
    from wastenot.terminal.tables import rich_table

    presets = [find_preset(name) for name in preset_names()]
    if as_json:
        shown = [
            {
                "device": f"sim:{each.name}", "model": each.model, "basis": each.basis, "provenance": each.provenance,
                "core_mhz": [each.clocks.core_from_mhz, each.clocks.core_to_mhz], "memory_mhz": each.clocks.memory_mhz,
                "power_limits_w": each.power_limits_w,
            }
            for each in presets
        ]  # fmt: skip
        print_json("devices", {"simulated": shown})
        return
    columns: tuple[Listed[Preset], ...] = (
        Listed("Device", lambda each: f"sim:{each.name}", numeric=False),
        Listed("GPU", lambda each: each.model, numeric=False),
        Listed("Core clocks, MHz", lambda each: f"{each.clocks.core_from_mhz:g}–{each.clocks.core_to_mhz:g}"),
        Listed("Limit, W", lambda each: each.power_limits_w[1], lambda watts: f"{watts:g}"),
        Listed("Mean error on held-out data", lambda each: each.provenance["held_out"], numeric=False),
        Listed("Based on", lambda each: each.basis, numeric=False),
    )
    console().print(rich_table(listing("Simulated GPUs", presets, columns), ("Core clocks, MHz", "Limit, W", "GPU")))
    typer.echo("Real GPUs of this machine: wastenot doctor")


def sensor(
    device: DeviceOption,
    kernel: Annotated[
        str, option("The load: a steady, heavy kernel, such as gemm:4096.", "K", autocompletion=completing.kernels)
    ] = "gemm:4096",
    budget: Annotated[
        float, option("Maximum device time to spend; default: 60s.", "TIME", parser=quantities.budget, show_default=False)
    ] = 60.0,
    out: Annotated[Path | None, option("Write the result, for wastenot profile run --sensors.", "FILE.json")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Identify the properties of power sensors.

    Finds their update period, averaging window or lag, delay and noise, from bursts of a kernel with random pauses.
    Clocks are not changed. What cannot be determined is reported as such.
    """
    from wastenot.devices.open import open_device
    from wastenot.meters.sensors.identify import identify_sensors
    from wastenot.meters.sensors.identity import sensors_document, write_sensors
    from wastenot.terminal.output import print_json, say
    from wastenot.terminal.progress import shown_progress
    from wastenot.workloads.primitives import primitive

    load, _ = primitive(kernel)
    say_left_changed(device)
    instrument = open_device(device, seed=seed).instrument()
    with shown_progress("identifying sensors") as progress:
        sensors = identify_sensors(instrument, load, budget, seed=seed, progress=progress)
    if out is not None:
        write_sensors(sensors, out)
    if as_json:
        print_json("sensor", sensors_document(sensors))
        return
    for line in sensor_lines(sensors):
        typer.echo(line)
    for note in sensor_notes(sensors):
        say(note)
    if out is not None:
        say(f"{out}: written")


def sensor_lines(sensors: Sensors) -> list[str]:
    """What is known of each channel."""
    return [_line(one) for one in sensors.channels]


def sensor_notes(sensors: Sensors) -> list[str]:
    """Notes; one about several channels stands once."""
    notes = []
    for note in dict.fromkeys(note for one in sensors.channels for note in one.notes):
        names = [one.channel for one in sensors.channels if note in one.notes]
        notes.append(("" if len(names) == len(sensors.channels) else f"{', '.join(names)}: ") + note)
    return notes


def _line(one: SensorIdentity) -> str:
    parts = [
        _value("updated every", one.period_s, one.period_se_s),
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
    digits = 6 if what == "updated every" else 3
    return f"{what} {1e3 * seconds:.{digits}g} ms ± {1e3 * error_s:.2g}"


def _watts(power_w: float | None) -> str:
    return "not determined" if power_w is None else f"{power_w:.3g} W"


def reset(as_json: JsonOption = False) -> None:
    """Reset clocks that a killed run of wastenot left changed.

    They return to the driver's defaults, or to what --restore-clocks named.
    """
    from wastenot.devices.common.journal import journals
    from wastenot.devices.common.recovery import Recovered, recover
    from wastenot.devices.common.rights import forbidden
    from wastenot.terminal.output import print_json, say

    there = journals()
    left = [journal for journal in there if journal.restorable]
    others = [journal for journal in there if not journal.owner_alive and not journal.restorable]
    reason = forbidden()
    if left and reason is not None:
        raise DeviceError(f"the clocks of {len(left)} GPUs were left changed and cannot be reset: {reason}")
    recovered = recover() if left else Recovered()
    recovered.check()
    done = recovered.restored
    held = [journal for journal in there if journal.owner_alive]
    if as_json:
        print_json("reset", {"restored": [journal.uuid for journal in done], "held": [journal.uuid for journal in held]})
        return
    for journal in done:
        say(f"{journal.uuid}: {journal.holder} is dead; its clocks are {journal.outcome}")
    for journal in held:
        say(f"{journal.uuid}: {journal.holder} is running and controls its clocks; it resets them itself")
    for journal in others:
        say(f"{journal.uuid}: {journal.holder} is dead and left its clocks changed: {journal.remedy}")
    if not there:
        say("no run of wastenot left clocks changed; there is nothing to reset")
