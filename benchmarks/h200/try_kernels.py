"""Runs every kernel of some workloads briefly on a GPU at the default clocks and prints the time of each.

    PYTHONPATH=src WASTENOT_READ_ONLY=1 python benchmarks/h200/try_kernels.py --check --profile --whole

Reads the GPU's state only. An error is printed and the rest goes on; the exit status is 1 where there was one. Needs
PyTorch, NumPy and typer, none of the package's other dependencies.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from wastenot.devices.protocol import Task
from wastenot.devices.torch.launcher import TorchLauncher
from wastenot.errors import WastenotError
from wastenot.operations.analytical import prepare_kernel, release_memory
from wastenot.operations.prepared_call import PreparedCall
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import KernelSpec, Workload

WORKLOADS = {
    "gpt3-xl": {"optimizer": "adamw"},
    "gpt3-xl-flash": {"attention": "flash"},
    "gpt3-xl-decode": {"phase": "decode"},
    "llama-8b": {"batch": 4, "optimizer": "adamw"},
    "llama-8b-flash": {"batch": 4, "attention": "flash"},
    "llama-8b-prefill": {"phase": "prefill", "attention": "flash"},
    "llama-8b-decode": {"phase": "decode", "attention": "flash"},
    "llama-8b-decode-unfused": {"phase": "decode"},
}


def workload(name: str, **options: object) -> Workload:
    family, size, *_ = name.split("-")
    return build_workload(f"{family}-{size}", **{**WORKLOADS[name], **options})  # type: ignore[arg-type]


def run(launcher: TorchLauncher, task: Task, seconds: float) -> tuple[float, float, str, float]:
    """Time of a call, time of a call when it was first tried, how it runs, peak memory in GB."""
    torch.cuda.reset_peak_memory_stats()
    with launcher.start(task) as running:
        running.mark()
        ends = time.monotonic() + max(seconds, 2.5 * running.call_s)
        while time.monotonic() < ends or not running.completed:
            running.feed()
            time.sleep(0.02)
        running.mark()
    lap = running.laps[0]
    return lap.seconds / lap.calls, running.call_s, running.how, torch.cuda.max_memory_allocated() / 1e9


def gpu_kernels(kernel: KernelSpec, device: str) -> list[str]:
    """Names of the GPU kernels that one call runs."""
    (call,) = prepare_kernel(kernel, device, 1)
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    ran = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [f"{event.name[:60]} {event.device_time:.0f}us" for event in ran]


def differs(kernel: KernelSpec, device: str) -> float | None:
    """Largest relative difference of compiled from eager outputs; None if nothing is compiled."""
    (call,) = prepare_kernel(kernel, device, 1)
    assert isinstance(call, PreparedCall)
    if call.reference is None:
        return None
    copies = [argument.clone() if isinstance(argument, torch.Tensor) else argument for argument in call.arguments]
    actual, expected = tensors(call()), tensors(call.reference(*copies))
    pairs = zip(actual, expected, strict=True)
    return max(float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in pairs)


def tensors(output: object) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    return [tensor for part in output for tensor in tensors(part)] if isinstance(output, (tuple, list)) else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=[], help=", ".join(WORKLOADS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--check", action="store_true", help="compare compiled kernels with eager ones")
    parser.add_argument("--profile", action="store_true", help="list the GPU kernels of each call")
    parser.add_argument("--whole", action="store_true", help="run each whole workload too, beside the sum of its kernels")
    options = parser.parse_args()
    try:
        launcher = TorchLauncher(options.device)
    except WastenotError as error:
        print(error)
        return 2
    failed, tried = 0, set()
    for name in options.workloads or WORKLOADS:
        kernels = workload(name).kernels
        print(f"\n{name}: {len(kernels)} kernels")
        print(f"{'kernel':26} {'call us':>10} {'/tried':>7} {'TFLOP/s':>8} {'GB/s':>6}  GB  how")
        total: dict[str, float] = {}
        for kernel in kernels:
            same = (kernel.op, kernel.name, kernel.shape)
            if same in tried and not options.whole:
                continue
            tried.add(same)
            began = time.monotonic()
            try:
                call_s, tried_s, how, most_gb = run(launcher, Task.of_kernel(kernel), options.seconds)
                total[kernel.name] = call_s * kernel.count
                print(
                    f"{kernel.name:26} {call_s * 1e6:10.2f} {call_s / tried_s:7.3f} {kernel.flops / call_s / 1e12:8.1f}"
                    f" {kernel.bytes_moved / call_s / 1e9:6.0f} {most_gb:4.0f}  {how} [{time.monotonic() - began:.1f} s]"
                )
                if options.profile:
                    print("    " + "; ".join(gpu_kernels(kernel, options.device)))
                if options.check:
                    small = next(k for k in workload(name, batch=1).kernels if k.name == kernel.name)
                    far = differs(small, options.device)
                    wrong = far is not None and not far < 0.02
                    failed += wrong
                    print(
                        "" if far is None else f"    differs by {far:.1e}{' WRONG' if wrong else ''}",
                        end="\n" if far else "",
                    )
            except (WastenotError, RuntimeError) as error:
                failed += 1
                print(f"{kernel.name:26} {type(error).__name__}: {str(error).splitlines()[0][:300]}")
            release_memory(launcher.device)
            left = torch.cuda.memory_allocated() / 1e9
            if left > 0.2:
                print(f"    {left:.1f} GB are still held")
            sys.stdout.flush()
        if options.whole and len(total) == len(kernels):
            task = Task(name, tuple((kernel, kernel.count) for kernel in kernels))
            try:
                call_s, _, how, most_gb = run(launcher, task, 3.0)
                change = call_s / sum(total.values()) - 1
                print(f"whole: {call_s * 1e3:.3f} ms, {change:+.2%} against the sum of its kernels, {most_gb:.0f} GB")
                print(f"    {how}")
            except (WastenotError, RuntimeError) as error:
                failed += 1
                print(f"whole: {type(error).__name__}: {str(error).splitlines()[0][:300]}")
    print(f"\n{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
