"""``wastenot doctor``: what this machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.cli.options import JsonOption

if TYPE_CHECKING:
    from wastenot.devices.nvidia.examine import Examined
    from wastenot.devices.nvidia.rights import Rights
    from wastenot.sensors.probe import SensorSpeed


def doctor(
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="Time to probe each sensor.")] = 1.5,
    as_json: JsonOption = False,
) -> None:
    """Report what this machine can do: its GPUs, their sensors and how fast they are, and which permissions are missing."""
    from dataclasses import asdict

    from wastenot.cli.output import print_json
    from wastenot.cli.sweep_verb import checked_seconds
    from wastenot.devices.nvidia.device import NvidiaDevice, nvidia_names
    from wastenot.devices.nvidia.examine import examine
    from wastenot.devices.nvidia.journal import journals
    from wastenot.devices.nvidia.nvml import Nvml
    from wastenot.devices.nvidia.rights import rights_here
    from wastenot.errors import WastenotError
    from wastenot.sensors.probe import probe_sensors

    checked_seconds("--seconds", seconds)
    rights, torch_found = rights_here(), _torch()
    gpus: list[tuple[Examined, tuple[SensorSpeed, ...]]] = []
    driver = problem = None
    try:
        nvml = Nvml()
        driver = str(nvml.call("nvmlSystemGetDriverVersion"))
        for name in nvidia_names(nvml):
            handle = nvml.call("nvmlDeviceGetHandleByIndex", int(name.partition(":")[2]))
            gpu = examine(nvml, name, handle, torch_found["uuids"])
            gpus.append((gpu, () if gpu.mig else probe_sensors(NvidiaDevice(nvml, handle, name), seconds)))
    except WastenotError as error:
        problem = str(error)
    open_journals = journals()
    if as_json:
        print_json({
            "driver": driver, "problem": problem, "rights": asdict(rights) | {"likely": rights.likely},
            "gpus": [asdict(gpu) | {"sensors": [asdict(sensor) for sensor in sensors]} for gpu, sensors in gpus],
            "torch": torch_found,
            "journals": [{"gpu": j.uuid, "process": j.owner, "alive": j.owner_alive, "file": str(j.path)} for j in open_journals],
        })  # fmt: skip
        return
    _print(driver, problem, rights, gpus, torch_found)
    for journal in open_journals:
        what = f"process {journal.owner} controls the clocks of {journal.uuid}"
        if not journal.owner_alive:
            what = f"process {journal.owner} has ended without restoring the clocks of {journal.uuid}: run wastenot reset"
        typer.echo(f"journal     {what}")


def _print(
    driver: str | None,
    problem: str | None,
    rights: Rights,
    gpus: list[tuple[Examined, tuple[SensorSpeed, ...]]],
    torch_found: dict[str, Any],
) -> None:
    typer.echo(f"driver      {driver or 'none'}" + (f": {problem}" if problem else ""))
    who = "root" if rights.root else "an ordinary user"
    powers = {True: "with CAP_SYS_ADMIN", False: "without CAP_SYS_ADMIN", None: "capabilities unknown"}[rights.sys_admin]
    typer.echo(f"user        {who}, {powers}; {rights.container or 'no'} container")
    typer.echo(f"torch       {torch_found['says']}")
    for gpu, sensors in gpus:
        typer.echo(f"\n{gpu.name}    {gpu.model}, {gpu.architecture or 'architecture unknown'}, {gpu.uuid}")
        for line in _gpu_lines(gpu, rights):
            typer.echo(f"  {line}")
        for sensor in sensors:
            typer.echo(f"  {_sensor_line(sensor, gpu)}")
    if not gpus:
        typer.echo("\nno NVIDIA GPU: sim: and recorded: devices work everywhere (wastenot run gpt3-xl)")


def _gpu_lines(gpu: Examined, rights: Rights) -> list[str]:
    lines = []
    if gpu.mig:
        return ["MIG is enabled: NVIDIA reports no power of single MIG instances; wastenot needs the whole GPU"]
    for memory, (low, high, number) in sorted(gpu.clocks.items()):
        lines.append(f"clocks           memory {memory:g} MHz with core {low:g} to {high:g} MHz ({number} clocks)")
    if gpu.power_limit_w is not None and gpu.power_limits_w is not None:
        lines.append(
            f"power limit      {gpu.power_limit_w:g} W, can be set from {gpu.power_limits_w[0]:g} to {gpu.power_limits_w[1]:g} W"
        )
    index = "not visible" if gpu.torch_index is None else f"cuda:{gpu.torch_index}"
    lines.append(f"in PyTorch       {index}")
    for what, can in (("core clock", bool(gpu.clocks)), ("memory clock", gpu.memory_clock_settable), ("power limit", True)):
        lines.append(f"set {what:<13}{_may(can, rights)}")
    return lines


def _may(can: bool | None, rights: Rights) -> str:
    if can is False:
        return "no: the GPU offers no choice"
    if not rights.likely:
        return f"probably not (inferred): ask for {rights.to_ask_for}"
    unsure = "; drivers often refuse it on this architecture" if can is None else ""
    if rights.forbidden:
        return f"not now: {rights.forbidden}; otherwise probably yes (inferred, not tried{unsure})"
    return f"probably yes, with --allow-clock-control (inferred, not tried{unsure})"


def _sensor_line(sensor: SensorSpeed, gpu: Examined) -> str:
    label = f"{sensor.name:<17}"
    if not sensor.there or sensor.value is None or sensor.read_s is None or sensor.slowest_read_s is None:
        return f"{label}not reported by this GPU"
    period = "did not change" if sensor.period_s is None else f"updates every {1e3 * sensor.period_s:.3g} ms"
    read = f"a read takes {1e6 * sensor.read_s:.3g} µs (at most {1e6 * sensor.slowest_read_s:.3g})"
    window = ""
    if sensor.name == "power" and gpu.published_window_s is not None:
        window = f"; averages over {1e3 * gpu.published_window_s:g} ms (published for {gpu.architecture}, not measured here)"
    return f"{label}{sensor.value:.6g} {sensor.unit}; {period}; {read}{window}"


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {"says": "not installed: kernels cannot run on a GPU (pip install 'wastenot[torch]')", "uuids": {}}
    if not torch.cuda.is_available():
        return {"says": f"{torch.__version__}: sees no CUDA GPU", "uuids": {}}
    uuids = {str(torch.cuda.get_device_properties(index).uuid): index for index in range(torch.cuda.device_count())}
    return {"says": f"{torch.__version__}, CUDA {torch.version.cuda}: sees {len(uuids)} GPUs", "uuids": uuids}
