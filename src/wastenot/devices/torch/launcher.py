"""Runs tasks with PyTorch: on a GPU as CUDA graphs back to back, on a CPU eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wastenot.devices.protocol import Task
from wastenot.errors import CannotRunError, DeviceError
from wastenot.setting import Setting

if TYPE_CHECKING:
    import torch

    from wastenot.devices.torch.run import GpuRun, HostRun


class TorchLauncher:
    """Runs tasks on one device of PyTorch.

    Args:
        device: PyTorch's name of it, such as ``cuda:0`` or ``cpu``.
        seed: of the random data that kernels run on.

    Raises:
        DeviceError: PyTorch is missing, or does not have the device.
    """

    def __init__(self, device: str, *, seed: int = 0) -> None:
        self._device = find_torch_device(device)
        self._seed = seed
        self._stream: torch.cuda.Stream | None = None
        self._refused: set[Task] = set()

    @property
    def device(self) -> torch.device:
        """PyTorch's device."""
        return self._device

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether each kernel has an operation, and none has failed for lack of memory before."""
        from wastenot.operations.by_formula import find_operation

        if task in self._refused:
            return False
        try:
            for kernel, _ in task.steps:
                if kernel.call is None:
                    find_operation(kernel)
        except CannotRunError:
            return False
        return True

    @contextmanager
    def start(self, task: Task) -> Iterator[GpuRun | HostRun]:
        """Run a task back to back until the context is left; then wait for what is queued and free its memory.

        Raises:
            CannotRunError: a kernel has no operation, or the device lacks the memory.
            DeviceError: the device failed.
        """
        from wastenot.devices.torch.run import GpuRun
        from wastenot.operations.by_formula import release_memory

        run = self._begin(task)
        try:
            run.feed()
            if isinstance(run, GpuRun):
                run.feed_from_a_thread()
            yield run
        finally:
            try:
                run.close()
            finally:
                release_memory(self._device)

    def _begin(self, task: Task) -> GpuRun | HostRun:
        from wastenot.operations.by_formula import out_of_memory, release_memory

        try:
            return self._begin_on_host(task) if self._device.type == "cpu" else self._begin_on_gpu(task)
        except CannotRunError as error:
            reason = str(error)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise DeviceError(f"{task.name}: failed on {self._device}: {_first_line(error)}") from None
            reason = ""
        # The error is gone by now, and with it the frames that held the buffers.
        release_memory(self._device)
        self._refused.add(task)
        if reason:
            raise CannotRunError(reason)
        need = sum(kernel.bytes_moved for kernel, _ in task.steps) / 1e9
        raise CannotRunError(
            f"{task.name}: its data, about {need:,.3g} GB and what the operations need besides, do not fit the "
            f"{self._free_bytes() / 1e9:,.3g} GB free on {self._device}; take a smaller batch or sequence"
        )

    def _begin_on_host(self, task: Task) -> HostRun:
        from wastenot.devices.torch.program import Program
        from wastenot.devices.torch.run import HostRun

        program = Program(task, str(self._device), seed=self._seed)
        return HostRun(program.run, program.notes)

    def _begin_on_gpu(self, task: Task) -> GpuRun:
        import torch

        from wastenot.devices.torch.cuda_graph import plan_launch
        from wastenot.devices.torch.program import Program
        from wastenot.devices.torch.run import GpuRun

        with torch.cuda.device(self._device):
            self._stream = self._stream or torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            l2_bytes = torch.cuda.get_device_properties(self._device).L2_cache_size
            program = Program(task, str(self._device), l2_bytes=l2_bytes, free_bytes=self._free_bytes(), seed=self._seed)
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            return GpuRun(plan_launch(program, self._stream), self._stream, program.notes)

    def _free_bytes(self) -> int:
        import torch

        return torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else 0


def torch_device(uuid: str) -> str:
    """PyTorch's name of the GPU with a UUID; it numbers GPUs in another order than NVML.

    Args:
        uuid: as NVML tells it, such as ``GPU-8f2b...``.

    Raises:
        DeviceError: PyTorch is missing, or does not see that GPU.
    """
    find_torch_device("cuda:0")
    import torch

    wanted = uuid.removeprefix("GPU-").lower()
    for index in range(torch.cuda.device_count()):
        if str(torch.cuda.get_device_properties(index).uuid).removeprefix("GPU-").lower() == wanted:
            return f"cuda:{index}"
    raise DeviceError(f"{uuid}: PyTorch does not see this GPU; is it left out of CUDA_VISIBLE_DEVICES?")


def find_torch_device(name: str) -> torch.device:
    """PyTorch's device of a name.

    Raises:
        DeviceError: PyTorch is missing, or does not have it; says which it has.
    """
    try:
        import torch
    except ImportError:
        raise DeviceError("running kernels needs PyTorch, which is not installed: pip install 'wastenot[torch]'") from None
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in {"cpu", "cuda"}:
        raise DeviceError(f"device '{name}': kernels run on cpu and cuda:0, cuda:1, ...")
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        why = (
            "finds no GPU: check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES"
            if built
            else "was built without CUDA: install a build with it, see pytorch.org"
        )
        raise DeviceError(f"device '{name}': PyTorch {torch.__version__} {why}")
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise DeviceError(f"device '{name}': PyTorch sees {count} GPU{'s' if count > 1 else ''}, cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", device.index or 0)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
