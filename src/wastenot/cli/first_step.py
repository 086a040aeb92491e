"""What a machine is good for, in a sentence, and the command to type next."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wastenot.core.install import install_line, installer

if TYPE_CHECKING:
    from wastenot.devices.common.gpu_driver import Examined
    from wastenot.devices.common.machine import Machine

DEMO = "wastenot demo"
_WORKLOAD = "gpt3-xl"


@dataclass(frozen=True, slots=True)
class FirstStep:
    """The verdict on a machine.

    Attributes:
        verdict: what can be done here, and what is in the way of more.
        command: to type next.
    """

    verdict: str
    command: str


def first_step(machine: Machine) -> FirstStep:
    """What can be done on a machine, and the next command; what stands in the way comes first."""
    left = [journal for journal in machine.journals if journal.restorable]
    if left:
        count = "a GPU" if len(left) == 1 else f"{len(left)} GPUs"
        reset = "wastenot device reset"
        if machine.rights.forbidden is not None:
            reset = f"env -u WASTENOT_READ_ONLY {reset}"
        return FirstStep(f"A run of wastenot was killed and left the clocks of {count} changed.", reset)
    if not machine.gpus:
        return _without_gpu(machine)
    here = _named(machine.gpus)
    whole = [gpu for gpu in machine.gpus if not gpu.mig]
    if not whole:
        return FirstStep(
            f"{here}, cut into slices (MIG), whose power and clocks cannot be measured: ask for a whole GPU. Until "
            "then, everything works on simulated GPUs.",
            DEMO,
        )
    seen = [gpu for gpu in whole if gpu.torch_index is not None]
    if not seen:
        return _without_torch(machine, here)
    journaled = {journal.uuid: journal.holder for journal in machine.journals if journal.owner_alive}
    held = {**machine.control.held, **journaled}
    free = [gpu for gpu in seen if gpu.uuid not in held]
    if not free:
        owner = held[seen[0].uuid]
        return FirstStep(
            f"{here}, whose clocks are controlled by {owner}: wait until it is done.",
            f"ps -o pid,etime,args -p {owner.process}",
        )
    return _with_gpu(machine, here, free[0])


def _without_gpu(machine: Machine) -> FirstStep:
    simulated = "everything works on simulated GPUs"
    driver = machine.driver
    vendor = driver.vendor
    if driver.version is not None and driver.problem is not None:
        return FirstStep(
            f"The driver is installed, but finds no GPU: {driver.problem}. Until it is, {simulated}.", vendor.tool
        )
    an = "An" if vendor.label[0] in "AEIOUN" else "A"
    a_gpu = f"{an} {vendor.label} GPU is in this machine, but its"
    if driver.card and not driver.binding:
        return FirstStep(
            f"{a_gpu} Python binding ({vendor.binding[1]}) is not installed.", install_line(vendor.name, "torch")
        )
    if driver.card:
        where = f", or this container was started without it ({vendor.container})" if machine.rights.container else ""
        return FirstStep(f"{a_gpu} driver does not answer{where}. Until it does, {simulated}.", vendor.tool)
    labels = " or ".join(each.vendor.label for each in machine.drivers)
    return FirstStep(f"No {labels} GPU here: {simulated}.", DEMO)


def _without_torch(machine: Machine, here: str) -> FirstStep:
    torch, visible = machine.torch, machine.driver.vendor.visible
    if torch.version is None:
        return FirstStep(f"{here}, but PyTorch is not installed, which runs the kernels.", install_line("torch"))
    if torch.built_for is None:
        return FirstStep(
            f"{here}, but PyTorch {torch.version} was built without CUDA and cannot run kernels on it.",
            f"{installer()} --force-reinstall torch",
        )
    if visible in os.environ:
        return FirstStep(
            f"{here}, but PyTorch does not see it: {visible}={os.environ[visible]} leaves it out.",
            f"env -u {visible} wastenot doctor",
        )
    return FirstStep(
        f"{here}, but PyTorch {torch.version} ({torch.built_for}) does not see it; the driver is {machine.driver.version}. "
        "The next command says why.",
        'python -c "import torch; torch.cuda.init()"',
    )


def _with_gpu(machine: Machine, here: str, gpu: Examined) -> FirstStep:
    rights = machine.rights
    on = f"{_WORKLOAD} --device {gpu.name}"
    natural = f"wastenot kernel natural {on}"
    if not gpu.clocks:
        return FirstStep(f"{here}, which has no clocks to choose from: measure without setting any.", natural)
    through_daemon = machine.control.way == "daemon" and gpu.uuid in machine.control.allowed
    if not rights.likely and not through_daemon:
        return FirstStep(f"{here}: clocks can be read but not set here, so measure without setting any.", natural)
    if rights.forbidden is not None:
        return FirstStep(
            f"{here}: clocks can be read but not set, since {rights.forbidden}; measure without setting any.", natural
        )
    how = "through wastenotd" if through_daemon else "probably (root; not tried)"
    return FirstStep(
        f"{here}: its clocks can be set, {how}. Afterwards they are reset to the driver's defaults.",
        f"wastenot kernel sweep {on} --study {_WORKLOAD}.db --allow-clock-control --dry-run",
    )


def _named(gpus: tuple[Examined, ...]) -> str:
    """How many GPUs of which models, such as ``One NVIDIA H200``."""
    models = Counter(gpu.model for gpu in gpus)
    if len(gpus) == 1:
        return f"One {gpus[0].model}"
    return ", ".join(f"{count} × {model}" for model, count in models.items())
