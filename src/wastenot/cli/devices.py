"""Verbs on devices: doctor, sensor, reset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.cli import quantities
from wastenot.cli.options import DeviceOption, JsonOption, SeedOption, check_seconds, parse_budget

if TYPE_CHECKING:
    from wastenot.devices.nvidia.device import NvidiaDevice
    from wastenot.devices.nvidia.examine import Examined, Rights
    from wastenot.devices.torch.cycle_probe import CycleProbe
    from wastenot.sensors.identity import SensorIdentity
    from wastenot.sensors.probe import SensorSpeed


_ONE_CLOCK = 1e-3  # relative, within which multiprocessors count as running at one clock


def doctor(
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", parser=quantities.seconds, help="Time to observe each sensor.")
    ] = 1.5,
    as_json: JsonOption = False,
) -> None:
    """Show what this machine can do.

    Its GPUs, their sensors and how fast they are, whether clocks can be set, and which permission to ask for if not.
    """
    from dataclasses import asdict

    from wastenot.cli.output import print_json
    from wastenot.devices.nvidia.device import NvidiaDevice, nvidia_names
    from wastenot.devices.nvidia.examine import examine, rights_here
    from wastenot.devices.nvidia.journal import journals
    from wastenot.devices.nvidia.nvml import Nvml
    from wastenot.devices.simulated.basis import basis_of
    from wastenot.devices.simulated.preset import preset_names
    from wastenot.errors import WastenotError
    from wastenot.sensors.probe import probe_sensors

    check_seconds("--seconds", seconds)
    rights, torch_found = rights_here(), _torch()
    gpus: list[tuple[Examined, tuple[SensorSpeed, ...]]] = []
    counted: dict[str, CycleProbe | str] = {}
    driver = problem = None
    try:
        nvml = Nvml()
        driver = str(nvml.call("nvmlSystemGetDriverVersion"))
        for name in nvidia_names(nvml):
            handle = nvml.call("nvmlDeviceGetHandleByIndex", int(name.partition(":")[2]))
            examined = examine(nvml, name, handle, torch_found["uuids"])
            if examined.mig:
                gpus.append((examined, ()))
                counted[name] = "MIG is on"
                continue
            device = NvidiaDevice(nvml, handle, name)
            gpus.append((examined, probe_sensors(device, seconds)))
            counted[name] = _count_cycles(device)
    except WastenotError as error:
        problem = str(error)
    left = journals()
    simulated = {f"sim:{name}": basis_of(f"sim:{name}") for name in preset_names()}
    if as_json:
        print_json("doctor", {
            "driver": driver, "problem": problem, "rights": asdict(rights) | {"likely": rights.likely},
            "gpus": [
                asdict(gpu)
                | {"sensors": [asdict(sensor) for sensor in sensors], "cycle_clock": _cycle_document(counted[gpu.name])}
                for gpu, sensors in gpus
            ],
            "torch": torch_found, "simulated": simulated,
            "journals": [{"gpu": j.uuid, "process": j.owner, "alive": j.owner_alive, "file": str(j.path)} for j in left],
        })  # fmt: skip
        return
    _print(driver, problem, rights, gpus, counted, torch_found, simulated)
    for journal in left:
        what = f"process {journal.owner} controls the clocks of {journal.uuid}"
        if not journal.owner_alive:
            what = (
                f"clocks of {journal.uuid} were left changed by process {journal.owner}, which is dead: run wastenot reset"
            )
        typer.echo(f"journal     {what}")


def _print(
    driver: str | None,
    problem: str | None,
    rights: Rights,
    gpus: list[tuple[Examined, tuple[SensorSpeed, ...]]],
    counted: dict[str, CycleProbe | str],
    torch_found: dict[str, Any],
    simulated: dict[str, str],
) -> None:
    typer.echo(f"driver      {driver or 'none'}" + (f": {problem}" if problem else ""))
    who = "root" if rights.root else "an ordinary user"
    powers = {True: "with CAP_SYS_ADMIN", False: "without CAP_SYS_ADMIN", None: "capabilities unknown"}[rights.sys_admin]
    typer.echo(f"user        {who}, {powers}; {rights.container or 'no'} container")
    typer.echo(f"torch       {torch_found['says']}")
    for gpu, sensors in gpus:
        typer.echo(f"\n{gpu.name}    {gpu.model}, {gpu.architecture or 'architecture unknown'}, {gpu.uuid}")
        for line in _about(gpu, rights):
            typer.echo(f"  {line}")
        for sensor in sensors:
            typer.echo(f"  {_about_sensor(sensor, gpu)}")
        if not gpu.mig:
            typer.echo(f"  {'cycle clock':<17}{_about_cycles(counted[gpu.name])}")
    if not gpus:
        typer.echo("\nno NVIDIA GPU: sim: and recorded: devices work everywhere (wastenot run gpt3-xl)")
    typer.echo()
    for name, basis in simulated.items():
        typer.echo(f"{name:<17}simulated: {basis}")


def _about(gpu: Examined, rights: Rights) -> list[str]:
    lines = []
    if gpu.mig:
        return ["MIG is on: power and clocks of a slice cannot be measured separately; wastenot needs the whole GPU"]
    for memory, (low, high, number) in sorted(gpu.clocks.items()):
        lines.append(f"clocks           memory {memory:g} MHz with core {low:g} to {high:g} MHz ({number} clocks)")
    if gpu.power_limit_w is not None and gpu.power_limits_w is not None:
        lines.append(
            f"power limit      {gpu.power_limit_w:g} W, range {gpu.power_limits_w[0]:g} to {gpu.power_limits_w[1]:g} W"
        )
    torch_name = "not visible to PyTorch" if gpu.torch_index is None else f"cuda:{gpu.torch_index}"
    lines.append(f"in PyTorch       {torch_name}")
    for what, can in (("core clock", bool(gpu.clocks)), ("memory clock", gpu.memory_clock_settable), ("power limit", True)):
        lines.append(f"set {what:<13}{_may(can, rights)}")
    return lines


def _may(can: bool | None, rights: Rights) -> str:
    if can is False:
        return "no: the GPU offers no choice"
    if not rights.likely:
        return f"probably not (inferred): ask for {rights.to_ask_for}"
    unsure = "; on this architecture drivers often refuse it" if can is None else ""
    if rights.forbidden:
        return f"not now: {rights.forbidden}; otherwise probably yes (inferred, not tried{unsure})"
    return f"probably yes, with --allow-clock-control (inferred, not tried{unsure})"


def _about_sensor(sensor: SensorSpeed, gpu: Examined) -> str:
    label = f"{sensor.name:<17}"
    if not sensor.there or sensor.value is None or sensor.read_s is None or sensor.slowest_read_s is None:
        return f"{label}not reported by this GPU"
    period = "did not change" if sensor.period_s is None else f"updated every {1e3 * sensor.period_s:.3g} ms"
    read = f"a read takes {1e6 * sensor.read_s:.3g} µs (at most {1e6 * sensor.slowest_read_s:.3g})"
    window = ""
    if sensor.name == "power" and gpu.published_window_s is not None:
        window = f"; averages over {1e3 * gpu.published_window_s:g} ms (published for {gpu.architecture}, not measured)"
    return f"{label}{sensor.value:.6g} {sensor.unit}; {period}; {read}{window}"


def _count_cycles(device: NvidiaDevice) -> CycleProbe | str:
    """The core clock by counting cycles, or why it cannot be had."""
    from wastenot.devices.torch.devices import torch_device
    from wastenot.errors import WastenotError

    try:
        name = torch_device(device.identity.unique_id)
        from wastenot.devices.torch.cycle_probe import probe_cycles

        return probe_cycles(name, lambda: device.sensors.clocks().core_mhz)
    except WastenotError as error:
        return str(error)


def _cycle_document(probe: CycleProbe | str) -> dict[str, Any]:
    from dataclasses import asdict

    return (
        {"problem": probe} if isinstance(probe, str) else {"problem": None, "difference": probe.difference} | asdict(probe)
    )


def _about_cycles(probe: CycleProbe | str) -> str:
    if isinstance(probe, str):
        return f"cannot be counted: {probe}"
    spread = probe.highest_mhz / probe.lowest_mhz - 1.0
    together = f"all {probe.multiprocessors} multiprocessors at one clock (within {100 * spread:.2g} %)"
    if spread > _ONE_CLOCK:
        together = f"{probe.multiprocessors} multiprocessors at {probe.lowest_mhz:.6g} to {probe.highest_mhz:.6g} MHz"
    driver = "the driver gives none to compare with"
    if probe.difference is not None:
        driver = f"the driver says {probe.driver_mhz:g} MHz ({100 * probe.difference:+.2g} %)"
    return (
        f"{probe.core_mhz:.6g} MHz by counting cycles while one thread spins; {driver}; {together}; the timer ticks every "
        f"{1e9 * probe.resolution_s:.3g} ns; a stamp takes {1e6 * probe.cost_s:.2g} µs of the stream"
    )


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {"says": "not installed: kernels cannot run on a GPU (pip install 'wastenot[torch]')", "uuids": {}}
    if not torch.cuda.is_available():
        return {"says": f"{torch.__version__}: sees no CUDA GPU", "uuids": {}}
    uuids = {str(torch.cuda.get_device_properties(index).uuid): index for index in range(torch.cuda.device_count())}
    return {"says": f"{torch.__version__}, CUDA {torch.version.cuda}: sees {len(uuids)} GPUs", "uuids": uuids}


def sensor(
    device: DeviceOption,
    kernel: Annotated[
        str, typer.Option("--kernel", metavar="K", help="The load: a steady, heavy kernel, such as gemm:4096.")
    ] = "gemm:4096",
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Device time to spend at most, such as 60s.")
    ] = "60s",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="Write the result, for wastenot profile --sensors.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Identify the properties of power sensors.

    Their update period, averaging window or lag, delay and noise, from bursts of a kernel with random pauses. Clocks are
    not changed. What cannot be determined is reported as such.
    """
    from wastenot.cli.output import print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.devices.open import open_device
    from wastenot.sensors.identify import identify_sensors
    from wastenot.sensors.identity import sensors_document, write_sensors
    from wastenot.workloads.primitives import primitive

    load, _ = primitive(kernel)
    seconds = parse_budget(budget)
    instrument = open_device(device, seed=seed).instrument()
    with shown_progress("identifying sensors") as progress:
        sensors = identify_sensors(instrument, load, seconds, seed=seed, progress=progress)
    if out is not None:
        write_sensors(sensors, out)
    if as_json:
        print_json("sensor", sensors_document(sensors))
        return
    for one in sensors.channels:
        typer.echo(_line(one))
    # A note about several channels is printed once.
    for note in dict.fromkeys(note for one in sensors.channels for note in one.notes):
        names = [one.channel for one in sensors.channels if note in one.notes]
        say(("" if len(names) == len(sensors.channels) else f"{', '.join(names)}: ") + note)
    if out is not None:
        say(f"{out}: written")


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
    """Restore clocks that a killed run of wastenot left changed.

    Journals record which GPUs those are and what their clocks were.
    """
    from wastenot.cli.output import print_json, say
    from wastenot.devices.nvidia.clocks import recover
    from wastenot.devices.nvidia.journal import journals, state_folder
    from wastenot.devices.nvidia.nvml import Nvml, forbidden
    from wastenot.errors import DeviceError

    there = journals()
    left = [journal for journal in there if not journal.owner_alive]
    reason = forbidden()
    if left and reason is not None:
        raise DeviceError(f"the clocks of {len(left)} GPUs were left changed and cannot be restored: {reason}")
    done = recover(Nvml(allow_changes=True)) if left else ()
    held = [journal for journal in there if journal.owner_alive]
    if as_json:
        print_json("reset", {"put_right": [journal.uuid for journal in done], "held": [journal.uuid for journal in held]})
        return
    for journal in done:
        say(f"{journal.uuid}: process {journal.owner} is dead; its clocks and power limit are restored")
    for journal in held:
        say(f"{journal.uuid}: process {journal.owner} is running and controls its clocks; it restores them itself")
    if not there:
        say(f"no clocks were left changed (no journal in {state_folder()})")
