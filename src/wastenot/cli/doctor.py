"""``wastenot doctor``: what this machine can do, beginning with a verdict and the next command."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wastenot.core.errors import WastenotError
from wastenot.core.vendors import vendor_named
from wastenot.terminal import quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wastenot.devices.common.gpu_driver import Examined
    from wastenot.devices.common.journal import Journal
    from wastenot.devices.common.machine import FoundTorch, Machine
    from wastenot.devices.protocol import Device
    from wastenot.devices.torch.cycle_probe import CycleProbe
    from wastenot.meters.sensors.probe import SensorSpeed

_COLUMNS = 80
_LABEL = 20  # columns of what stands left of a line
_ONE_CLOCK = 1e-3  # relative, within which multiprocessors count as running at one clock


def doctor(
    seconds: Annotated[float, option("Time to observe each sensor.", "S", parser=quantities.duration)] = 1.5,
    as_json: JsonOption = False,
) -> None:
    """Check what this machine can do, and suggest what to run next.

    Lists its GPUs, their sensors and how fast they are, whether clocks can be set and, if not, which permission to ask for.
    """
    from wastenot.cli.first_step import first_step
    from wastenot.devices.common.gpu_driver import driver_of
    from wastenot.devices.common.machine import look
    from wastenot.devices.simulated.basis import basis_of, preset_names
    from wastenot.terminal.output import print_json

    machine = look()
    step = first_step(machine)
    simulated = {f"sim:{name}": basis_of(f"sim:{name}") for name in preset_names()}
    if not as_json:
        typer.echo("\n".join(textwrap.wrap(step.verdict, _COLUMNS)))
        typer.echo(f"Next: {step.command}")
        typer.echo("Your own program: wastenot monitor -- python train.py; its kernels: wastenot")
        typer.echo("kernel capture --help; your servers: wastenot serve --help\n")
        _print_lines(_of_machine(machine))
    sensed = []
    for gpu in machine.gpus:
        vendor = vendor_named(gpu.name)
        found = _sense(None if gpu.mig or vendor is None else driver_of(vendor).open_gpu(gpu.name), seconds)
        sensed.append((gpu, *found))
        if not as_json:
            _print_lines(_of_gpu(gpu, machine, *found))
    if as_json:
        print_json("doctor", {"verdict": step.verdict, "next": step.command} | _document(machine, sensed, simulated))
        return
    typer.echo()
    _print_lines((name, f"simulated: {basis}") for name, basis in simulated.items())


def _sense(device: Device | None, seconds: float) -> tuple[tuple[SensorSpeed, ...], CycleProbe | str]:
    """How fast the sensors of a GPU are, and its clock by counting cycles or why that cannot be had."""
    from wastenot.devices.torch.devices import torch_device
    from wastenot.meters.sensors.probe import probe_sensors

    if device is None:
        return (), "MIG is enabled"
    sensors = probe_sensors(device, seconds)
    try:
        name = torch_device(device.identity.unique_id)
        from wastenot.devices.torch.cycle_probe import probe_cycles

        return sensors, probe_cycles(name, lambda: device.sensors.clocks().core_mhz)
    except WastenotError as error:
        return sensors, str(error)


def _document(
    machine: Machine, sensed: list[tuple[Examined, tuple[SensorSpeed, ...], CycleProbe | str]], simulated: dict[str, str]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "driver": machine.driver.version, "problem": machine.driver.problem,
        "rights": asdict(machine.rights) | {"likely": machine.rights.likely},
        "clock_control": asdict(machine.control),
        "gpus": [
            asdict(gpu) | {"sensors": [asdict(sensor) for sensor in sensors], "cycle_clock": _cycle_document(cycles)}
            for gpu, sensors, cycles in sensed
        ],
        "torch": {"says": _about_torch(machine.torch), "uuids": machine.torch.indices}, "simulated": simulated,
        "journals": [
            {"gpu": journal.uuid, "process": journal.owner, "alive": journal.owner_alive, "file": str(journal.path)}
            for journal in machine.journals
        ],
    }  # fmt: skip


def _print_lines(lines: Iterator[tuple[str, str]]) -> None:
    """Lines of a label and a text, which continues below itself where it is longer than a terminal is wide."""
    for label, text in lines:
        if not text or len(text) <= _COLUMNS - _LABEL:  # as it is: columns of a table stay where they are
            typer.echo(f"{label:<{_LABEL}}{text}".rstrip())
            continue
        indent = " " * _LABEL
        wrapped = textwrap.wrap(
            text, _COLUMNS, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        wrapped[0] = f"{label:<{_LABEL}}" + wrapped[0][_LABEL:]
        typer.echo("\n".join(wrapped))


def _of_machine(machine: Machine) -> Iterator[tuple[str, str]]:
    rights = machine.rights
    for driver in machine.drivers:
        if driver.gpus or driver is machine.driver:
            yield "driver", (driver.version or "none") + (f": {driver.problem}" if driver.problem else "")
    who = "root" if rights.root else "an ordinary user"
    powers = {True: "with CAP_SYS_ADMIN", False: "without CAP_SYS_ADMIN", None: "capabilities unknown"}[rights.sys_admin]
    yield "user", f"{who}, {powers}; {rights.container or 'no'} container"
    yield "set clocks", _about_control(machine)
    yield "PyTorch", _about_torch(machine.torch)
    for journal in machine.journals:
        yield "journal", _about_journal(journal)
    for uuid, holder in machine.control.held.items():
        if uuid not in {journal.uuid for journal in machine.journals}:
            yield "lease", f"{holder} controls the clocks of {uuid}"


def _about_control(machine: Machine) -> str:
    from wastenot.devices.common.daemon_protocol import socket_path

    control = machine.control
    if machine.rights.forbidden is not None:
        return f"forbidden: {machine.rights.forbidden}"
    if control.way == "direct":
        return "directly, with the rights of this process (inferred)"
    if control.way == "daemon":
        return f"through wastenotd ({socket_path()}), {len(control.allowed)} GPU{'s' * (len(control.allowed) > 1)}"
    return f"not on this machine: {control.missing}"


def _about_torch(torch: FoundTorch) -> str:
    if torch.version is None:
        from wastenot.core.install import install_line

        return f"not installed: kernels cannot run on a GPU ({install_line('torch')})"
    if not torch.asked:
        return f"{torch.version}; it sees no GPU"
    built = torch.built_for or "built without CUDA"
    count = len(torch.indices)
    return f"{torch.version}, {built}: sees {f'{count} GPU' + 's' * (count > 1) if count else 'no GPU'}"


def _about_journal(journal: Journal) -> str:
    if journal.owner_alive and journal.failed is not None:
        return f"clocks of {journal.uuid} could not be restored yet ({journal.failed}); {journal.holder} had them"
    if journal.owner_alive:
        return f"{journal.holder} controls the clocks of {journal.uuid}"
    if journal.unreadable is not None:
        return (
            f"clocks of {journal.uuid} may be changed; what they were is not known ({journal.unreadable}): {journal.remedy}"
        )
    return f"clocks of {journal.uuid} were left changed by {journal.holder}, which is dead: {journal.remedy}"


def _of_gpu(
    gpu: Examined, machine: Machine, sensors: tuple[SensorSpeed, ...], cycles: CycleProbe | str
) -> Iterator[tuple[str, str]]:
    yield "", ""
    yield gpu.name, f"{gpu.model}, {gpu.architecture or 'architecture unknown'}, {gpu.uuid}"
    if gpu.mig:
        yield "  MIG", "on: power and clocks of a slice cannot be measured separately; wastenot needs the whole GPU"
        return
    for memory, (low, high, number) in sorted(gpu.clocks.items()):
        yield "  clocks", f"memory {memory:g} MHz with core {low:g} to {high:g} MHz ({number} clocks)"
    if gpu.power_limit_w is not None and gpu.power_limits_w is not None:
        low, high = gpu.power_limits_w
        yield "  power limit", f"{gpu.power_limit_w:g} W, range {low:g} to {high:g} W"
    if gpu.profiles is not None:
        yield "  profiles", ", ".join(gpu.profiles.available)
        states = (("requested", gpu.profiles.requested), ("enforced", gpu.profiles.enforced))
        yield "", "; ".join(f"{state}: {', '.join(names) or 'none'}" for state, names in states)
    yield "  in PyTorch", "not visible to PyTorch" if gpu.torch_index is None else f"cuda:{gpu.torch_index}"
    settable = [("core clock", bool(gpu.clocks)), ("memory clock", gpu.memory_clock_settable), ("power limit", True)]
    for what, can in (*settable, ("profile", gpu.profiles is not None)):
        yield f"  set {what}", _may(can, gpu, machine)
    yield "  sensor", f"{'reading':<13}{'changes every':<16}time per read (max)"
    for sensor in sensors:
        yield f"  {sensor.name}", _about_sensor(sensor)
    if gpu.published_window_s is not None:
        window = f"{1e3 * gpu.published_window_s:g} ms"
        yield "  power window", f"power is a mean over {window} (published for {gpu.architecture}, not measured)"
    yield "  cycle clock", _about_cycles(cycles)
    awake = _kept_awake(gpu, sensors)
    if awake is not None:
        yield "  idle waste", awake


def _kept_awake(gpu: Examined, sensors: tuple[SensorSpeed, ...]) -> str | None:
    """What keeps a GPU that computes nothing from its resting clocks; ``None`` where nothing does, as far as is known."""
    values = {sensor.name: sensor.value for sensor in sensors}
    core_mhz, power_w = values["core clock"], values["power"]
    lowest_mhz = min((low for low, _, _ in gpu.clocks.values()), default=None)
    if gpu.busy is not False or not gpu.held_by or core_mhz is None or power_w is None or lowest_mhz is None:
        return None
    if core_mhz <= lowest_mhz:
        return None
    names = ", ".join(f"process {process} ({name or 'not visible from here'})" for process, name in gpu.held_by.items())
    return (
        f"{power_w:.0f} W at {core_mhz:g} MHz while nothing computes: it is held open by {names}, and would rest at "
        f"{lowest_mhz:g} MHz or below"
    )


def _may(can: bool | None, gpu: Examined, machine: Machine) -> str:
    rights, control = machine.rights, machine.control
    if can is False:
        return "no: the GPU offers no choice"
    unsure = "; on this architecture drivers often refuse it" if can is None else ""
    if control.way == "daemon" and rights.forbidden is None:
        if gpu.uuid not in control.allowed:
            return "no: the policy of wastenotd does not allow it"
        return f"with --allow-clock-control, as far as the policy of wastenotd allows (inferred{unsure})"
    if not rights.likely:
        return f"probably not (inferred): ask for {rights.to_ask_for}"
    if rights.forbidden:
        return f"not now: {rights.forbidden}; otherwise probably yes (inferred{unsure})"
    return f"probably yes, with --allow-clock-control (inferred{unsure})"


def _about_sensor(sensor: SensorSpeed) -> str:
    if not sensor.there or sensor.value is None or sensor.read_s is None or sensor.slowest_read_s is None:
        return "not reported by this GPU"
    reading = f"{sensor.value:.6g} {sensor.unit}"
    period = "did not change" if sensor.period_s is None else f"{1e3 * sensor.period_s:.3g} ms"
    return f"{reading:<13}{period:<16}{_micros(sensor.read_s)} µs ({_micros(sensor.slowest_read_s)})"


def _micros(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f}" if seconds >= 1e-4 else f"{1e6 * seconds:.3g}"


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
    driver = "the driver reports none to compare with"
    if probe.difference is not None:
        driver = f"the driver says {probe.driver_mhz:g} MHz ({100 * probe.difference:+.2g} %)"
    return (
        f"{probe.core_mhz:.6g} MHz by counting cycles while one thread spins; {driver}; {together}; the timer ticks every "
        f"{1e9 * probe.resolution_s:.3g} ns; a stamp takes {1e6 * probe.cost_s:.2g} µs of the stream"
    )
