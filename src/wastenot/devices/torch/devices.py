"""PyTorch's devices by name and by UUID, with a clear error where PyTorch or the device is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wastenot.core.errors import BadInputError, DeviceError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.core.vendors import bare_unique_id, with_drivers

if TYPE_CHECKING:
    import torch


def torch_device(uuid: str) -> str:
    """PyTorch's name of the GPU with a UUID; PyTorch numbers GPUs in another order than drivers.

    Args:
        uuid: as the driver reports it, such as ``GPU-8f2b...``.

    Raises:
        MissingExtraError: PyTorch is not installed, or was built without CUDA.
        DeviceError: PyTorch does not see that GPU.
    """
    find_torch_device("cuda:0")
    import torch

    for index in range(torch.cuda.device_count()):
        if bare_unique_id(str(torch.cuda.get_device_properties(index).uuid)) == bare_unique_id(uuid):
            return f"cuda:{index}"
    raise DeviceError(f"{uuid}: PyTorch does not see this GPU; does CUDA_VISIBLE_DEVICES exclude it?")


def current_gpu(torch: Any) -> str | None:
    """Name such as ``nvidia:GPU-8f2b...`` of the GPU that PyTorch uses, or would; ``None`` where no driver is known.

    Args:
        torch: PyTorch, which sees a GPU.
    """
    vendor = next((each for each in with_drivers() if getattr(torch.version, each.torch_build, None)), None)
    if vendor is None:
        return None
    index = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    return f"{vendor.name}:{vendor.id_prefix}{torch.cuda.get_device_properties(index).uuid}"


def find_torch_device(name: str) -> torch.device:
    """PyTorch's device of a name.

    Raises:
        MissingExtraError: PyTorch is not installed, or was built without CUDA.
        BadInputError: there is no such device; says which there are.
        DeviceError: PyTorch finds no GPU.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError(f"running kernels needs PyTorch, which is not installed: {install_line('torch')}") from None
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in {"cpu", "cuda"}:
        raise BadInputError(f"device '{name}': kernels run on cpu and cuda:0, cuda:1, ...")
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        version = f"device '{name}': PyTorch {torch.__version__}"
        if not (torch.version.cuda or torch.version.hip):
            raise MissingExtraError(f"{version} was built without CUDA: install a build with it, see pytorch.org")
        tools = " or ".join(each.tool for each in with_drivers())
        raise DeviceError(f"{version} finds no GPU: check the driver with {tools}, and CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise BadInputError(
            f"device '{name}': PyTorch sees {count} GPU{'s' if count > 1 else ''}, cuda:0 to cuda:{count - 1}"
        )
    return torch.device("cuda", device.index or 0)
