"""Kineto traces, as PyTorch's profiler gives them, brought to plain records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from wastenot.capturing.coverage import OperationInterval, Spent

GPU_TIME, CPU_TIME = "GPU time", "operations' own CPU time"


def trace(step: Callable[[], object]) -> Any:
    """Run a step once under PyTorch's profiler.

    Args:
        step: to run; warmed up before, so that nothing is compiled or allocated for the first time.

    Returns:
        The finished profile.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities) as found:
        step()
        if gpu:
            torch.cuda.synchronize()
    return found


def records_of(profile: Any) -> tuple[list[OperationInterval], list[Spent], str]:
    """Operations on the host and the time to explain.

    Each host event lists the GPU kernels that it launched; GPU events that no host event lists have no launcher. Where
    nothing ran on a GPU, the time to explain is what operations themselves took on the CPU, without those they called.

    Args:
        profile: a finished profile, or anything with its ``events()``.

    Returns:
        The operations, the time spent, and what time it is.
    """
    from torch._C._autograd import DeviceType

    events = list(profile.events())
    host = [event for event in events if event.device_type == DeviceType.CPU and not event.is_async]
    operations = [
        OperationInterval(event.name, event.thread, event.time_range.start, event.time_range.end) for event in host
    ]
    work = [event for event in events if event.device_type != DeviceType.CPU and not _is_annotation(event)]
    if not work:
        own = [Spent(event.name, max(event.self_cpu_time_total, 0.0), place) for place, event in enumerate(host)]
        return operations, [item for item, event in zip(own, host, strict=True) if not _is_annotation(event)], CPU_TIME
    left = Counter((event.name, event.time_range.elapsed_us()) for event in work)
    spent: list[Spent] = []
    for place, event in enumerate(host):
        for kernel in event.kernels:
            key = (kernel.name, kernel.duration)
            if left[key] > 0:
                left[key] -= 1
                spent.append(Spent(kernel.name, kernel.duration, place))
    spent += [Spent(name, time_us, None) for (name, time_us), times in left.items() for _ in range(times)]
    return operations, spent, GPU_TIME


def _is_annotation(event: Any) -> bool:
    """Whether an event is a name given to a stretch of time, not work."""
    return bool(getattr(event, "is_user_annotation", False)) or "user_annotation" in str(getattr(event, "activity_type", ""))
