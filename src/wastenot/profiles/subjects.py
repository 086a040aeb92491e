"""What can be profiled: single kernels and kernels of workloads, by name, and functions.

gemm:8192        gemv:4096x40         a single kernel; one that runs 40 times
gpt3-xl:softmax  gpt3-xl:softmaxx40   a kernel of a model, or of a captured workload (mine.json:softmax)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import nearest, suggestion
from wastenot.meters.tasks import find_tasks
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.named import kernel_named
from wastenot.workloads.primitives import PRIMITIVES, example_of, is_primitive, primitive
from wastenot.workloads.shape import Shape

Function = Callable[[], object]
Subject = str | KernelSpec | Function
"""A kernel by name, an analytical kernel, or a function that queues work on a GPU."""

_TIMES = re.compile(r"(.+?)x([1-9]\d*)")
_MAX_TIMES = 100_000


class Subjects:
    """Finds kernels for one profile, and keeps the functions among them.

    Args:
        device: name of the device they are to run on.
        shape: how models are run.
    """

    def __init__(self, device: str, shape: Shape | None = None) -> None:
        self._device, self._shape = device, shape
        self._kernel_of: dict[Function, KernelSpec] = {}
        self.functions: dict[str, Function] = {}

    def one(self, subject: Subject) -> KernelSpec:
        """The kernel to profile.

        Raises:
            BadInputError: there is none of that name, or the name has a number of times.
        """
        kernel, times = self._resolve(subject)
        if times != 1:
            raise BadInputError(
                f"kernel '{subject}': leave out the x{times}; the kernel is profiled once, and only those before it may run "
                "several times"
            )
        return kernel

    def several(self, given: Iterable[Subject | tuple[Subject, int]]) -> tuple[tuple[KernelSpec, int], ...]:
        """Kernels that run before it, each with how often.

        Raises:
            BadInputError: one is unknown, or the number of times is out of range.
        """
        kernels = []
        for item in given:
            subject, times = item if isinstance(item, tuple) else (item, 1)
            kernel, named = self._resolve(subject)
            if not 1 <= times * named <= _MAX_TIMES:
                raise BadInputError(f"kernel '{kernel.name}': {times * named} times; must be 1 to {_MAX_TIMES:,}")
            kernels.append((kernel, times * named))
        return tuple(kernels)

    def _resolve(self, subject: Subject) -> tuple[KernelSpec, int]:
        if isinstance(subject, KernelSpec):
            return subject, 1
        if isinstance(subject, str):
            return primitive(subject) if is_primitive(subject) else self._in_workload(subject)
        if subject not in self._kernel_of:
            name = str(getattr(subject, "__name__", type(subject).__name__)).strip("<>")
            taken = sum(known == name or known.startswith(f"{name}-") for known in self.functions)
            name = f"{name}-{taken + 1}" if taken else name
            self.functions[name] = subject
            self._kernel_of[subject] = KernelSpec(name, "function", "other", (), 0.0, 0.0, 0.0, "", None, 1)
        return self._kernel_of[subject], 1

    def _in_workload(self, text: str) -> tuple[KernelSpec, int]:
        workload, name = _split(text)
        if not name:
            forms = f"{', '.join(f'{kind}:SIZE' for kind in PRIMITIVES)} or WORKLOAD:KERNEL"
            operation, kernel = nearest(workload, PRIMITIVES), kernel_named(workload)
            example = example_of(operation) if operation is not None else kernel
            meant = "w" if example is None else f"did you mean '{example}'? W"
            raise BadInputError(f"kernel '{text}': {meant}rite {forms}, such as gemm:8192 or gpt3-xl:softmax")
        try:
            units = find_tasks(workload, self._device, self._shape)
        except BadInputError as error:
            operation = nearest(workload, PRIMITIVES)
            if operation is None:
                raise
            raise BadInputError(f"kernel '{text}': did you mean '{operation}:{name}'?") from error
        kernels = {task.name: task.steps[0][0] for task in units.tasks}
        if name in kernels:
            return kernels[name], 1
        match = _TIMES.fullmatch(name)
        if match and match[1] in kernels:
            return kernels[match[1]], int(match[2])
        raise BadInputError(f"kernel '{text}': workload '{units.name}' has no '{name}'; {suggestion(name, kernels)}")


def _split(text: str) -> tuple[str, str]:
    """Workload and kernel; either may contain colons, but the name of a file ends in ``.json``."""
    file, ending, kernel = text.partition(".json:")
    if ending:
        return f"{file}.json", kernel
    workload, _, kernel = text.partition(":")
    return workload, kernel
