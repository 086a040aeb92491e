"""``with capture() as captured: loss = step(batch)``: what a model runs becomes a workload."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from wastenot.errors import BadInputError, MissingExtraError
from wastenot.workloads.kernel import KernelSpec, Workload


@dataclass(slots=True)
class Captured:
    """What was captured; complete when its context has been left.

    Attributes:
        name: of the workload.
        seen: operations that ran, each as often as it did.
        left_out: why operations are not in the workload: reason, operation, how often.
        notes: what a reader of the workload should know, such as index values that were not there to be kept.
    """

    name: str
    seen: int = 0
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    _kernels: tuple[KernelSpec, ...] | None = None

    @property
    def workload(self) -> Workload:
        """The operations that ran, in order of first execution.

        Raises:
            BadInputError: the context is still open, or nothing ran in it.
        """
        if self._kernels is None:
            raise BadInputError("a capture is complete when its 'with' block has been left; use the workload after it")
        if not self._kernels:
            raise BadInputError(f"'{self.name}': no PyTorch operation ran while it was captured; run the step in the block")
        total = sum(kernel.count for kernel in self._kernels)
        description = f"captured: {total:,} operations, {len(self._kernels):,} different ones"
        return Workload(self.name, self._kernels, description)

    def complete(
        self,
        kernels: tuple[KernelSpec, ...],
        seen: int,
        left_out: Mapping[str, Mapping[str, int]],
        notes: tuple[str, ...],
    ) -> None:
        """Put in what was found."""
        self.seen, self.left_out, self.notes = seen, left_out, notes
        self._kernels = kernels


@contextmanager
def capture(name: str = "workload") -> Iterator[Captured]:
    """Record every operation that PyTorch runs in the block: forward, backward and optimizer.

    Each kernel of the workload is one operation with its shapes, strides and types, and can be run again alone. What a
    compiled model runs outside PyTorch's dispatcher (Triton kernels of ``torch.compile``) is not seen;
    :func:`wastenot.capturing.coverage.coverage` says how much that is. Tensors are read once for each different operation,
    which waits for the GPU: what is captured runs slower than usual. Tensors without data (``FakeTensorMode``) will do.

    Args:
        name: of the workload.

    Yields:
        What is captured; its ``workload`` is there after the block.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    require_torch()
    from wastenot.capturing.recorder import Recorder

    captured = Captured(name)
    recorder = Recorder()
    try:
        with recorder.passes, recorder:
            yield captured
    finally:
        captured.complete(*recorder.result())


def require_torch() -> None:
    """Refuse where PyTorch is not installed.

    Raises:
        MissingExtraError: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("capturing a model needs PyTorch, which is not installed; pip install 'wastenot[torch]'")
