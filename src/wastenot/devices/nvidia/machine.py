"""What a machine has for measuring GPUs, as far as is known without changing or loading anything."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wastenot.core.errors import WastenotError
from wastenot.devices.nvidia.control import Control, control_that_works
from wastenot.devices.nvidia.device import nvidia_names
from wastenot.devices.nvidia.examine import Examined, Rights, examine, rights_here
from wastenot.devices.nvidia.journal import Journal, journals
from wastenot.devices.nvidia.nvml import Nvml

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # vendor; class of VGA and 3D controllers


@dataclass(frozen=True, slots=True)
class FoundTorch:
    """PyTorch on this machine.

    Attributes:
        version: ``None`` where it is not installed.
        cuda: version of CUDA that it was built for; ``None`` where it was built without, or was not asked.
        indices: by UUID, the index of each GPU that it sees.
        asked: whether it was imported, which takes seconds and is left out where there is no GPU.
    """

    version: str | None
    cuda: str | None
    indices: dict[str, int]
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found.

    Attributes:
        driver: version of the driver; ``None`` where NVML does not answer.
        problem: why it does not.
        binding: whether the Python binding of NVML is installed.
        card: whether the system lists an NVIDIA GPU, whatever the driver says.
        rights: of this process.
        control: how clocks can be set.
        gpus: that NVML lists.
        torch: what PyTorch sees; only its version is known where there is no GPU.
        journals: of clocks that wastenot changed.
    """

    driver: str | None
    problem: str | None
    binding: bool
    card: bool
    rights: Rights
    control: Control
    gpus: tuple[Examined, ...]
    torch: FoundTorch
    journals: tuple[Journal, ...]


def look() -> tuple[Machine, Nvml | None]:
    """Look at this machine; imports PyTorch only where there is a GPU for it to see.

    Returns:
        What was found, and access to NVML where it answers.
    """
    gpus: list[Examined] = []
    nvml = driver = problem = None
    torch = FoundTorch(_torch_version(), None, {}, asked=False)
    try:
        nvml = Nvml()
        driver = str(nvml.call("nvmlSystemGetDriverVersion"))
        names = nvidia_names(nvml)
        torch = _torch() if names else torch
        for index, name in enumerate(names):
            gpus.append(examine(nvml, name, nvml.call("nvmlDeviceGetHandleByIndex", index), torch.indices))
    except WastenotError as error:
        problem = str(error)
    rights = rights_here()
    control = control_that_works(rights)
    return Machine(driver, problem, _has_binding(), _has_card(), rights, control, tuple(gpus), torch, journals()), nvml


def _has_binding() -> bool:
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


def _torch() -> FoundTorch:
    try:
        import torch
    except ImportError:
        return FoundTorch(None, None, {})
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    indices = {str(torch.cuda.get_device_properties(index).uuid): index for index in range(count)}
    return FoundTorch(torch.__version__, torch.version.cuda, indices)


def _torch_version() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _has_card() -> bool:
    """Whether the PCI bus has an NVIDIA GPU; false where the system does not say."""
    try:
        return any(
            (device / "vendor").read_text().strip() == _NVIDIA and (device / "class").read_text().startswith(_DISPLAY)
            for device in _PCI.iterdir()
        )
    except OSError:
        return False
