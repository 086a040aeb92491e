"""Timelines with PyTorch: groups of calls as CUDA graphs on one stream, with a stamp of the cycle counters between them.

host     queue ▮│▮│▮│▮│▮│  at most 60 ms ahead  ▮│  ▮│  ▮│
stream         ▮│▮│▮│▮│·│▮│▯▯▯│▯▯▯│▯▯▯│·│▯▯▯│▯▯▯│
stamps          ↑ ↑ ↑ ↑ ↑ ↑   ↑   ↑   ↑ ↑   ↑   ↑      time and cycles of each group

Under tensor load a chip may skip cycles: it counts fewer than its clock has, from the start of such a kernel to its end. So
now and then a look follows a group: a few microseconds (·) in which nothing runs but one spinning thread, whose cycles are
those of the clock in effect.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError, CannotRunError, DeviceError, first_line
from wastenot.devices.instrument import RoundTrip
from wastenot.devices.protocol import Task
from wastenot.devices.timeline import REST, Data, Phase, Subject, Timeline
from wastenot.devices.torch.cycle_clock import LEAST_SKIPPED, LOOK_CYCLES, MOST_SKIPPED, CycleStamps
from wastenot.devices.torch.devices import find_torch_device
from wastenot.devices.torch.launcher import Program
from wastenot.devices.torch.task_run import Launch, gpu_failed, launch_of
from wastenot.workloads.operations.analytical import out_of_memory, release_memory

_MOST_STAMPS = 40_000  # in a run: 85 MB on an H200
_AHEAD_S = 0.06  # of work in the queue, and no more than this many groups:
_AHEAD_GROUPS = 200
_POLL_S = 2e-4
_ROUND_TRIPS = 8
_LOOK_EACH_S = 5e-3  # between looks at the clock, of each subject; the regulator acts every 10 ms
_SPARSITY = 0.8  # fraction of zeros in sparse data


class TorchTimelines:
    """Runs subjects in phases on one GPU with PyTorch.

    Args:
        device: PyTorch's name of the device, such as ``cuda:0``.

    Raises:
        MissingExtraError: PyTorch was built without CUDA, or cannot compile kernels.
        BadInputError: there is no such device.
        DeviceError: PyTorch finds no GPU, or its cycles cannot be counted.
    """

    def __init__(self, device: str) -> None:
        self._device = find_torch_device(device)
        if self._device.type != "cuda":
            raise BadInputError(f"device '{device}': cycles are counted on GPUs, such as cuda:0")
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(self._stream):
                self._stamps = CycleStamps(self._device, _MOST_STAMPS)
        self.stamps = self._stamps.quality

    @contextmanager
    def prepare(self, subjects: Sequence[Subject], group_s: float) -> Iterator[PreparedSubjects]:
        """Prepare subjects until the context exits; then wait for what is queued and free their memory.

        Raises:
            CannotRunError: a kernel has no operation, the device lacks the memory, or the data of a kernel cannot be chosen.
            DeviceError: the device failed.
        """
        with ExitStack() as stack:
            stack.callback(release_memory, self._device)
            try:
                with torch.cuda.device(self._device):
                    prepared = self._prepare(subjects, group_s)
            except RuntimeError as error:
                names = ", ".join(subject.kernel.name for subject in subjects)
                if not out_of_memory(error):
                    raise DeviceError(f"{names}: failed on {self._device}: {first_line(error)}") from None
                shortage = f"{names}: the data do not fit into the free memory of {self._device}"
            else:
                shortage = ""
            if shortage:
                raise CannotRunError(shortage)
            stack.callback(torch.cuda.synchronize, self._device)
            yield prepared
            del prepared

    def _prepare(self, subjects: Sequence[Subject], group_s: float) -> PreparedSubjects:
        launches = []
        for subject in subjects:
            free_bytes = torch.cuda.mem_get_info(self._device)[0] // len(subjects)
            l2_bytes = torch.cuda.get_device_properties(self._device).L2_cache_size
            task = Task.of_kernel(subject.kernel)
            program = Program(task, str(self._device), l2_bytes=l2_bytes, free_bytes=free_bytes)
            if subject.data != "random":
                change_data(program.arguments(), subject.data, subject.kernel.name)
            torch.cuda.synchronize(self._device)
            launches.append(launch_of(program, self._stream, group_s))
        return PreparedSubjects(launches, self._stamps, self._stream)


class PreparedSubjects:
    """Subjects that are ready to run.

    Args:
        launches: of each subject, one group of calls.
        stamps: of the cycle counters.
        stream: to queue on.
    """

    def __init__(self, launches: Sequence[Launch], stamps: CycleStamps, stream: torch.cuda.Stream) -> None:
        self._launches, self._stamps, self._stream = launches, stamps, stream
        self.call_s = tuple(launch.seconds / launch.calls for launch in launches)
        self.how = "; ".join(dict.fromkeys(launch.how for launch in launches))

    def run(self, phases: Sequence[Phase]) -> Timeline:
        """Run phases one after another; neither power nor temperature is read.

        Raises:
            BadInputError: there are more groups than a run can hold.
            DeviceError: the GPU failed.
        """
        groups = sum(self._groups(phase) for phase in phases)
        if 2 * groups + 2 * len(phases) + 4 * _ROUND_TRIPS > _MOST_STAMPS:
            raise BadInputError(f"`phases`: {groups:,} groups of calls in one run; at most {_MOST_STAMPS:,}: split it")
        try:
            with torch.cuda.stream(self._stream), torch.no_grad():
                return self._run(phases)
        except RuntimeError as error:
            raise gpu_failed(error) from None

    def _groups(self, phase: Phase) -> int:
        if phase.subject == REST:
            return 0
        return max(1, round(phase.seconds / self._launches[phase.subject].seconds))

    def _run(self, phases: Sequence[Phase]) -> Timeline:
        stamps = self._stamps
        stamps.restart()
        trips = [stamps.round_trip() for _ in range(_ROUND_TRIPS)]
        ran: list[tuple[int, int, int, int, int]] = []
        queue = _Queue(self._stream)
        last: int | None = None
        unseen_s = [_LOOK_EACH_S] * len(self._launches)  # of each subject since the clock was last looked at
        for index, phase in enumerate(phases):
            if phase.subject == REST:
                self._stream.synchronize()
                time.sleep(phase.seconds)
                last = None
                continue
            launch = self._launches[phase.subject]
            for _ in range(self._groups(phase)):
                first = stamps.record(self._stream) if last is None else last
                launch.run()
                last = ended = stamps.record(self._stream)
                unseen_s[phase.subject] += launch.seconds
                if unseen_s[phase.subject] >= _LOOK_EACH_S:
                    unseen_s[phase.subject] = 0.0
                    torch.cuda._sleep(LOOK_CYCLES)  # type: ignore[no-untyped-call]
                    last = stamps.record(self._stream)
                ran.append((index, phase.subject, launch.calls, first, last - ended))
                queue.added(launch.seconds)
        self._stream.synchronize()
        trips += [stamps.round_trip() for _ in range(_ROUND_TRIPS)]
        found = stamps.read()
        table = np.array(ran, dtype=np.intp).reshape(-1, 5)
        begin, end = table[:, 3], table[:, 3] + 1
        counted = found.clock_mhz(begin, end) if ran else np.empty(0)
        looked = np.flatnonzero(table[:, 4])
        seen = found.clock_mhz(end[looked], end[looked] + 1) if len(looked) else np.empty(0)
        return Timeline(
            table[:, 0],
            table[:, 1],
            table[:, 2],
            found.time_s[begin] + stamps.quality.cost_s,
            found.time_s[end],
            counted * clock_over_counted(table[:, 1], counted, looked, seen),
            {},
            tuple(RoundTrip(before, float(found.time_s[number]), after) for before, number, after in trips),
            None,
            counted_mhz=counted,
        )


def clock_over_counted(subject: IndexArray, counted_mhz: FloatArray, looked: IndexArray, seen_mhz: FloatArray) -> FloatArray:
    """Ratio of the clock in effect to the cycles counted in each group, from looks after some of the groups.

    Args:
        subject: of each group; shape (groups,).
        counted_mhz: cycles counted in each group, per microsecond; shape (groups,).
        looked: groups that a look followed; shape (looks,).
        seen_mhz: clock in each look; shape (looks,).

    Returns:
        Shape (groups,): 1 for subjects that skip no cycles; else the ratios of looks, interpolated for groups in between.
    """
    ratio = np.ones(len(subject))
    for which in np.unique(subject):
        own = np.flatnonzero(subject == which)
        mine = subject[looked] == which
        at, over = looked[mine], seen_mhz[mine] / counted_mhz[looked[mine]]
        # The regulator may change the clock between a group and its look.
        sane = (over > 1.0 - LEAST_SKIPPED) & (over < 1.0 / (1.0 - MOST_SKIPPED))
        if sane.any() and np.median(over[sane]) > 1.0 + LEAST_SKIPPED:
            ratio[own] = np.interp(own, at[sane], over[sane])
    return ratio


class _Queue:
    """Keeps the host at most a little ahead of the GPU, since launching into a full queue blocks other threads."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._waiting: list[tuple[torch.cuda.Event, float, int]] = []
        self._seconds, self._groups = 0.0, 0
        self._new_s, self._new = 0.0, 0

    def added(self, seconds: float) -> None:
        """Note a group that was queued; waits where too many are."""
        self._new_s += seconds
        self._new += 1
        if self._new_s < 0.1 * _AHEAD_S and self._new < 0.1 * _AHEAD_GROUPS:
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        self._waiting.append((event, self._new_s, self._new))
        self._seconds, self._groups = self._seconds + self._new_s, self._groups + self._new
        self._new_s, self._new = 0.0, 0
        while len(self._waiting) > 1 and (self._seconds > _AHEAD_S or self._groups > _AHEAD_GROUPS):
            event, seconds, groups = self._waiting[0]
            while not event.query():  # type: ignore[no-untyped-call]
                time.sleep(_POLL_S)
            self._waiting.pop(0)
            self._seconds, self._groups = self._seconds - seconds, self._groups - groups


def change_data(arguments: Sequence[Sequence[object]], data: Data, name: str) -> None:
    """Overwrite the floating-point inputs of calls.

    Args:
        arguments: of each call.
        data: what they shall hold.
        name: of the kernel, for messages.

    Raises:
        CannotRunError: the call has no floating-point inputs that could be changed.
    """
    tensors = [each for call in arguments for each in call if isinstance(each, Tensor) and each.is_floating_point()]
    if not tensors:
        raise CannotRunError(f"{name}: its data cannot be chosen; only operations that hold their inputs can run on {data}")
    for tensor in tensors:
        if data == "zeros":
            tensor.zero_()
        elif data == "equal rows":
            tensor.copy_(tensor.select(-2, 0).unsqueeze(-2).expand_as(tensor).clone() if tensor.dim() > 1 else tensor)
        elif data == "sparse":
            tensor.masked_fill_(torch.rand(tensor.shape, device=tensor.device) < _SPARSITY, 0.0)
