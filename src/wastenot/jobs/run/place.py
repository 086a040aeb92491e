"""Where a run of a job takes place: on the CPU, or on GPUs of this machine; and what that adds to the job's terms."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.core.processes import number_in_environment
from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.tables.records import JobTerms

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
from wastenot.devices.torch.devices import current_gpu

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes place.

    Attributes:
        label: what times and powers are kept under: the model, as another card of it does as well.
        gpus: that it runs on, of this machine; none on the CPU.
        machines: that it runs on, all like this one.
    """

    label: str
    gpus: tuple[Device, ...] = ()
    machines: int = 1

    @property
    def max_power_w(self) -> float | None:
        """The greatest power limit of all GPUs together; ``None`` where one does not report it."""
        clocks = [gpu.clocks for gpu in self.gpus]  # whose limits count also where this process may not set them
        limits = [getattr(each, "power_limit_range_w", each.power_limits_w)() for each in clocks]
        known = [float(each[1]) for each in limits if each is not None]
        return self.machines * math.fsum(known) if known and len(known) == len(limits) else None

    @property
    def tells_energy(self) -> bool:
        """Whether what it uses can be measured."""
        return bool(self.gpus) and all(
            gpu.sensors.energy_j() is not None or gpu.sensors.power_w() is not None for gpu in self.gpus
        )


def place_of(device: str | Sequence[str] | None, *, machines: int = 1) -> Place:
    """Where a program runs.

    Args:
        device: ``cpu``, or names of GPUs; by default what PyTorch uses, if the program has imported it, else the CPU.
        machines: that its processes are on, all like this one.

    Raises:
        BadInputError: there is no such device.
        DeviceError: a GPU does not respond.
    """
    torch = sys.modules.get("torch")
    times = "" if machines == 1 else f"{machines} × "
    if device is None and torch is not None and torch.cuda.is_available() and current_gpu(torch) is None:
        return Place(f"{times}{torch.cuda.get_device_name()}"[:255], machines=machines)  # whose energy is not read yet
    names = device_names(device)
    if not names:
        return Place(f"{times}{_cpu_label()}"[:255], machines=machines)
    from wastenot.meters.devices import measurable_devices
    from wastenot.meters.sampler import PROCESS_SAMPLER

    gpus = measurable_devices(names, PROCESS_SAMPLER.get().device)
    labels = [gpu.identity.name if gpu.identity.origin == "simulated" else gpu.identity.model for gpu in gpus]
    counts = {label: labels.count(label) for label in dict.fromkeys(labels)}
    here = " + ".join(label if count == 1 else f"{count} × {label}" for label, count in counts.items())
    return Place((f"{times}({here})" if times else here)[:255], gpus, machines)


def device_names(device: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of the GPUs that a program runs on; none for the CPU.

    Args:
        device: as given by the user.

    Raises:
        BadInputError: the CPU is named beside GPUs.
    """
    if device is not None:
        from wastenot.control.application import parse_devices

        names = parse_devices(device) if isinstance(device, str) else tuple(device)
        if CPU in names and len(names) > 1:
            raise BadInputError(f"`device` {','.join(names)}: names the CPU and GPUs; name only the GPUs")
        return () if names == (CPU,) else names
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ()
    ranks = number_in_environment("LOCAL_WORLD_SIZE", 1)
    if ranks > 1:
        from wastenot.meters.devices import visible_names

        return visible_names()[:ranks]
    name = current_gpu(torch)
    return () if name is None else (name,)


def terms_at(terms: JobTerms, place: Place, eta: float | None, settings: Sequence[Setting]) -> JobTerms:
    """The terms of a job, with what the place of a run adds to them.

    Args:
        terms: as given.
        place: of the run.
        eta: as given; ``None`` for the usual.
        settings: to choose among; empty for none.

    Raises:
        BadInputError: they need energy, or a power limit, that nothing reports there.
    """
    if not place.tells_energy:
        # A weight of time counts on without energies: a trial on a laptop is not to need another program.
        wanted = {
            "eta": None if eta is not None and eta < 1.0 else eta,
            "within_s": terms.within_s,
            "power_budget_w": terms.power_budget_w,
        }
        for what, value in wanted.items():
            if value:
                raise BadInputError(f"`{what}` {value:g}: {no_energy(place)}; for the shortest time, set `eta`=0")
        return replace(terms, eta=0.0, settings=(AUTO,), max_power_w=None)
    eta = 0.5 if eta is None else eta
    power_w = place.max_power_w
    if power_w is None and 0.0 < eta < 1.0 and terms.within_s is None and terms.power_budget_w is None:
        raise BadInputError(
            f"`eta` {eta:g}: {place.label} reports no power limit, which sets the price of time; set `eta`=1 for "
            "energy alone, or 0 for time alone"
        )
    return replace(terms, eta=eta, settings=tuple(settings) or (AUTO,), max_power_w=power_w)


def no_energy(place: Place) -> str:
    """Why energy cannot count where a run takes place, and what to do about it."""
    hint = ""
    if not place.gpus and place.label.startswith(f"{CPU}:"):
        hint = "; for a GPU's, import torch before, or name it: device='nvidia:0'"
    return f"energy is not measured on {place.label}{hint}"


def _cpu_label() -> str:
    """This machine's CPU, by its model."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{CPU}:{model}"
