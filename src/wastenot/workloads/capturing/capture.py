"""``with capture() as captured: loss = step(batch)``: the operations that a model runs become a workload."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.core.wording import counted
from wastenot.workloads.capturing.on_cpu import differences_from_cuda
from wastenot.workloads.kernel import KernelSpec, Workload


@dataclass(slots=True)
class Captured:
    """A capture; complete once its context has exited.

    Attributes:
        name: name of the workload.
        seen: number of operations that ran.
        left_out: operations that are not in the workload: by reason, by operation, how often.
        notes: what a reader of the workload should know, such as index values that could not be kept, and how the step
            would differ on CUDA where it was captured on the CPU.
        device: PyTorch's name of the kind of device that it ran on, such as ``cuda``.
    """

    name: str
    seen: int = 0
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    device: str | None = None
    _kernels: tuple[KernelSpec, ...] | None = None

    @property
    def workload(self) -> Workload:
        """The operations that ran, in order of first execution.

        Raises:
            BadInputError: the context is still open, or nothing ran in it.
        """
        if self._kernels is None:
            raise BadInputError("the capture is complete only after its 'with' block; use the workload after it")
        if not self._kernels:
            raise BadInputError(f"'{self.name}': no PyTorch operation ran while it was captured; run the step in the block")
        total = sum(kernel.count for kernel in self._kernels)
        description = f"captured: {counted(total, 'operation')}, {len(self._kernels):,} different ones"
        return Workload(self.name, self._kernels, description, captured_on=self.device)


@contextmanager
def capture(name: str = "workload") -> Iterator[Captured]:
    """Record every operation that PyTorch runs in the block: forward, backward and optimizer.

    Each kernel of the workload is one operation with its shapes, strides and types, and can be replayed alone. What a
    compiled model runs outside PyTorch's dispatcher (Triton kernels of ``torch.compile``) is not recorded;
    :func:`wastenot.workloads.capturing.coverage.coverage` reports how much that is. Tensors are read once for each kind of
    operation, which waits for the GPU, so a captured step runs slower than usual. Tensors without data (``FakeTensorMode``)
    suffice.

        >>> import torch, wastenot as wn
        >>> a = torch.ones(64, 32)
        >>> with wn.capture("tiny") as captured:
        ...     b = torch.relu(a @ a.T)
        >>> [(kernel.label, kernel.count) for kernel in captured.workload.kernels]
        [('mm', 1), ('relu', 1)]

    Args:
        name: name of the workload.

    Yields:
        The capture; its ``workload`` is available after the block.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    require_torch()
    from wastenot.workloads.capturing.recorder import Recorder

    captured = Captured(name)
    recorder = Recorder()
    try:
        with recorder.passes, recorder:
            yield captured
    finally:
        captured._kernels, captured.seen, captured.left_out, captured.notes = recorder.result()
        captured.device = recorder.device
        if captured._kernels:
            captured.notes += differences_from_cuda(captured.workload)


def require_torch() -> None:
    """Raise MissingExtraError where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(f"capturing a model needs PyTorch, which is not installed: {install_line('torch')}")
