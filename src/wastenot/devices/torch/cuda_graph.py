"""How many calls are launched at once: a CUDA graph of about 20 ms, or as many eager calls where none can be captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from wastenot.devices.torch.program import Program
from wastenot.devices.torch.run import Launch, new_event
from wastenot.operations.by_formula import out_of_memory

_LAUNCH_S = 0.02
_LONGEST_ROUND_S = 0.1  # of one call on each set of buffers
_MOST_KERNELS = 20_000  # in a graph


def plan_launch(program: Program, stream: torch.cuda.Stream) -> Launch:
    """The launch of a program, tried and timed.

    Eager calls of short kernels wait for the host, so that the first graph's length is corrected by its own time.

    Args:
        program: to launch.
        stream: to capture and time on.

    Raises:
        torch.OutOfMemoryError: the GPU lacks the memory.
    """

    def calls_in(call_s: float) -> int:
        most = max(1, _MOST_KERNELS // program.kernels_a_call)
        calls = max(1, round(_LAUNCH_S / max(call_s, 1e-7)))
        if calls >= program.buffers or program.buffers * call_s <= _LONGEST_ROUND_S:
            calls = max(1, round(calls / program.buffers)) * program.buffers
        return min(calls, most // program.buffers * program.buffers or most)

    eager = _eager(program, stream, calls_in)
    try:
        launch = _captured(program, stream, calls_in(eager.seconds / eager.calls))
        better = calls_in(launch.seconds / launch.calls)
        if better > 1.5 * launch.calls:
            del launch  # its memory first
            launch = _captured(program, stream, better)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        program.drop_outputs()
        torch.cuda.synchronize(stream.device)
        return replace(eager, how=f"eager: {str(error).splitlines()[0][:120]}")
    return launch


def _eager(program: Program, stream: torch.cuda.Stream, calls_in: Callable[[float], int]) -> Launch:
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(program.buffers):
            program.run()
        stream.synchronize()
        seconds = _time(stream, program.buffers, program.run) / program.buffers
        calls = calls_in(seconds)
    program.drop_outputs()

    def launch() -> None:
        with torch.no_grad():
            for _ in range(calls):
                program.run()

    return Launch(launch, calls, calls * seconds, "eager")


def _captured(program: Program, stream: torch.cuda.Stream, calls: int) -> Launch:
    graph = torch.cuda.CUDAGraph()
    program.drop_outputs()
    with torch.no_grad(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            program.run()
    program.drop_outputs()
    with torch.cuda.stream(stream):
        graph.replay()
        seconds = _time(stream, 1, graph.replay)
    over = f" over {program.buffers} buffers" if program.buffers > 1 else ""
    return Launch(graph.replay, calls, seconds, f"cuda graph of {calls} call{'s' if calls > 1 else ''}{over}")


def _time(stream: torch.cuda.Stream, times: int, run: Callable[[], None]) -> float:
    begin, end = new_event(), new_event()
    begin.record(stream)
    for _ in range(times):
        run()
    end.record(stream)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3
