"""How much of a step's time the captured operations account for, and what they miss.

A trace of the same step by PyTorch's profiler (Kineto) shows which operation launched each GPU kernel. Going outwards from
the innermost operation that launched a kernel, the first captured one accounts for it:

    autograd::engine::evaluate_function: AddmmBackward0
      AddmmBackward0
        aten::mm            captured: accounts for what it launches
          cudaLaunchKernel -> nvjet_sm90_...
    Torch-Compiled Region
      triton_poi_fused_gelu_0 -> triton_poi_fused_gelu_0      nothing around it was captured: missing

Operations are matched by name, not by shape, since the traced step is the captured one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.workloads.kernel import Workload

GPU_TIME, CPU_TIME = "GPU time", "operations' own CPU time"


@dataclass(frozen=True, slots=True)
class OperationInterval:
    """An operation on the host in a trace, such as ``aten::addmm``, and the ID of the thread that ran it."""

    name: str
    thread: int
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Spent:
    """Time in a trace to account for: of a GPU kernel, copy or fill; without a GPU, an operation's own time.

    Attributes:
        name: name of the GPU kernel or operation.
        launcher: index of the innermost operation that launched it; ``None`` where the trace does not show it.
    """

    name: str
    time_us: float
    launcher: int | None


@dataclass(frozen=True, slots=True)
class Missing:
    """Time that no captured operation accounts for.

    Attributes:
        name: name of the GPU kernel or operation.
        launched_by: the innermost operation that launched it; ``None`` where the trace does not show it.
        times: how often it ran; ``time_us`` is the total.
    """

    name: str
    launched_by: str | None
    times: int
    time_us: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a traced step the captured operations account for.

    Attributes:
        of: which time is meant: :data:`GPU_TIME`, or :data:`CPU_TIME` where nothing ran on a GPU.
        explained_us: the part of ``total_us`` (all of the step's time) that captured operations account for.
        missing: the rest, longest time first.
        absent: captured operations that are not in the trace, because the traced step ran something else instead.
    """

    of: str
    total_us: float
    explained_us: float
    missing: tuple[Missing, ...]
    absent: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """Fraction of the time accounted for; ``None`` where no time was traced."""
        return self.explained_us / self.total_us if self.total_us > 0 else None


def coverage(profile: Any, workload: Workload) -> Coverage:
    """How much of a traced step the operations of a captured workload account for.

    Args:
        profile: a finished :class:`torch.profiler.profile` of the step, with CUDA activities where it runs on a GPU.
        workload: the workload captured from the same step.
    """
    operations, spent, of = records_of(profile)
    return attribute(operations, spent, captured_operations(workload), of=of)


def captured_operations(workload: Workload) -> frozenset[str]:
    """Names that a trace gives to the captured operations of a workload, such as ``aten::addmm``."""
    named = (kernel.call.op.split(".") for kernel in workload.kernels if kernel.call is not None)
    return frozenset("::".join(parts[:2]) for parts in named)


def attribute(
    operations: Sequence[OperationInterval], spent: Iterable[Spent], captured: frozenset[str], *, of: str = GPU_TIME
) -> Coverage:
    """Attribute time to captured operations and the rest.

    An in-place operation counts as captured where its out-of-place form was: autograd accumulates gradients in place unless
    something else, such as a recorder, also holds them.

    Args:
        operations: all that ran on the host, in any order.
        spent: the time to account for.
        captured: names of captured operations.
        of: which time is meant.
    """
    around = enclosing(operations)
    total = explained = 0.0
    missing: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for item in spent:
        total += item.time_us
        index = item.launcher
        while index is not None and not captured & {operations[index].name, operations[index].name.removesuffix("_")}:
            index = around[index]
        if index is not None:
            explained += item.time_us
        else:
            by = None if item.launcher is None else operations[item.launcher].name
            missing[item.name, by].append(item.time_us)
    rest = [Missing(name, by, len(times), sum(times)) for (name, by), times in missing.items()]
    rest.sort(key=lambda entry: (-entry.time_us, entry.name))
    absent = sorted(captured - {operation.name for operation in operations})
    return Coverage(of, total, explained, tuple(rest), tuple(absent))


def enclosing(operations: Sequence[OperationInterval]) -> list[int | None]:
    """For each operation the index of the innermost one that encloses it in its thread; ``None`` for none."""
    around: list[int | None] = [None] * len(operations)
    order = sorted(
        range(len(operations)),
        key=lambda index: (operations[index].thread, operations[index].start_us, -operations[index].end_us, index),
    )
    open_now: list[int] = []
    for index in order:
        current = operations[index]
        while open_now and not _within(current, operations[open_now[-1]]):
            open_now.pop()
        around[index] = open_now[-1] if open_now else None
        open_now.append(index)
    return around


def _within(inner: OperationInterval, outer: OperationInterval) -> bool:
    return inner.thread == outer.thread and outer.start_us <= inner.start_us and inner.end_us <= outer.end_us


def trace(step: Callable[[], object]) -> Any:
    """Run a step once under PyTorch's profiler.

    Args:
        step: the step, already warmed up so that nothing is compiled or allocated for the first time.

    Returns:
        The finished profile.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities, acc_events=True) as finished:  # without a warning that only one cycle is kept
        step()
        if gpu:
            torch.cuda.synchronize()
    return finished


def records_of(profile: Any) -> tuple[list[OperationInterval], list[Spent], str]:
    """Operations on the host and the time to account for.

    Each host event lists the GPU kernels that it launched; GPU events that no host event lists have no launcher. Where
    nothing ran on a GPU, the time to account for is the operations' own CPU time, without that of operations they called.

    Args:
        profile: a finished profile, or anything with its ``events()``.

    Returns:
        The operations, the time spent, and which time it is.
    """
    from torch._C._autograd import DeviceType

    events = list(profile.events())
    host = [event for event in events if event.device_type == DeviceType.CPU and not event.is_async]
    operations = [
        OperationInterval(event.name, event.thread, event.time_range.start, event.time_range.end) for event in host
    ]
    work = [event for event in events if event.device_type != DeviceType.CPU and not _is_annotation(event)]
    if not work:
        own = [Spent(event.name, max(event.self_cpu_time_total, 0.0), index) for index, event in enumerate(host)]
        return operations, [item for item, event in zip(own, host, strict=True) if not _is_annotation(event)], CPU_TIME
    left = Counter((event.name, event.time_range.elapsed_us()) for event in work)
    spent: list[Spent] = []
    for index, event in enumerate(host):
        for kernel in event.kernels:
            key = (kernel.name, kernel.duration)
            if left[key] > 0:
                left[key] -= 1
                spent.append(Spent(kernel.name, kernel.duration, index))
    spent += [Spent(name, time_us, None) for (name, time_us), times in left.items() for _ in range(times)]
    return operations, spent, GPU_TIME


def _is_annotation(event: Any) -> bool:
    """Whether an event only labels a time range."""
    return bool(getattr(event, "is_user_annotation", False)) or "user_annotation" in str(getattr(event, "activity_type", ""))
