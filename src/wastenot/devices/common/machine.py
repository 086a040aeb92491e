"""What a machine has for measuring GPUs, as far as is known without changing or loading anything."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from wastenot.core.errors import WastenotError
from wastenot.core.vendors import Vendor, with_drivers
from wastenot.devices.common.control import Control, control_that_works
from wastenot.devices.common.gpu_driver import Examined, driver_of
from wastenot.devices.common.journal import Journal, journals
from wastenot.devices.common.rights import Rights, rights_here

_PCI = Path("/sys/bus/pci/devices")
_DISPLAY = "0x03"  # class of VGA and 3D controllers


@dataclass(frozen=True, slots=True)
class FoundTorch:
    """PyTorch on this machine.

    Attributes:
        version: ``None`` where it is not installed.
        built_for: ``CUDA 12.8`` or ``HIP 6.2``; ``None`` where it was built without either, or was not asked.
        indices: by UUID, the index of each GPU that it sees.
        asked: whether it was imported, which takes seconds and is left out where there is no GPU.
    """

    version: str | None
    built_for: str | None
    indices: dict[str, int]
    asked: bool = True


@dataclass(frozen=True, slots=True)
class FoundDriver:
    """A vendor's driver on this machine, and the GPUs that it lists.

    Attributes:
        vendor: whose it is.
        version: ``None`` where it does not answer.
        problem: why it does not.
        binding: whether its Python binding is installed.
        card: whether the system lists a GPU of the vendor, whatever the driver says.
        gpus: that it lists.
    """

    vendor: Vendor
    version: str | None
    problem: str | None
    binding: bool
    card: bool
    gpus: tuple[Examined, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found.

    Attributes:
        drivers: of all vendors.
        rights: of this process.
        control: how clocks can be set.
        torch: what PyTorch sees; only its version is known where there is no GPU.
        journals: of clocks that wastenot changed.
    """

    drivers: tuple[FoundDriver, ...]
    rights: Rights
    control: Control
    torch: FoundTorch
    journals: tuple[Journal, ...]

    @property
    def gpus(self) -> tuple[Examined, ...]:
        """Those that the drivers list."""
        return tuple(gpu for driver in self.drivers for gpu in driver.gpus)

    @property
    def driver(self) -> FoundDriver:
        """The driver that matters most: with GPUs, else one that answers, else of a card that is there, else the first."""
        return max(self.drivers, key=lambda each: (len(each.gpus) > 0, each.version is not None, each.card))


def look() -> Machine:
    """Look at this machine; imports PyTorch only where there is a GPU for it to see."""
    torch = FoundTorch(_torch_version(), None, {}, asked=False)
    found = []
    for vendor in with_drivers():
        driver, gpus, answers, problem = driver_of(vendor), list[Examined](), None, None
        try:
            answers, count = driver.version(), driver.count()
            torch = _torch() if count and not torch.asked else torch
            for index in range(count):
                gpus.append(driver.examine(index, torch.indices))
        except WastenotError as error:
            problem = str(error)
        binding = find_spec(vendor.binding[0]) is not None
        found.append(FoundDriver(vendor, answers, problem, binding, _has_card(vendor.pci_id), tuple(gpus)))
    rights = rights_here()
    return Machine(tuple(found), rights, control_that_works(rights), torch, journals())


def _torch() -> FoundTorch:
    try:
        import torch
    except ImportError:
        return FoundTorch(None, None, {})
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    indices = {str(torch.cuda.get_device_properties(index).uuid).lower(): index for index in range(count)}
    kind = "CUDA" if torch.version.cuda else "HIP"
    built_for = torch.version.cuda or torch.version.hip
    return FoundTorch(torch.__version__, built_for and f"{kind} {built_for}", indices)


def _torch_version() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _has_card(pci_id: str) -> bool:
    """Whether the PCI bus has a GPU of a vendor; false where the system does not say."""
    try:
        return any(
            (device / "vendor").read_text().strip() == pci_id and (device / "class").read_text().startswith(_DISPLAY)
            for device in _PCI.iterdir()
        )
    except OSError:
        return False
